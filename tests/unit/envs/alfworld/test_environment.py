"""Episodes keep verl-agent's protocol, panels are what the configuration says, failures name game and step."""

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from scpo.envs import make_environment
from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.envs.alfworld.games.games import generate
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.base import CachingEnvironment, DemonstratingEnvironment, Task
from scpo.errors import EnvironmentFailure, GameError, PanelError
from scpo.schema.env import FAMILIES
from tests.support.alfworld_games import alfworld_config, official_data


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(cache):
    return AlfworldEnvironment(alfworld_config(horizon=20), cache_dir=cache)


def play(episode, commands, form="{} </action>"):
    return [episode.step(form.format(command)) for command in commands]


def test_it_is_made_by_name(cache):
    made = make_environment(alfworld_config(), cache_dir=cache, data=None)
    assert isinstance(made, AlfworldEnvironment)
    assert isinstance(made, DemonstratingEnvironment)
    assert len(made.families) == 6


def test_a_won_episode_pays_once_and_ends(environment):
    task = environment.panel("train").tasks[0]
    episode = environment.start(task, slot=0)
    results = play(episode, environment.source.read(task.id).walkthrough)
    assert [result.reward for result in results] == [0.0] * (len(results) - 1) + [10.0]
    assert [result.won for result in results] == [False] * (len(results) - 1) + [True]
    assert [result.done for result in results] == [result.won for result in results]
    assert episode.done
    assert episode.observation == results[-1].observation
    with pytest.raises(RuntimeError, match=f"over after {len(results)} steps"):
        episode.step("look </action>")


def test_seconds_are_uncached_where_no_cache_holds_the_game_or_the_transition(tmp_path):
    environment = AlfworldEnvironment(alfworld_config(horizon=20), cache_dir=tmp_path)
    assert isinstance(environment, CachingEnvironment)
    task = environment.panel("train").tasks[0]
    seconds = [environment.uncached_s]
    for _ in range(2):
        episode = environment.start(task, slot=0)
        seconds.append(environment.uncached_s)
        play(episode, ["look"])
        seconds.append(environment.uncached_s)
    start, opened, played, again, replayed = seconds
    assert start == 0 < opened < played
    assert played == again == replayed


def test_games_are_translated_in_advance(tmp_path, monkeypatch):
    first, second = (AlfworldEnvironment(alfworld_config(), cache_dir=tmp_path) for _ in range(2))
    tasks = first.panel("train").tasks[:2]
    first.fill_caches(tasks)
    monkeypatch.setattr("scpo.envs.alfworld.planning.translation.translate", None)  # must not be called
    for task in tasks:
        second.start(task, slot=0)


def test_an_episode_ends_at_the_horizon(cache):
    environment = AlfworldEnvironment(alfworld_config(horizon=3), cache_dir=cache)
    episode = environment.start(environment.panel("train").tasks[0], slot=0)
    results = play(episode, ["look"] * 3)
    assert [(result.done, result.won, result.reward) for result in results] == [
        (False, False, 0.0),
        (False, False, 0.0),
        (True, False, 0.0),
    ]


def test_an_inadmissible_command_is_valid_counts_and_changes_nothing(environment):
    episode = environment.start(environment.panel("train").tasks[0], slot=0)
    admissible = episode.transcript.admissible
    result = episode.step("fly </action>")
    assert (result.action, result.valid, result.observation) == ("fly", True, "Nothing happens.")
    assert episode.transcript.admissible == admissible
    assert len(episode.transcript.history) == 1


def test_a_response_without_the_closing_tag_is_invalid_and_executed(environment):
    episode = environment.start(environment.panel("train").tasks[0], slot=0)
    result = episode.step("look")
    assert (result.action, result.valid) == ("look", False)
    assert result.observation.startswith("You are in the middle of a room.")


def test_the_verl_agent_interface(cache):
    environment = AlfworldEnvironment(alfworld_config(prompt="verl_agent"), cache_dir=cache)
    task = environment.panel("train").tasks[0]
    episode = environment.start(task, slot=0)
    assert "Your current observation is: -= Welcome to TextWorld, ALFRED! =-" in episode.prompt()
    thoughtless = episode.step("<action>look</action>")
    assert (thoughtless.action, thoughtless.valid) == ("look", False)
    thought = episode.step("<think>hm</think><action>inventory</action>")
    assert (thought.valid, thought.observation) == (True, "You are not carrying anything.")
    assert "you have already taken 2 step(s)" in episode.prompt()


