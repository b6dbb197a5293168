import itertools
import random

import pytest

from scpo.envs.webshop.catalogue.goals import goal_order
from scpo.errors import CatalogueError
from tests.support.webshop_data import options, record, small_catalogue


def test_prices_bounds_and_shuffle_are_drawn_in_the_originals_order():
    catalogue = small_catalogue()
    rng = random.Random(7)
    drawn = rng.uniform(8.0, 30.0)
    bound = sorted(rng.sample([30.0, 40.0, 50.0, 60.0], 2))[1]
    order = [0, 1, 2]
    random.Random(7).shuffle(order)
    goals = goal_order(catalogue, 7, False)
    assert [goals.price(product) for product in catalogue.products] == [25.0, drawn, 985.0]
    wish, limit = (
        "Find me men's sandals with rubber sole with color: red, and size",
        f"and price lower than {bound:.2f}",
    )
    expected = [
        f"{wish}: small, {limit} dollars",
        f"{wish}: large, {limit} dollars",
        "Find me toasters",  # one bound above 985 is left: no price in the instruction
    ]
    assert [goal.instruction for goal in goals] == [expected[place] for place in order]


def test_every_combination_of_options_is_one_goal_with_names_sorted():
    values = {"size": ["s", "m"], "color": ["red", "blue", "tan"], "fit": ["tall"]}
    mined = {"B1": {"attributes": ["x"], "instruction": "Find", "instruction_attributes": ["x"]}}
    goals = goal_order(small_catalogue([record("B1", customization_options=options(**values))], mined), 0, False)
    expected = {tuple(c) for c in itertools.product(values["color"], values["fit"], values["size"])}
    assert {tuple(goal.options.values()) for goal in goals} == expected
    assert {tuple(goal.options) for goal in goals} == {("color", "fit", "size")}
    assert len(goals) == 6


def test_an_option_without_values_makes_no_goal():
    mined = {"B1": {"attributes": ["x"], "instruction": "Find", "instruction_attributes": ["x"]}}
    assert len(goal_order(small_catalogue([record("B1", customization_options={"Size": []})], mined), 0, False)) == 0


def test_human_goals_skip_annotations_without_attributes():
    (goal,) = goal_order(small_catalogue(), 0, True)
    assert goal.instruction.startswith("i want blue shoes, and price lower than ")
    assert (goal.attributes, goal.options) == (("canvas",), ("blue",))


def test_goals_are_shared_by_the_environments_of_a_seed():
    catalogue = small_catalogue()
    assert goal_order(catalogue, 1, False) is goal_order(catalogue, 1, False)


def test_an_unknown_goal_is_a_clear_error():
    with pytest.raises(CatalogueError, match="goal 3 is out of range: shoes has 3 synthetic goals, 0 to 2"):
        goal_order(small_catalogue(), 0, False)[3]
