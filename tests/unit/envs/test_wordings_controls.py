"""The controls of the study of meaning, on real games: what is told to credit changes credit's texts alone."""

import numpy as np
import pytest

from bench.scripted_rollouts import scripted_batch
from scpo.advantages.outcomes import step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.credit.assign import assign
from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.shaping.step_text import StepFilter, after_no_op, surviving
from tests.support.alfworld_games import alfworld_config
from tests.support.step_batches import EqualityScorer, method, settings_of, shaper_config

DOSES = (0.0, 0.5, 1.0)
COMPARING = [name for name, entry in ESTIMATORS.items() if "states" in entry.settings.model_fields]
NO_OPS = StepFilter(no_op_observations=("Nothing happens.",), no_op_if_unchanged=False)


def told(cache, dose, **changes):
    wordings = {"dose": dose, "count": 8, "first": 0, "arms": ["paraphrase", "order"], "told_to": "credit", "seed": 0}
    config = alfworld_config(horizon=20, wordings={**wordings, **changes.pop("wordings", {})}, **changes)
    return AlfworldEnvironment(config, cache_dir=cache)


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return {dose: scripted_batch(told(cache, dose), "train", groups=3, siblings=8, seed=0) for dose in DOSES}


def advantages(name, batch, **changes):
    settings = settings_of(name, **changes)
    zero_N = np.zeros(len(batch), np.float32)
    return ESTIMATORS[name].function(batch, step_returns(batch, settings.gamma), zero_N, settings)


def test_the_scripted_rollouts_win_and_fail(batches):
    batch = batches[0.0]
    assert 0.2 < batch.success_N[batch.step_N == 0].mean() < 0.8


@pytest.mark.parametrize("dose", DOSES[1:])
def test_grpo_has_the_same_bytes_at_every_dose(batches, dose):
    assert advantages("grpo", batches[dose]).tobytes() == advantages("grpo", batches[0.0]).tobytes()


@pytest.mark.parametrize("dose", DOSES[1:])
@pytest.mark.parametrize("name", COMPARING)
def test_the_oracle_at_any_dose_equals_equal_texts_without_rewording(batches, name, dose):
    without = advantages(name, batches[0.0])
    assert np.array_equal(advantages(name, batches[dose], states="oracle"), without)


@pytest.mark.parametrize("name", ["crbc", "graphgpo"])
def test_equal_texts_lose_states_that_facts_keep(batches, name):
    config = method(settings_of(name), name=name)
    exact = assign(batches[1.0], None, config)[1].metrics
    by_facts = assign(batches[1.0], None, method(settings_of(name, states="facts"), name=name))[1].metrics
    assert exact["states/recall"] < 0.5
    assert by_facts["states/recall"] > 0.9
    assert exact["states/cosine"] < by_facts["states/cosine"]


def test_scpo_by_the_oracle_credits_what_it_credits_without_rewording(batches):
    shaper = {"matcher": "forward", "order": "chronological", "step_filter": NO_OPS}
    plain = method(settings_of("gigpo"), shaper_config(step_text="action_next_state", **shaper))
    by_oracle = method(settings_of("gigpo", states="oracle"), shaper_config(states="oracle", **shaper))
    credit_N = assign(batches[0.0], EqualityScorer(), plain)[1].shaped.credit_N
    assert credit_N.any()
    assert np.array_equal(credit_N, assign(batches[1.0], EqualityScorer(), by_oracle)[1].shaped.credit_N)


def test_no_ops_are_known_in_every_wording(batches):
    plain, reworded = batches[0.0], batches[1.0]
    assert np.array_equal(surviving(reworded, NO_OPS), surviving(plain, NO_OPS))
    assert np.array_equal(after_no_op(reworded, NO_OPS), after_no_op(plain, NO_OPS))


def test_rewording_for_credit_only_leaves_prompts_as_they_are(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    commands = ["look", "inventory", "look", "look"]

    def prompts(dose, told_to):
        environment = told(cache, dose, wordings={"told_to": told_to}, prompt="verl_agent")
        episode = environment.start(environment.panel("train").tasks[0], 0)
        texts = [episode.prompt()]
        for command in commands:
            episode.step(f"<think>so</think><action>{command}</action>")
            texts.append(episode.prompt())
        return texts, episode

    plain, _ = prompts(0.0, "credit")
    to_credit, _ = prompts(1.0, "credit")
    to_policy, episode = prompts(1.0, "policy")
    assert to_credit == plain
    assert all(told != own for told, own in zip(to_policy, plain, strict=True))
    assert episode.observation in to_policy[-1]
    assert episode.rewording.told[-2] in to_policy[-1]  # the history is told in the same words


def test_an_episode_that_starts_again_is_reworded_the_same(tmp_path_factory):
    environment = told(tmp_path_factory.mktemp("cache"), 1.0)
    task = environment.panel("train").tasks[0]
    first, again, sibling = (environment.start(task, slot) for slot in (0, 0, 1))
    assert first.observation == again.observation
    assert first.state_text == again.state_text
    assert first.step("look </action>").observation == again.step("look </action>").observation
    assert first.given_state.true_state == sibling.step("look </action>").given.true_state
