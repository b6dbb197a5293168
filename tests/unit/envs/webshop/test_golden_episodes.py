"""The shop against episodes and result lists recorded from the original engine."""

import re

import pytest

from scpo.envs.webshop import WebShop, load_catalogue
from scpo.envs.webshop.catalogue.goals import goal_order
from tests.support.webshop_data import RECORDED, golden, needs_recorded

pytestmark = needs_recorded


@pytest.fixture(scope="module")
def shop():
    return WebShop(load_catalogue(RECORDED), 0, "all_tokens")


def test_every_recorded_episode_is_played_step_for_step(shop):
    for episode in golden():
        assert shop.reset(episode["goal_idx"]) == episode["reset_obs"]
        assert shop.available_actions() == episode["reset_avail"]
        for step in episode["steps"]:
            assert shop.step(step["action"]) == (step["obs"], step["reward"], step["done"])
            assert step["avail"] is None or shop.available_actions() == step["avail"]


def test_the_goals_are_the_recorded_ones(shop):
    assert len(shop.goals) == 6910
    for episode in golden():
        goal = shop.goals[episode["goal_idx"]]
        assert (goal.asin, goal.instruction, goal.price_upper) == (
            episode["asin"], episode["instruction"], episode["price_upper"],
        )  # fmt: skip
        assert (list(goal.attributes), dict(goal.options)) == (episode["attributes"], episode["goal_options"])


def test_searches_rank_as_recorded(shop):
    lists = 0
    for episode in golden():
        for step in episode["steps"]:
            query = re.fullmatch(r"search\[(.+)\]", step["action"])
            if query and "Page 1 " in step["obs"]:
                shown = [name for name in step["avail"]["clickables"] if re.fullmatch("b[0-9a-z]{9}", name)]
                found = shop.catalogue.index.search(query[1].lower(), 50)
                assert [asin.lower() for asin in found[:10]] == shown
                assert f"(Total results: {len(found)})" in step["obs"]
                lists += 1
    assert lists > 100


def test_the_human_instructions_that_fall_into_the_catalogue_are_goals(shop):
    assert len(goal_order(shop.catalogue, 0, True)) == 13