def test_states_follow_one_another_and_come_only_from_what_was_shown(environment):
    task = environment.panel("train").tasks[1]
    walkthrough = environment.source.read(task.id).walkthrough
    episode = environment.start(task, slot=0)
    shown, states = Transcript(episode.observation, episode.state.admissible), [episode.state_text]
    for command in walkthrough:
        executed = command in episode.state.operators
        result = episode.step(f"{command} </action>")
        shown.record(command, result.observation, episode.state.admissible, executed=executed)
        states.append(result.state)
        assert result.state == episode.state_text == shown.state_text
    assert len(set(states)) == len(walkthrough) + 1


def test_siblings_do_not_see_each_other(environment):
    task = environment.panel("train").tasks[1]
    walkthrough = environment.source.read(task.id).walkthrough
    alone = play(environment.start(task, slot=0), walkthrough)
    siblings = [environment.start(task, slot) for slot in range(3)]
    together = [[sibling.step(f"{command} </action>") for sibling in siblings] for command in walkthrough]
    assert [list(results) for results in zip(*together, strict=True)] == [alone] * 3


def test_panels_are_balanced_sorted_and_repeatable(environment, cache):
    panel = environment.panel("train")
    assert sorted(task.family for task in panel.tasks) == sorted(environment.families)
    assert list(panel.tasks) == sorted(panel.tasks)
    assert AlfworldEnvironment(alfworld_config(), cache_dir=cache).panel("train").sha256 == panel.sha256
    assert all(task.id.startswith("valid_seen/") for task in environment.panel("probe").tasks)


def test_a_subset_of_training_is_one(cache):
    subset = {"split": "train", "games": 2, "seed": 1, "subset_of_training": True}
    environment = AlfworldEnvironment(alfworld_config(validation_panels={"trained": subset}), cache_dir=cache)
    assert set(environment.panel("trained").tasks) < set(environment.panel("train").tasks)


def test_games_that_are_held_out_are_neither_trained_on_nor_demonstrated(cache):
    held = {"split": "train", "games": 6, "seed": 0, "held_out": True}  # the draw that training would have made
    ordinary = AlfworldEnvironment(alfworld_config(), cache_dir=cache)
    environment = AlfworldEnvironment(alfworld_config(validation_panels={"tuning": held}), cache_dir=cache)
    tuning, train = set(environment.panel("tuning").tasks), set(environment.panel("train").tasks)
    assert tuning == set(ordinary.panel("train").tasks)
    assert len(train) == 6
    assert not tuning & train


def test_a_panel_may_be_of_some_families(cache):
    two = {"split": "train", "games": 7, "seed": 0, "families": ["Pick2", "Cool"]}
    trained = {"split": "train", "games": 3, "seed": 0, "subset_of_training": True, "families": ["Cool"]}
    config = alfworld_config(train_panel=two, validation_panels={"trained": trained})
    environment = AlfworldEnvironment(config, cache_dir=cache)
    assert Counter(task.family for task in environment.panel("train").tasks) == {
        FAMILIES["Cool"]: 4,
        FAMILIES["Pick2"]: 3,
    }
    assert {task.family for task in environment.panel("trained").tasks} == {FAMILIES["Cool"]}
    many = {"split": "valid_seen", "games": 100, "seed": 0, "families": ["Pick2"]}
    with pytest.raises(PanelError, match="a panel of 100 tasks was asked for but there are only 23"):
        AlfworldEnvironment(alfworld_config(validation_panels={"many": many}), cache_dir=cache).panel("many")


@pytest.mark.parametrize(("families", "told"), [([], "at least one task family"), (["Pick3"], "'Pick', 'Look'")])
def test_families_that_there_are_not_are_refused(families, told):
    with pytest.raises(ValidationError, match=told) as refused:
        alfworld_config(train_panel={"split": "train", "games": 2, "seed": 0, "families": families})
    assert refused.value.error_count() == 1


