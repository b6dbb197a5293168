"""The shop against goals, episodes and result lists recorded from the original engine."""

import json
import re

from scpo.envs.webshop.catalogue.goals import goal_order
from tests.support.webshop_data import GENERATED, of_every_recording


@of_every_recording
def test_every_recorded_episode_is_played_step_for_step(recording):
    shop = recording.shop()
    for episode in recording.episodes:
        assert shop.reset(episode["goal_idx"]) == episode["reset_obs"]
        assert shop.available_actions() == episode["reset_avail"]
        for step in episode["steps"]:
            assert shop.step(step["action"]) == (step["obs"], step["reward"], step["done"])
            assert step["avail"] is None or shop.available_actions() == step["avail"]


def test_the_generated_episodes_meet_every_kind_of_page_action_and_reward():
    steps = [step for episode in GENERATED.episodes for step in episode["steps"]]
    assert len(GENERATED.episodes) == 90
    assert len({step["reward"] for step in steps if step["done"]}) > 10
    assert sum(step["done"] for step in steps) > 50
    seen = " ".join(step["action"] for step in steps)
    for action in (
        *("fly", "SEARCH[", "search[<q>", "search[<c>", "click[next >]", "click[< prev]", "click[back to search]"),
        *("click[description]", "click[features]", "click[reviews]", "click[navy | white]"),
    ):
        assert action in seen, action


def assert_same_goal(goal, recorded):
    asin, instruction, price_upper = recorded
    assert (goal.asin, goal.instruction, goal.price_upper) == (asin, instruction, price_upper)


@of_every_recording
def test_the_goals_of_the_episodes_are_the_recorded_ones(recording):
    goals = goal_order(recording.catalogue, 0, False)
    assert len(goals) == recording.goals
    for episode in recording.episodes:
        goal = goals[episode["goal_idx"]]
        assert_same_goal(goal, (episode["asin"], episode["instruction"], episode["price_upper"]))
        assert (list(goal.attributes), dict(goal.options)) == (episode["attributes"], episode["goal_options"])


def test_every_goal_of_the_generated_shop_is_the_originals_in_its_order():
    told = json.loads((GENERATED.folder / "goals.json").read_text(encoding="utf-8"))
    for kind in ("synthetic", "human"):
        goals = goal_order(GENERATED.catalogue, 0, kind == "human")
        for goal, recorded in zip(goals, told[kind], strict=True):
            assert_same_goal(goal, recorded)


@of_every_recording
def test_searches_rank_as_recorded(recording):
    lists = 0
    for episode in recording.episodes:
        for step in episode["steps"]:
            query = re.fullmatch(r"search\[([^<].*)\]", step["action"])
            if query and "Page 1 " in step["obs"]:
                shown = [name for name in step["avail"]["clickables"] if re.fullmatch("b[0-9a-z]{9}", name)]
                found = recording.catalogue.index.search(query[1].lower(), 50)
                assert [asin.lower() for asin in found[:10]] == shown
                assert f"(Total results: {len(found)})" in step["obs"]
                lists += 1
    assert lists > recording.searches


@of_every_recording
def test_the_human_instructions_that_fall_into_the_catalogue_are_goals(recording):
    assert len(goal_order(recording.catalogue, 0, True)) == recording.human_goals
