"""EMPG: outcome advantages modulated by the policy's entropy (arXiv 2509.09265, eq. 5 to 8)."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from scpo.advantages.estimator import Estimator, GroupSettings, measured
from scpo.advantages.groups import Float64Array, Normalisation, as_advantage, moments
from scpo.advantages.grpo import episode_advantage
from scpo.steps import FloatArray, StepBatch


class EmpgSettings(GroupSettings):
    """Settings of EMPG.

    Attributes:
        normalisation: Mode of the GRPO advantage that is modulated.
        k: How much a step's confidence scales its update; 0: not at all.
        k_future: k', how fast the second term falls with the next step's entropy.
        zeta: Weight of the second term: 0.05 as in ARLArena; EMPG's listing has 0.1 (ledger 18).
    """

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
    min-max normalised over the batch. Copies take part in the batch means (ledger 18). No code was
    published. Step returns and bonus are not read.

    Args:
        batch: The steps, with ``entropy_N`` in nats.
        step_return_N: Not read.
        bonus_N: Not read.
        config: The settings.

    Returns:
        ``advantage_N``, float32, with a mean of 0 over the batch.

    Raises:
        StepBatchError: A row has no finite ``entropy_N``.
    """
    entropy_N = normalised_entropy(batch)
    confidence_N = np.exp(-config.k * entropy_N)
    # Divided by its mean, so that the scales average 1: updates are redistributed, not shrunk.
    scale_N = confidence_N / _mean(confidence_N)
    next_N = batch.timeline.neighbours(1)
    clarity_N = np.where(next_N >= 0, np.exp(-config.k_future * entropy_N[next_N]), 0.0)
    advantage_N = (
        episode_advantage(batch, config, config.normalisation) * scale_N + config.zeta * clarity_N
    )
    return as_advantage(advantage_N - _mean(advantage_N))


def normalised_entropy(batch: StepBatch) -> Float64Array:
    """(H - min) / (max - min) over the batch, in [0, 1]; 0 if all are equal (ours, ledger 18)."""
    everywhere_N = np.ones(len(batch), dtype=bool)
    entropy_N = measured(batch, "entropy_N", everywhere_N, "estimator 'empg'")
    excess_N: Float64Array = entropy_N - entropy_N.min(initial=np.inf)
    # Divisor 1 if the range is 0: equal entropies become 0.
    return excess_N / (excess_N.max(initial=0.0) or 1.0)


def _mean(value_N: Float64Array) -> float:
    """Mean over the batch, to the last bit independent of the order of rows; 0 without rows."""
    return float(moments(value_N, np.zeros(len(value_N), dtype=np.int64)).mean_G.sum())


EMPG = Estimator(EmpgSettings, empg, requires=frozenset({"entropy"}), labels={"empg": "EMPG"})
