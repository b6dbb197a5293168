"""Trainers: each converts its own batch to a StepBatch and writes the advantages back."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scpo.schema import RunConfig
    from scpo.tracking import RunFolder

# trainer.name -> module whose `train(config, folder, should_stop)` runs it; imported on use, each is heavy
TRAINERS: dict[str, str] = {"local": "scpo.trainers.local.trainer"}


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """Run or resume the training that ``config`` describes, recording into ``folder``.

    ``should_stop`` is asked after every training step; when it says yes, a checkpoint is written and the call returns.
    """
    import_module(TRAINERS[config.trainer.name]).train(config, folder, should_stop)
