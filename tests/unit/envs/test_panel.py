"""Panels are fixed: balanced, sorted, drawn by the seed alone, and recognised by their hash."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.envs.panel import draw
from scpo.errors import PanelError

CANDIDATES = {"a": [f"a{i}" for i in range(5)], "b": [f"b{i}" for i in range(5)], "c": ["c0"]}


def everything(_):
    return True


def test_families_take_turns_until_they_run_out():
    drawn = draw(CANDIDATES, 7, 0, everything)
    assert Counter(name[0] for name in drawn) == {"a": 3, "b": 3, "c": 1}
    assert drawn == sorted(drawn)


def test_no_count_takes_all():
    assert draw(CANDIDATES, None, 3, everything) == sorted(name for names in CANDIDATES.values() for name in names)


def test_the_seed_decides_and_nothing_else():
    assert draw(CANDIDATES, 4, 0, everything) == draw({k: v[::-1] for k, v in CANDIDATES.items()}, 4, 0, everything)
    assert len({tuple(draw(CANDIDATES, 4, seed, everything)) for seed in range(20)}) > 1


def test_unusable_tasks_are_passed_over_and_unneeded_ones_not_even_asked():
    asked = []

    def usable(name):
        asked.append(name)
        return name[0] != "a"

    drawn = draw(CANDIDATES, 3, 0, usable)
    assert all(name[0] != "a" for name in drawn)
    assert len(asked) < 11


@given(count=st.integers(1, 11), seed=st.integers(0, 5))
def test_a_larger_panel_of_the_same_seed_holds_the_smaller(count, seed):
    assert set(draw(CANDIDATES, count - 1 or 1, seed, everything)) <= set(draw(CANDIDATES, count, seed, everything))


def test_asking_for_too_many_tasks_is_an_error_with_their_number():
    with pytest.raises(PanelError, match="panel of 12 tasks was asked for but there are only 11"):
        draw(CANDIDATES, 12, 0, everything)
