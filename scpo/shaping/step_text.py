"""Step texts, and the filter of degenerate steps (paper, appendix A.5)."""

from typing import Literal

import numpy as np

from scpo.errors import StepBatchError
from scpo.steps import BoolArray, StepBatch, StrArray
from scpo.strict import Strict

SEPARATOR = " || "

StepText = Literal["action_next_observation", "observation_action", "action", "action_next_state"]


class StepFilter(Strict):
    """No-op observations: steps that lead to one earn no credit and match nothing.

    A rejected action has the same text wherever it occurs, so without the filter the rejected
    actions of failures would match those of a reference (appendix A.5).

    Attributes:
        no_op_observations: Whole observations that mean "nothing happened", such as ALFWorld's
            "Nothing happens." (ledger 15).
        no_op_if_unchanged: An observation equal to the one before the action is a no-op, too;
            WebShop has no sentence for it (ledger 53).
    """

    no_op_observations: tuple[str, ...]
    no_op_if_unchanged: bool


def step_texts(batch: StepBatch, form: StepText) -> StrArray:
    """Text of each row.

    - ``action_next_observation``: action ∥ resulting observation (appendix A.5; default).
    - ``observation_action``: state observation ∥ action (section 3.2, which differs from appendix
      A.5; ledger 5).
    - ``action``: only the action.
    - ``action_next_state``: action ∥ text of the resulting state (ours).

    The paper does not print the separator ∥; ours is " || " (ledger 52).

    Args:
        batch: The steps.
        form: The setting of the shaper.

    Returns:
        ``text_N``, also for rows that the step filter drops.

    Raises:
        StepBatchError: ``action_next_state`` is asked for, and the batch has no states.
    """
    if form == "action":
        return batch.action_N
    if form == "action_next_state":
        if batch.next_state_N is None:
            raise StepBatchError(
                "step_text=action_next_state needs next_state_N, which this batch lacks: its "
                "environment gives no states; use step_text=action_next_observation"
            )
        first_N, second_N = batch.action_N, batch.next_state_N
    elif form == "observation_action":
        first_N, second_N = batch.anchor_N, batch.action_N
    else:
        first_N, second_N = batch.action_N, batch.next_observation_N
    text_N: StrArray = first_N + SEPARATOR + second_N
    return text_N


def surviving(batch: StepBatch, step_filter: StepFilter) -> BoolArray:
    """Rows that pass the filter: valid actions whose observation is neither empty nor a no-op.

    Surrounding white space is ignored. With ``no_op_if_unchanged`` an observation equal to the one
    before the action is a no-op, too (WebShop: the page did not change). An environment that
    rewords its answers reports no-ops itself (``no_op_N``). The filter reads the resulting
    observation for any ``step_text``.

    Args:
        batch: The steps.
        step_filter: The benchmark's no-ops.

    Returns:
        ``surviving_N``.
    """
    # Steps with an invalid action are filtered out, so they match nothing (ledger 51).
    observation_N = _stripped(batch.next_observation_N)
    if batch.no_op_N is not None:
        return np.asarray(batch.valid_N & ~batch.no_op_N & (observation_N != ""), dtype=bool)
    no_op_N = np.isin(observation_N, ["", *_no_ops(step_filter)])
    if step_filter.no_op_if_unchanged:
        no_op_N |= observation_N == _stripped(batch.anchor_N)
    return batch.valid_N & ~no_op_N


def after_no_op(batch: StepBatch, step_filter: StepFilter) -> BoolArray:
    """Rows whose anchor state is a no-op observation, which different states share.

    With the raw observation as anchor, GiGPO compares such rows although the agent may be in
    different places (ledger 13). Only the share of such rows is logged.
    """
    # Reworded texts cannot be compared with the configured sentences, so the environment reports
    # no-ops itself. A no-op that leaves the observation unchanged hides no state.
    if batch.no_op_N is not None and not step_filter.no_op_if_unchanged:
        before_N = batch.timeline.neighbours(-1)
        reported_N: BoolArray = (before_N >= 0) & batch.no_op_N[before_N]
        return reported_N
    no_op_N: BoolArray = np.isin(_stripped(batch.anchor_N), _no_ops(step_filter))
    return no_op_N


def _no_ops(step_filter: StepFilter) -> list[str]:
    return [text.strip() for text in step_filter.no_op_observations]


def _stripped(text_N: StrArray) -> StrArray:
    # Filled afterwards, because np.array would make a fixed-width string array of the texts.
    stripped_N = np.empty(len(text_N), dtype=object)
    stripped_N[:] = [text.strip() for text in text_N]
    return stripped_N
