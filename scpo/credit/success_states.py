"""Credit only where it may tell the host something: at states that no success of the group passed (ours)."""

from dataclasses import replace

import numpy as np

from scpo.advantages.anchors import anchor_groups
from scpo.shaping.shaper import CreditedStates, Shaped
from scpo.steps import StepBatch


def without_success(batch: StepBatch, shaped: Shaped, states: CreditedStates) -> Shaped:
    """The credit without that of steps whose state a success of their group passed, too.

    Args:
        batch: The steps.
        shaped: The shaper's answer.
        states: ``anchor_without_success`` compares anchor observations, ``state_without_success`` the states.

    Raises:
        StepBatchError: ``state_without_success``, and the batch has no states.
    """
    anchor_N = anchor_groups(batch, key="state" if states == "state_without_success" else "anchor")
    passed_A = np.zeros(anchor_N.max(initial=-1) + 1, dtype=bool)
    passed_A[anchor_N[batch.success_N]] = True
    credit_N = np.where(passed_A[anchor_N], np.float32(0), shaped.credit_N)
    kept = tuple(replace(match, credit_l=credit_N[match.failed_row_l]) for match in shaped.matches)
    return replace(shaped, credit_N=credit_N, matches=kept)
