import re

import pytest

import tests.support.webshop_data  # noqa: F401 - skips without the extra
from scpo.envs import make_environment
from scpo.errors import PanelError
from scpo.policies.warm_start import WORD
from sweeps.compose.configuration import compose_run


@pytest.fixture(scope="module")
def environment():
    return make_environment(compose_run(["env=webshop", "env.nouns=stop_list"]).env, cache_dir=None)


def warm_start(**changes):
    return compose_run(["env=webshop"]).model.warm_start.model_copy(update={"games": 20, **changes})


def test_demonstrations_win_when_they_are_replayed(environment):
    tasks = {
        task_id: environment.panels.task(task_id)
        for ids in environment.panels.candidates("train").values()
        for task_id in ids
    }
    endless = environment.config.model_copy(update={"horizon": 1000})
    for demonstration in environment.demonstrations(warm_start()):
        episode = environment.start(tasks[demonstration.task_id], 0, endless)
        for prompt, response in zip(demonstration.prompts, demonstration.responses, strict=True):
            assert episode.prompt() == prompt
            result = episode.step(response)
            assert result.valid
        assert result.won


def test_demonstrations_are_the_same_for_the_same_seed_and_avoid_the_training_panel(environment):
    shown = environment.demonstrations(warm_start())
    assert shown == environment.demonstrations(warm_start())
    assert shown != environment.demonstrations(warm_start(seed=1))
    assert not {one.task_id for one in shown} & {task.id for task in environment.panel("train").tasks}
    assert not {one.task_id for one in shown} & {task.id for task in environment.panel("test").tasks}


def test_detours_and_vague_searches_make_demonstrations_longer(environment):
    direct = environment.demonstrations(warm_start(demonstrations_per_game=1))
    wandering = environment.demonstrations(warm_start(demonstrations_per_game=5))
    assert sum(len(one.prompts) for one in wandering) / 5 > sum(len(one.prompts) for one in direct)


def test_the_vocabulary_has_every_word_and_texts_fit_the_mini_scale(environment):
    known = {word for text in environment.vocabulary() for word in re.findall(WORD, text.lower())}
    trainer = compose_run(["env=webshop"]).trainer
    for demonstration in environment.demonstrations(warm_start(games=100)):
        for prompt, response in zip(demonstration.prompts, demonstration.responses, strict=True):
            read, said = re.findall(WORD, prompt), re.findall(WORD, response)
            assert {*read, *said} - {"<action>", "</action>"} <= known
            assert len(read) <= trainer.max_prompt_tokens
            assert len(said) <= trainer.max_response_tokens


def test_too_few_goals_for_a_warm_start_are_a_clear_error(environment):
    with pytest.raises(PanelError, match="the training split has only"):
        environment.demonstrations(warm_start(games=10**6))


@pytest.fixture(scope="module")
def choosing():
    return make_environment(compose_run(["scale=study", "env=webshop", "env.nouns=stop_list"]).env, cache_dir=None)


def imitation(**changes):
    return compose_run(["scale=study", "env=webshop"]).model.imitation.model_copy(update={"games": 20, **changes})


def test_demonstrations_for_a_choosing_policy_do_what_is_listed_and_win(choosing):
    shown = choosing.demonstrations(imitation())
    assert len(shown) == 40
    assert shown == choosing.demonstrations(imitation())
    endless = choosing.config.model_copy(update={"horizon": 1000})
    for demonstration in shown:
        episode = choosing.start(choosing.panels.task(demonstration.task_id), 0, endless)
        for prompt, response in zip(demonstration.prompts, demonstration.responses, strict=True):
            assert episode.prompt() == prompt
            assert f"> {response.removesuffix(' </action>')}" in prompt.split("\n")
            result = episode.step(response)
            assert result.valid
        assert result.won


def test_goals_that_no_listed_search_finds_are_left_out_and_none_left_is_an_error(monkeypatch, caplog):
    from scpo.envs.webshop import demonstrations

    words = ["scale=study", "env=webshop", "env.nouns=stop_list", "env.generated.products=1000"]
    choosing = make_environment(compose_run(words).env, cache_dir=None)
    monkeypatch.setattr(demonstrations, "PAGE_SIZE", 1)  # what is not found at the first place is not found
    shown = choosing.demonstrations(imitation())
    assert 0 < len(shown) < 40
    assert "demonstrations are left out" in caplog.text
    monkeypatch.setattr(demonstrations, "PAGE_SIZE", 0)
    with pytest.raises(PanelError, match="none of the 20 goals drawn for the imitation start is fulfilled"):
        choosing.demonstrations(imitation())
