"""Demonstrations are what an episode shows and accepts, search before they find, and do not depend on processes."""

import re

import pytest

from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.errors import PanelError
from tests.support.alfworld_games import alfworld_config, official_data, warm_start

WORD = re.compile(r"[a-z]+|\d+|[>|:;]|</?action>")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return AlfworldEnvironment(alfworld_config(horizon=60), cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def made(environment):
    return environment.demonstrations(warm_start(games=12, demonstrations=4), processes=1)


def test_an_episode_shows_the_prompts_accepts_the_responses_and_is_won(environment, made):
    for demonstration in made:
        episode = environment.start(environment.task(demonstration.task_id), slot=0)
        for prompt, response in zip(demonstration.prompts, demonstration.responses, strict=True):
            assert episode.prompt() == prompt
            result = episode.step(response)
            assert result.valid
            assert result.observation != "Nothing happens."
        assert result.won


def test_the_first_demonstration_of_a_game_is_its_walkthrough_and_others_search(environment, made):
    longer = 0
    for number, demonstration in enumerate(made):
        walkthrough = environment.source.read(demonstration.task_id).walkthrough
        if number % 4 == 0:
            assert demonstration.responses == tuple(f"{command} </action>" for command in walkthrough)
        longer += len(demonstration.responses) > len(walkthrough)
    assert longer >= len(made) / 4


def test_games_are_outside_the_training_panel_and_of_all_families(environment, made):
    trained_on = {task.id for task in environment.panel("train").tasks}
    games = list(dict.fromkeys(demonstration.task_id for demonstration in made))
    assert len(games) == 12
    assert not trained_on & set(games)
    assert {game.rsplit("-", 1)[1] for game in games} == set(environment.families)


@pytest.fixture(scope="module")
def others(environment):
    return environment.demonstrations(warm_start(games=3, seed=1), processes=1)


def test_the_number_of_processes_changes_nothing(environment, others):
    assert environment.demonstrations(warm_start(games=3, seed=1), processes=2) == others


def test_another_seed_makes_others(made, others):
    assert others[0] != made[0]


def test_too_few_games_are_said(tmp_path):
    generated = {"seed": 0, "train": 10, "valid_seen": 7, "valid_unseen": 6}
    environment = AlfworldEnvironment(alfworld_config(generated=generated), cache_dir=tmp_path)
    with pytest.raises(PanelError, match="has only 4 outside"):
        environment.demonstrations(warm_start(games=5))


def words(texts):
    return {word for text in texts for word in WORD.findall(text.lower())}


def test_the_vocabulary_holds_every_word_of_prompts_and_responses(environment, made):
    known = words(environment.vocabulary()) | {"<action>", "</action>"}
    assert words(text for d in made for text in (*d.prompts, *d.responses)) <= known
    assert len(known) < 300
    assert {str(number) for number in range(60)} <= known


def test_the_vocabulary_holds_the_words_of_official_games(environment, tmp_path):
    official = AlfworldEnvironment(alfworld_config(games="official"), cache_dir=tmp_path, data=official_data())
    prompts = []
    for task in official.panel("valid_seen").tasks:
        episode = official.start(task, slot=0)
        for command in official.source.read(task.id).walkthrough:
            prompts.append(episode.prompt())
            episode.step(f"{command} </action>")
    assert words(prompts) <= words(environment.vocabulary()) | {"<action>", "</action>"}


def test_compact_prompts_are_short(made):
    lengths = [len(WORD.findall(prompt)) for demonstration in made for prompt in demonstration.prompts]
    assert 65 < sum(lengths) / len(lengths) < 95
    assert max(len(WORD.findall(response)) for d in made for response in d.responses) <= 8
