"""Trainers: each converts its own batch to a StepBatch and writes the advantages back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from scpo.credit import check_provided

if TYPE_CHECKING:
    from scpo.schema import RunConfig
    from scpo.tracking import RunFolder


@dataclass(frozen=True)
class Trainer:
    """A registered trainer.

    Attributes:
        module: Its ``train(config, folder, should_stop)`` runs it; imported on use, for it is heavy.
        provides: What it can do beyond plain rollouts of groups, in the words of ``scpo.credit.required``.
    """

    module: str
    provides: frozenset[str]


TRAINERS: dict[str, Trainer] = {
    "local": Trainer(
        "scpo.trainers.local.trainer",
        provides=frozenset({"entropy", "hindsight_logprob", "value", "independent_sampling", "dynamic_sampling"}),
    ),
}


EVALUATION = "scpo.trainers.evaluate.evaluation"
"""What runs methods that prompt, in place of whichever trainer is configured: nothing of it but its limits is read."""


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """Run or resume the training that ``config`` describes, or the evaluation of a method that trains nothing.

    All is recorded into ``folder``.

    ``should_stop`` is asked after every training step; when it says yes, a checkpoint is written and the call returns.

    Raises:
        ConfigError: The method requires something that the trainer does not provide; nothing was loaded yet.
    """
    if config.method.agent is not None:
        import_module(EVALUATION).train(config, folder, should_stop)
        return
    trainer = TRAINERS[config.trainer.name]
    check_provided(config.method, trainer.provides, config.trainer.name)
    import_module(trainer.module).train(config, folder, should_stop)