def test_a_panel_that_holds_nothing_out_is_none_of_a_runs_identity():
    panel = {"split": "train", "games": 2, "seed": 1}
    made = alfworld_config(validation_panels={"one": panel, "two": panel | {"held_out": True}})
    dumped = made.model_dump(mode="json")["validation_panels"]
    assert ("held_out" in dumped["one"], dumped["two"]["held_out"]) == (False, True)
    assert "families" not in dumped["one"]


def test_unknown_panels_large_panels_and_taken_names_are_refused(environment, cache):
    with pytest.raises(PanelError, match="no panel 'test'; panels of this configuration: train, probe, valid_seen"):
        environment.panel("test")
    large = alfworld_config(validation_panels={"all": {"split": "valid_unseen", "games": 135, "seed": 0}})
    with pytest.raises(PanelError, match=r"'all' \(valid_unseen\).*only 134"):
        AlfworldEnvironment(large, cache_dir=cache).panel("all")
    taken = alfworld_config(validation_panels={"probe": {"split": "valid_seen", "games": 1, "seed": 0}})
    with pytest.raises(PanelError, match="may not be called probe"):
        AlfworldEnvironment(taken, cache_dir=cache)


def test_a_changed_game_is_refused(environment):
    task = environment.panel("train").tasks[0]
    with pytest.raises(GameError, match=f"{task.id} changed"):
        environment.start(Task(task.id, task.family, "0" * 64), slot=0)


def official_folder(folder, game, **changes):
    content = {"pddl_domain": game.domain, "pddl_problem": game.problem, "grammar": game.grammar}
    content |= {"solvable": True, "walkthrough": list(game.walkthrough), **changes}
    file = folder / "json_2.1.1" / "train" / f"{game.family}-x" / "trial" / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content))
    return str(folder)


ONE_OFFICIAL_GAME = {"games": "official", "train_panel": {"split": "train", "games": 1, "seed": 0}}


def test_an_engine_that_breaks_mid_episode_is_an_environment_failure_and_can_be_started_again(tmp_path, cache):
    game = generate("train", 0, 0)
    # Every text of this game is there but the answer to taking something.
    grammar = game.grammar.replace('"PickupObject.feedback"', '"PickupObject.lost"')
    folder = official_folder(tmp_path, game, grammar=grammar)
    environment = AlfworldEnvironment(alfworld_config(**ONE_OFFICIAL_GAME), cache_dir=cache, data=folder)
    task = environment.panel("train").tasks[0]
    take = next(number for number, command in enumerate(game.walkthrough) if command.startswith("take"))
    sibling = environment.start(task, slot=1)
    for _ in range(2):
        episode = environment.start(task, slot=0)
        play(episode, game.walkthrough[:take])
        with pytest.raises(EnvironmentFailure, match=rf"{task.id} failed at step {take} on 'take ") as raised:
            episode.step(f"{game.walkthrough[take]} </action>")
        assert isinstance(raised.value.__cause__, GameError)
    assert sibling.step(f"{game.walkthrough[0]} </action>").observation.startswith("You arrive at")


def test_official_games_are_played(cache):
    environment = AlfworldEnvironment(
        alfworld_config(games="official", horizon=50), cache_dir=cache, data=official_data()
    )
    task = environment.panel("valid_seen").tasks[0]
    results = play(environment.start(task, slot=0), environment.source.read(task.id).walkthrough)
    assert results[-1].won


def test_official_games_that_are_not_there_are_missed_at_once(cache):
    with pytest.raises(GameError, match="ALFWORLD_DATA is not set"):
        AlfworldEnvironment(alfworld_config(games="official"), cache_dir=cache)


def test_a_replay_gives_the_observations_of_the_episode(environment):
    task = environment.panel("train").tasks[0]
    episode = environment.start(task, slot=0)
    first, commands = episode.state_text, ["look", "fly", *environment.source.read(task.id).walkthrough[:4]]
    results = play(episode, commands)
    answers, states = environment.replay(task, commands)
    assert answers == [result.observation for result in results]
    assert states == [first, *(result.state for result in results)]
