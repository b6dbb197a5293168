"""The full similarity matrix of one failed trajectory, with the walk on it: what the credit heatmap draws."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.schema.method import ShaperConfig
from scpo.shaping.drive import MatchTask, Scorer, checked
from scpo.shaping.order import Seed
from scpo.shaping.shaper import FailedMatch, shape
from scpo.steps import FloatArray, StepBatch


@dataclass(frozen=True)
class DenseProbe:
    """A failed trajectory against its reference.

    Attributes:
        match: Texts, rows, credited cells and walk.
        similarity_ml: M: reference step u against failed step v.
    """

    match: FailedMatch
    similarity_ml: FloatArray

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for an ``.npz`` file; m and l count the steps that the filter left in, both in time order.

        ``matched_l``: credited reference position of a failed step, -1 for none. ``order_l``: processing order.
        ``walk_l``: matched reference position after each processed step; shorter than l when the walk ended early.
        """
        task, trace = self.match.task, self.match.trace
        matched_l = np.full(len(task.failed), -1, dtype=np.int32)
        for cell in trace.credited:
            matched_l[cell.v] = cell.u
        return {
            "similarity_ml": self.similarity_ml,
            "credit_l": self.match.credit_l,
            "matched_l": matched_l,
            "order_l": np.array(task.order, dtype=np.int32),
            "walk_l": np.array([j for _, j in trace.walk], dtype=np.int32),
            "reference_text_m": np.array(task.reference),
            "failed_text_l": np.array(task.failed),
        }


def dense_probe(batch: StepBatch, scorer: Scorer, config: ShaperConfig, seed: Seed) -> DenseProbe | None:
    """Score the most credited failure of a batch against its reference, every pair of steps.

    Ties go to the smallest group and trajectory. The pairs count in no diagnostic.

    Args:
        batch: The probe's rollouts, usually one group.
        scorer: Answers text pairs with similarities in [0, 1].
        config: The shaper that the run uses.
        seed: Run seed and training step.

    Returns:
        None when no group has both a success and a failure with a surviving step.

    Raises:
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    shaped = shape(batch, scorer, config, seed)
    matches = [match for match in shaped.matches if match.task.reference and match.task.failed]
    if not matches:
        return None
    match = max(matches, key=lambda match: float(match.credit_l.sum()))
    return DenseProbe(match, dense_similarity(match.task, scorer))


def dense_similarity(task: MatchTask, scorer: Scorer) -> FloatArray:
    """M of one failed trajectory in full, ``(m, l)``; the pairs count in no diagnostic.

    Raises:
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    pairs = [task.texts(cell) for cell in task.cells("failed")]
    scores: FloatArray = checked(scorer, pairs) if pairs else np.zeros(0, np.float32)
    return scores.reshape(len(task.reference), len(task.failed))
