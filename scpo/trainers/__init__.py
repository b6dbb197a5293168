"""Trainers: each converts its own batch to a StepBatch and writes the advantages back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from scpo.errors import ConfigError
from scpo.installed import install_command
from scpo.scoring import find_scorer

if TYPE_CHECKING:
    from scpo.records import RunFolder
    from scpo.schema.run import RunConfig


TRAINERS = {
    "local": "scpo.trainers.local.trainer",
    "verl": "scpo.trainers.verl.launch",
}
"""Trainer -> module with its ``train(config, folder, should_stop)``, imported only when used.

``scpo.schema.method`` lists the features of each trainer, against which configurations are checked.
"""

EVALUATION = "scpo.trainers.evaluate.evaluation"
"""Module that runs prompting methods with any configured trainer.

Of the trainer's settings it uses only token limits, validation and the number of the last step.
"""


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """Run or resume the configured training, or the evaluation of a prompting method.

    Everything is recorded in ``folder``: if the run is interrupted, another call resumes it from
    its last checkpoint.

    Args:
        config: The composed configuration.
        folder: The run folder, which must exist.
        should_stop: Called after every training step; once it returns True, a checkpoint is written
            and the call returns.

    Raises:
        ConfigError: A package is not installed, or the run cannot be started in this process.
        ScorerError: The scorer's model is missing; nothing has been loaded yet.
    """
    config.check_started_here()
    with _missing_packages_named(config):
        module = import_module(
            TRAINERS[config.trainer.name] if config.method.kind == "trained" else EVALUATION
        )
        if hasattr(module, "check_before_network"):
            # Requests to a hub that cannot be reached take half a minute.
            module.check_before_network(config)
        if config.method.kind == "trained" and config.method.shaper:
            # A missing model would otherwise be found after the warm start and a rollout.
            find_scorer(config.scorer)
        module.train(config, folder, should_stop)


@contextmanager
def _missing_packages_named(config: RunConfig) -> Iterator[None]:
    """Turn the error of a missing package into advice on how to install it.

    The block includes the training, because some packages are imported during a rollout.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "scpo":
            raise
        extras = (config.env.name, config.trainer.name)
        raise ConfigError(
            f"method={config.method.name} env={config.env.name}: the package {error.name} is not "
            f"installed; {install_command(*extras)}, or make setup"
        ) from error
