import re

import pytest
from pydantic import ValidationError

from scpo.envs.rewording import Rewording, rewording_of
from scpo.schema.env import WordingsConfig

ALL = ("paraphrase", "order", "suffix", "pronouns", "aliases")


def config(**changes):
    values = {"dose": 1.0, "count": 8, "first": 0, "arms": ALL, "told_to": "credit", "seed": 0}
    return WordingsConfig(**(values | changes))


def drawn(*place, step=0, **changes):
    draw = Rewording(config(**changes), *place).draw(step)
    return draw and [draw.form("abcdefghi") for _ in range(8)]


def test_draws_are_a_function_of_seed_task_sibling_and_step():
    assert drawn("game", 0, step=3) == drawn("game", 0, step=3)
    others = [drawn("game", 1, step=3), drawn("other", 0, step=3), drawn("game", 0, step=4)]
    assert all(drawn("game", 0, step=3) != other for other in [*others, drawn("game", 0, step=3, seed=1)])


@pytest.mark.parametrize("dose", [0.25, 0.5, 1.0])
def test_the_dose_is_the_share_of_observations_that_are_reworded(dose):
    draws = [Rewording(config(dose=dose), "game", sibling).draw(step) for sibling in range(40) for step in range(40)]
    assert sum(draw is not None for draw in draws) / len(draws) == pytest.approx(dose, abs=0.04)


def test_a_larger_dose_rewords_what_a_smaller_one_does_and_more():
    reworded = {
        dose: {s for s in range(200) if Rewording(config(dose=dose), "game", 0).draw(s)} for dose in (0.25, 0.5)
    }
    assert reworded[0.25] < reworded[0.5]


def test_without_a_dose_there_is_no_rewording():
    assert rewording_of(config(dose=0.0), "game", 0) is None


def test_only_the_paraphrases_in_use_are_drawn():
    forms = {form for sibling in range(50) for form in drawn("game", sibling, first=4, count=2)}
    assert forms == {"f", "g"}


def test_arms_that_are_off_change_nothing():
    draw = Rewording(config(arms=("suffix",)), "game", 0).draw(0)
    assert draw.form("abc") == "a"
    assert draw.ordered("xyz") == ["x", "y", "z"]
    assert draw.alias(("mug", "beaker")) == "mug"
    assert draw.with_pronouns("the mug 1 and the mug 1", re.compile(r"the (\w+ \d+)")) == "the mug 1 and the mug 1"
    assert draw.with_suffix("Text.").startswith("Text. ")


def test_a_name_that_was_named_last_becomes_it():
    name = re.compile(r"the ([a-z]+ \d+)")
    draw = Rewording(config(arms=("pronouns",)), "game", 0).draw(0)
    assert draw.with_pronouns("at the box 1. the box 1 is shut.", name) == "At the box 1. it is shut."
    assert draw.with_pronouns("at the box 1. the mug 1 by the box 1", name) == "At the box 1. the mug 1 by the box 1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ()}, "wordings.arms is empty; name at least one of paraphrase"),
        ({"first": 5, "count": 4}, "their sum is at most 8"),
        ({"arms": ("order", "order")}, "names an arm twice"),
        ({"dose": 1.5}, "less than or equal to 1"),
    ],
)
def test_settings_that_reword_nothing_or_too_much_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        config(**changes)
