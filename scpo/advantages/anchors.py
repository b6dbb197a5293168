"""Anchor groups: steps of one rollout group that start from the same state (GiGPO, arXiv 2505.10978, equation 6)."""

from difflib import SequenceMatcher

import numpy as np

from scpo.advantages.estimator import StateKey
from scpo.advantages.groups import group_ids, text_ids
from scpo.errors import StepBatchError
from scpo.steps import IntArray, StepBatch, StrArray


def state_texts(batch: StepBatch, key: StateKey) -> StrArray:
    """The text by which states are compared, of every row.

    Raises:
        StepBatchError: ``state`` is asked for and the environment gave none.
    """
    if key == "anchor":
        return batch.anchor_N
    if batch.state_N is None:
        raise StepBatchError(
            "state_key=state needs state_N, which this batch lacks: its environment gives no states; use "
            "state_key=anchor, or see StatefulEpisode in scpo/envs/base.py"
        )
    return batch.state_N


def anchor_groups(batch: StepBatch, similarity: float | None = None, key: StateKey = "anchor") -> IntArray:
    """Dense id of every row's anchor group.

    Args:
        batch: The steps.
        similarity: None groups equal anchor observations. A ratio in (0, 1] groups observations whose difflib ratio
            with the group's first member reaches it: greedily, in the order of ``position_N``, first fit.
        key: What stands for a row's state, its anchor observation or its state.

    Returns:
        ``anchor_group_N`` in ``0..A-1``.
    """
    text_N = state_texts(batch, key)
    exact_N = group_ids(batch.group_N, text_ids(text_N))
    if similarity is None:
        return exact_N
    order = np.argsort(batch.position_N, kind="stable")
    first_A = order[np.unique(exact_N[order], return_index=True)[1]]  # equal texts join the same group: visit each once
    leader_A = np.arange(len(first_A))
    for group in np.unique(batch.group_N):
        members = np.flatnonzero(batch.group_N[first_A] == group)
        members = members[np.argsort(batch.position_N[first_A[members]], kind="stable")]
        leader_A[members] = members[_leaders([text_N[first_A[a]] for a in members], similarity)]
    return group_ids(leader_A[exact_N])


def _leaders(texts: list[str], similarity: float) -> list[int]:
    """For each text the index of the first leader that it resembles; a text without one leads a group of its own."""
    leaders: list[tuple[int, SequenceMatcher[str]]] = []
    chosen = []
    for index, text in enumerate(texts):
        for leader, matcher in leaders:
            matcher.set_seq1(text)
            if _reaches(matcher, similarity):
                chosen.append(leader)
                break
        else:
            leaders.append((index, SequenceMatcher(None, "", text)))
            chosen.append(index)
    return chosen


def _reaches(matcher: SequenceMatcher[str], similarity: float) -> bool:
    """The two quick ratios are upper bounds of the true one and cost far less."""
    return (
        matcher.real_quick_ratio() >= similarity
        and matcher.quick_ratio() >= similarity
        and matcher.ratio() >= similarity
    )
