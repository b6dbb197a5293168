"""Address of the W&B server without user and password, which wandb does not use but prints.

wandb authenticates by its key (``WANDB_API_KEY``, ``~/.netrc``), even if the address has a user. It
prints "Loaded credentials for <address>" into the log of each run.
"""

import os
from types import ModuleType
from urllib.parse import urlsplit, urlunsplit

VARIABLES = ("WANDB_BASE_URL", "WANDB_APP_URL")


def without_user(url: str) -> str:
    """The address without ``user:password@``."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Not an address: wandb refuses it with a message of its own.
        return url
    # The host follows the last @, because a password may contain one.
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def use_address(url: str) -> None:
    """Let wandb use this server, in this process and those that it starts.

    The environment has precedence over wandb's settings files.
    """
    take_user_out()
    os.environ[VARIABLES[0]] = without_user(url)


def take_user_out() -> None:
    """Take user and password out of the addresses in the environment of this process."""
    for name in VARIABLES:
        given = os.environ.get(name)
        if given and "@" in given:
            os.environ[name] = without_user(given)


def set_up(wandb: ModuleType) -> None:
    """Set wandb up, with an address without user and password even if a settings file has them."""
    take_user_out()
    address = wandb.setup().settings.base_url
    if "@" in address:
        use_address(address)
        # The settings have been read from the file already.
        wandb.teardown()
