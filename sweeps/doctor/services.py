"""Checks of network services: W&B and endpoints of API models. No key is shown or sent."""

import netrc
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from scpo.findings import Finding, error, ok, warning
from scpo.records.wandb_address import without_user
from scpo.schema.model import ApiModel
from scpo.schema.run import RunConfig
from sweeps.doctor.subject import Subject

WANDB_URL = "https://api.wandb.ai"
# Host of wandb's default server since 0.31, which also accepts keys for WANDB_URL, the earlier one.
FORGE_HOST = "api.forge.coreweave.com"
TIMEOUT_S = 5.0
# Code that prints the server's address; with mode=disabled, wandb starts no process.
READ_WANDB_URL = (
    "import wandb; print(wandb.setup(wandb.Settings(mode='disabled')).settings.base_url)"
)
# Importing wandb takes a second, and longer from a network file system.
READ_S = 60.0
OFFLINE = "wandb.mode=offline (`wandb sync` later)"


def check_wandb(subject: Subject) -> Iterator[Finding]:
    """Check the mode and, online, key and server. Only warnings: W&B is a mirror."""
    mode = subject.first.wandb.mode
    if mode == "disabled":
        yield ok("wandb", "disabled")
        return
    if mode == "offline":
        yield ok("wandb", "offline: written into the run folders")
        return

    url = wandb_url()
    if not _has_key(urlsplit(url).hostname or ""):
        yield warning("wandb", f"online, and no key for {url}", f"wandb login, or {OFFLINE}")
    unreachable = why_unreachable(url)
    if unreachable:
        yield warning(
            "wandb", f"online, and {url} does not answer: {unreachable}", f"a proxy, or {OFFLINE}"
        )
    else:
        yield ok("wandb", f"online: {url} answers")


def wandb_url() -> str:
    """Address of the W&B server that the installed wandb uses, without user and password."""
    # wandb itself determines it, because the default depends on wandb's version, and settings files
    # may name another server. In a child process, because wandb caches its settings.
    try:
        read = subprocess.run(
            [sys.executable, "-c", READ_WANDB_URL],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=READ_S,
        ).stdout.split()
    except subprocess.TimeoutExpired:
        read = []
    # Nothing is printed if wandb is not installed or refuses a setting.
    url = read[-1] if read else os.environ.get("WANDB_BASE_URL") or WANDB_URL
    return without_user(url)


def check_endpoints(subject: Subject) -> Iterator[Finding]:
    """Check key and reachability of every API model."""
    for model in _api_models(subject.configs):
        yield from _endpoint(model)


def check_keys(subject: Subject) -> Iterator[Finding]:
    """Check the key of every API model, without a connection."""
    for model in _api_models(subject.configs):
        yield from _key(model)


def missing_keys(configs: Iterable[RunConfig]) -> list[str]:
    """Environment variables with the keys of API models that are not set, each once."""
    names: list[str] = []
    for model in _api_models(configs):
        # Several models may share a provider, and so its key.
        name = model.key_variable
        if name is not None and _lacks_key(model) and name not in names:
            names.append(name)
    return names


def _api_models(configs: Iterable[RunConfig]) -> list[ApiModel]:
    """API models of these runs, each once."""
    models = {}
    for config in configs:
        if isinstance(config.model, ApiModel):
            models[config.model.name] = config.model
    return list(models.values())


def _lacks_key(model: ApiModel) -> bool:
    return model.key_variable is not None and not os.environ.get(model.key_variable)


def _key(model: ApiModel) -> Iterator[Finding]:
    if _lacks_key(model):
        fix = f"export {model.key_variable}=<your key>"
        yield error(f"model {model.name}", f"{model.key_variable} is not set", fix)


def _endpoint(model: ApiModel) -> Iterator[Finding]:
    check = f"model {model.name}"
    yield from _key(model)
    unreachable = why_unreachable(model.base_url)
    if unreachable:
        yield error(
            check,
            f"{model.base_url} does not answer: {unreachable}",
            "model.base_url=<one that does>, a proxy",
        )
    else:
        yield ok(check, f"{model.base_url} answers; key in {model.key_variable or 'no variable'}")


def _has_key(host: str) -> bool:
    """True if the environment or ~/.netrc, which `wandb login` writes, has a key for the server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    hosts = [host, urlsplit(WANDB_URL).hostname or ""] if host == FORGE_HOST else [host]
    try:
        return any(netrc.netrc().authenticators(name) for name in hosts)
    except (OSError, netrc.NetrcParseError):
        return False


def has_any_wandb_key() -> bool:
    """True if W&B may find a key, for any server: reading the server's address takes a second."""
    return bool(os.environ.get("WANDB_API_KEY")) or (Path.home() / ".netrc").exists()


def why_unreachable(url: str) -> str | None:
    """Reason why the address cannot be connected to; None if it can."""
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        # Only a connection: no key is sent to a wrong address.
        with socket.create_connection((parts.hostname or "", port), timeout=TIMEOUT_S):
            return None
    except OSError as failure:
        return failure.strerror or str(failure) or type(failure).__name__
