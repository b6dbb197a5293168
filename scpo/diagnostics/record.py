"""Diagnostics of a run: samples of training steps and validations, recorded by every trainer."""

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
    from scpo.schema.run import RunConfig
    from scpo.shaping.drive import Scorer
    from scpo.steps import StepBatch

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Diagnostics:
    """Recorder of one run's samples.

    Methods without a shaper have only records of rollouts and validations, and the precision of the
    step term.

    Attributes:
        config: Configuration with the sampling intervals.
        folder: The run folder, to which the samples are written.
        scorer: Scores similarity matrices; None for a method without a shaper.
        environment: Returns the environment whose plans measure the precision of credit; None: the
            precision is not measured.
    """

    config: RunConfig
    folder: RunFolder
    scorer: Scorer | None
    environment: Callable[[], Environment] | None = None

    def record(
        self,
        step: int,
        batch: StepBatch,
        credit: CreditDiagnostics,
        trajectories: Sequence[Trajectory] = (),
    ) -> dict[str, float]:
        """Store step texts and whole groups of a training step, and measure credit precision.

        Args:
            step: The training step.
            batch: The step's training batch.
            credit: Diagnostics of its credit assignment.
            trajectories: Indexed by ``batch.trajectory_N``; needed if there is an environment.

        Returns:
            Metrics of :func:`scpo.diagnostics.step_credit.credit_precision`.
        """
        # Samples: each function decides whether this step has one.
        save_step_texts(self.folder, step, batch, credit)
        # May fail: whole matrices are scored, of which the walks have read only a part.
        with _left_out_without_scorer("groups", step):
            save_groups(self.folder, step, batch, credit, config=self.config, scorer=self.scorer)
        trainer = self.config.trainer
        save_rollouts(
            self.folder,
            step,
            batch,
            credit,
            trajectories=trajectories,
            every=trainer.rollouts_every,
        )

        # Precision, every `precision_every` steps, in environments that can plan.
        if self.environment is None or step % trainer.precision_every:
            return {}
        credited_N = step_credited(credit, self.config.trained)
        environment = self.environment()
        if credited_N is None or not isinstance(environment, PlanningEnvironment):
            return {}
        return credit_precision(
            environment,
            trajectories,
            batch,
            credited_N,
            steps=trainer.precision_steps,
            # A generator of its own: the sample changes no other random number of the run.
            rng=np.random.default_rng((self.config.seed, step, PRECISION)),
        )

    def record_validation(self, step: int, panels: Mapping[str, Sequence[Trajectory]]) -> None:
        """Store the results of every validation episode, and transcripts of some.

        Args:
            step: The training step after which the validation was played; 0 before training.
            panels: The episodes by panel, in the order of the panel's tasks.
        """
        episodes = {}
        for panel, trajectories in panels.items():
            episodes[panel] = [played(trajectory) for trajectory in trajectories]
        save_validation(self.folder, step, episodes)

    def probe_due(self, step: int) -> bool:
        """Return True if the probe is due: every ``trainer.probe_every`` steps and at the last."""
        trainer = self.config.trainer
        shaper = self.config.trained.shaper
        # With a state identity the matcher compares state numbers, not texts.
        if shaper is None or shaper.states is not None:
            return False
        return step % trainer.probe_every == 0 or step == trainer.steps

    def record_probe(self, step: int, batch: StepBatch) -> None:
        """Store the similarity matrix of the probe's rollouts.

        Args:
            step: The training step after which they were played.
            batch: The probe's rollouts, which are not trained on.
        """
        shaper = self.config.trained.shaper
        if shaper is None or self.scorer is None:
            return
        with _left_out_without_scorer("probe", step):
            save_probe(self.folder, step, batch, self.scorer, shaper, seed=(self.config.seed, step))


@contextmanager
def _left_out_without_scorer(sample: str, step: int) -> Iterator[None]:
    """Log and skip a sample if the scorer fails and training may continue without it."""
    try:
        yield
    except ScorerUnavailable as error:
        logger.error("no %s of step %d: %s", sample, step, error)
