"""What a run keeps of its training steps besides the trainer's metrics: one call for every trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scpo.diagnostics.rollout_file import save_rollouts
from scpo.diagnostics.sampled_groups import save_groups
from scpo.diagnostics.samples import save_probe, save_step_texts
from scpo.diagnostics.step_credit import credit_precision, step_credited
from scpo.diagnostics.validation_episodes import played, save_validation
from scpo.envs.base import Environment, PlanningEnvironment
from scpo.errors import ScorerUnavailable
from scpo.rollout import PRECISION

if TYPE_CHECKING:
    from scpo.credit.metrics import CreditDiagnostics
    from scpo.records import RunFolder
    from scpo.rollout import Trajectory
    from scpo.schema import RunConfig
    from scpo.shaping.drive import Scorer
    from scpo.steps import StepBatch

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Diagnostics:
    """The samples of one run; methods without a shaper have none but that of how well their credit hits.

    Attributes:
        config: Says which steps are sampled.
        folder: Where the samples go.
        scorer: Scores their matrices; None for a method without a shaper.
        environment: Gives the one that measures how well credit hits, if it can plan; None: there is none to ask.
    """

    config: RunConfig
    folder: RunFolder
    scorer: Scorer | None
    environment: Callable[[], Environment] | None = None

    def record(
        self, step: int, batch: StepBatch, credit: CreditDiagnostics, trajectories: Sequence[Trajectory] = ()
    ) -> dict[str, float]:
        """Keep step texts and whole groups of a training step, and measure how well its credit hits, each in its turn.

        Args:
            step: The training step.
            batch: What was learned from.
            credit: What was assigned to it.
            trajectories: By ``batch.trajectory_N``, where there is an environment.

        Returns:
            Metrics of :func:`scpo.diagnostics.step_credit.credit_precision`.
        """
        save_step_texts(self.folder, step, batch, credit)
        with _left_out_without_scorer("groups", step):
            save_groups(self.folder, step, batch, credit, config=self.config, scorer=self.scorer)
        trainer = self.config.trainer
        save_rollouts(self.folder, step, batch, credit, trajectories=trajectories, every=trainer.rollouts_every)
        if self.environment is None or step % trainer.precision_every:
            return {}
        credited_N = step_credited(batch, credit, self.config.trained)
        environment = self.environment()
        if credited_N is None or not isinstance(environment, PlanningEnvironment):
            return {}
        return credit_precision(
            environment,
            trajectories,
            batch,
            credited_N,
            steps=trainer.precision_steps,
            rng=np.random.default_rng((self.config.seed, step, PRECISION)),
        )

    def record_validation(self, step: int, panels: Mapping[str, Sequence[Trajectory]]) -> None:
        """Keep what came of every episode of a validation, by panel, and transcripts of a few."""
        episodes = {panel: [played(one) for one in trajectories] for panel, trajectories in panels.items()}
        save_validation(self.folder, step, episodes)

    def probe_due(self, step: int) -> bool:
        """Whether the probe's game is to be played at this step: every ``trainer.probe_every``, and at the last."""
        trainer = self.config.trainer
        return self.config.trained.shaper is not None and (step % trainer.probe_every == 0 or step == trainer.steps)

    def record_probe(self, step: int, batch: StepBatch) -> None:
        """Keep the similarity matrix of the probe's rollouts."""
        shaper = self.config.trained.shaper
        if shaper is None or self.scorer is None:
            return
        with _left_out_without_scorer("probe", step):
            save_probe(self.folder, step, batch, self.scorer, shaper, seed=(self.config.seed, step))


@contextmanager
def _left_out_without_scorer(sample: str, step: int) -> Iterator[None]:
    """A sample is left out where the configuration lets training go on without the scorer."""
    try:
        yield
    except ScorerUnavailable as error:
        logger.error("no %s of step %d: %s", sample, step, error)
