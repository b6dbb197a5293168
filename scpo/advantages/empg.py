"""EMPG: outcome advantages modulated by the policy's entropy (arXiv 2509.09265, eq. 5 to 8)."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from scpo.advantages.estimator import Estimator, GroupSettings, measured
from scpo.advantages.groups import Float64Array, Normalisation, as_advantage, moments
from scpo.advantages.grpo import episode_advantage
from scpo.steps import FloatArray, StepBatch


class EmpgSettings(GroupSettings):
    name: Literal["empg"]
    normalisation: Normalisation
    k: NonNegativeFloat
    k_future: NonNegativeFloat
    zeta: NonNegativeFloat


def empg(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: EmpgSettings
) -> FloatArray:
    """A = A_GRPO g + ζ f(next step) minus its mean over the batch.

    g = exp(-k H) / mean over the batch of exp(-k H) scales a step's update by its confidence; f =
    exp(-k' H) of the step that follows rewards leading to a state where the policy is sure, and is
    left out on a trajectory's last step. H is the step's mean token entropy under the old policy,
    min-max normalised over the batch. Copies take part in the batch means. No code was published.
    Step returns and bonus are not read.

    Raises:
        StepBatchError: A row has no finite ``entropy_N``.
    """
    entropy_N = normalised_entropy(batch)
    confidence_N = np.exp(-config.k * entropy_N)
    scale_N = confidence_N / _mean(confidence_N)
    next_N = batch.timeline.neighbours(1)
    clarity_N = np.where(next_N >= 0, np.exp(-config.k_future * entropy_N[next_N]), 0.0)
    advantage_N = (
        episode_advantage(batch, config, config.normalisation) * scale_N + config.zeta * clarity_N
    )
    return as_advantage(advantage_N - _mean(advantage_N))


def normalised_entropy(batch: StepBatch) -> Float64Array:
    """(H - min) / (max - min) over the batch, in [0, 1]; 0 everywhere if all are equal (silent)."""
    everywhere_N = np.ones(len(batch), dtype=bool)
    entropy_N = measured(batch, "entropy_N", everywhere_N, "estimator 'empg'")
    excess_N: Float64Array = entropy_N - entropy_N.min(initial=np.inf)
    return excess_N / (excess_N.max(initial=0.0) or 1.0)


def _mean(value_N: Float64Array) -> float:
    """Mean over the batch that does not depend on the order of its rows; 0 of none."""
    return float(moments(value_N, np.zeros(len(value_N), dtype=np.int64)).mean_G.sum())


EMPG = Estimator(EmpgSettings, empg, requires=frozenset({"entropy"}), labels={"empg": "EMPG"})
