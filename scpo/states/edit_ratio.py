"""Identity by difflib's ratio of two texts and a threshold (the option of GiGPO's code)."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from scpo.states.identity import Comparison, Identity, Visits, leader_labels
from scpo.steps import IntArray


def edit_ratio(visits: Visits, comparison: Comparison) -> IntArray:
    """Leader clusters by the ratio ``2 M / T``, with M matching characters of T in both texts.

    verl-agent's ``build_step_group`` forms the same groups with ``enable_similarity``. Quadratic in
    the distinct texts of a group and slow (10.8 s for 2,514 reworded rows, docs/meaning.md).

    Raises:
        ConfigError: The threshold is None.
    """
    threshold = comparison.needed_threshold()
    return leader_labels(visits, lambda texts: _leaders(texts, threshold))


def _leaders(texts: Sequence[str], threshold: float) -> list[int]:
    """Index of each text's leader: the first earlier one that it is similar to, or itself.

    A matcher is kept for each leader, with the leader's text as its second sequence, which difflib
    indexes once for many first sequences.
    """
    leaders: list[tuple[int, SequenceMatcher[str]]] = []
    chosen = []
    for index, text in enumerate(texts):
        for leader, matcher in leaders:
            matcher.set_seq1(text)
            if _reaches(matcher, threshold):
                chosen.append(leader)
                break
        else:
            leaders.append((index, SequenceMatcher(None, "", text)))
            chosen.append(index)
    return chosen


def _reaches(matcher: SequenceMatcher[str], threshold: float) -> bool:
    """True if the ratio is at least the threshold; its cheap upper bounds are compared first."""
    return (
        matcher.real_quick_ratio() >= threshold
        and matcher.quick_ratio() >= threshold
        and matcher.ratio() >= threshold
    )


# verl-agent's default of `anchor_similarity`.
DIFFLIB = Identity("difflib", "difflib ratio", edit_ratio, threshold=0.95)
