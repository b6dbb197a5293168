"""Supported verl versions. scpo overrides internals, so others are rejected before Ray starts."""

from __future__ import annotations

import inspect
import pkgutil

from scpo.errors import ConfigError
from scpo.installed import install_command, installed_version

SUPPORTED = ("0.9.1",)
INSTALL = (
    f"in a virtual environment of its own: {install_command('alfworld', 'verl')} (without a GPU: "
    f"{install_command('alfworld', 'verl-cpu')}); see docs/verl.md"
)

OVERRIDDEN: dict[str, dict[str, tuple[str, ...]]] = {
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer": {
        "_setup": ("self",),
        "_balance_batch": ("self", "batch", "metrics", "logging_prefix", "keep_minibatch"),
        "_build_replay_buffer": ("self",),
        "_load_checkpoint": ("self",),
        "_save_checkpoint": ("self",),
        "_validate": ("self",),
        "_compute_advantage": ("self", "batch", "metrics"),
        "on_train_begin": ("self",),
        "on_step_end": ("self",),
    },
    "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer": {
        "_terminal_eviction_reasons": ("self", "global_steps", "partition_id"),
        "_wait_for_next_poll": ("self", "partition_id", "last_debug_time"),
    },
    "verl.experimental.agent_loop.agent_loop:AgentLoopBase": {
        "run": ("self", "sampling_params", "kwargs")
    },
    "verl.workers.engine.base:BaseEngine": {"train_batch": ("self", "data", "loss_function")},
    "verl.trainer.main_ppo:run_ppo": {"": ("config", "task_runner_class")},
}
"""Class or function of verl -> method that scpo overrides or calls -> names of its parameters."""


def check_version() -> None:
    """Check the version of the installed verl, without importing it.

    Raises:
        ConfigError: verl is not installed, or of another version.
    """
    installed = installed_version("verl")
    if installed is None:
        raise ConfigError(f"trainer=verl: verl is not installed; {INSTALL}")
    if installed not in SUPPORTED:
        raise ConfigError(
            f"trainer=verl: verl {installed} is installed, supported: {', '.join(SUPPORTED)}; scpo "
            f"overrides internals that change between versions. {INSTALL}"
        )


def check_signatures() -> None:
    """Import verl and compare the signatures in ``OVERRIDDEN`` with those of the installed verl.

    Raises:
        ConfigError: The installed verl is not the release, such as a patched or editable one.
    """
    for owner, methods in OVERRIDDEN.items():
        for name, expected in methods.items():
            place = f"{owner}.{name}" if name else owner
            try:
                found = tuple(inspect.signature(pkgutil.resolve_name(place)).parameters)
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"verl has no {place} ({error}). {INSTALL}") from error
            if found != expected:
                raise ConfigError(
                    f"verl's {place} takes {', '.join(found)}; scpo was written for "
                    f"{', '.join(expected)}: this is not the released verl {', '.join(SUPPORTED)}. "
                    f"{INSTALL}"
                )
