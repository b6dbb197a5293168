import numpy as np
import pytest
import torch

from scpo.policies.choice import policy as policy_module
from tests.support.choices import COMMANDS, PROMPTS, choice_policy, prompt


def uniforms(rows, seed=0):
    return np.random.default_rng(seed).random((rows, 1))


def test_a_response_is_the_number_of_a_listed_command_and_its_text():
    policy = choice_policy()
    for text, answer in zip(PROMPTS, policy.generate(PROMPTS, 1.0, uniforms(4)), strict=True):
        (number,) = answer.response_ids
        listed = [line[2:] for line in text.split("\n") if line.startswith("> ")]
        assert answer.text == f"{listed[number]} </action>"
        assert answer.tokens == len(text) + 1  # a row is as long as its prompt: what balanced order goes by


def test_sampled_logprobs_are_those_of_the_training_pass():
    policy = choice_policy()
    answers = policy.generate(PROMPTS, 0.7, uniforms(4))
    with torch.no_grad():
        statistics, mask = policy.statistics(
            [answer.prompt_ids for answer in answers], [answer.response_ids for answer in answers], 0.7
        )
    np.testing.assert_allclose(statistics.logprob_NL[:, 0], [answer.logprobs[0] for answer in answers], atol=1e-6)
    assert mask.shape == (4, 1)


def test_probabilities_of_the_listed_commands_add_up_to_one():
    policy = choice_policy()
    with torch.no_grad():
        logprobs = [float(policy.statistics([PROMPTS[1].encode()], [(a,)], 1.0)[0].logprob_NL) for a in range(4)]
    assert sum(np.exp(logprobs)) == pytest.approx(1)


def test_a_prompt_with_fewer_commands_than_its_neighbours_never_gets_another_s():
    policy = choice_policy()
    answers = policy.generate([PROMPTS[2], PROMPTS[0]] * 200, 5.0, uniforms(400))
    assert {answer.response_ids for answer in answers[::2]} == {(0,), (1,)}


def test_sampling_follows_the_distribution():
    policy = choice_policy()
    answers = policy.generate([PROMPTS[0]] * 4000, 1.0, uniforms(4000))
    counts = np.bincount([answer.response_ids[0] for answer in answers], minlength=len(COMMANDS))
    with torch.no_grad():
        ids = [PROMPTS[0].encode()] * 4
        statistics, _ = policy.statistics(ids, [(a,) for a in range(4)], 1.0)
    expected = 4000 * statistics.logprob_NL[:, 0].exp().numpy()
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_temperature_zero_is_greedy_and_a_uniform_number_of_almost_one_still_chooses():
    policy = choice_policy()
    greedy = policy.generate(PROMPTS, 0.0, uniforms(4, 1))
    assert [one.response_ids for one in greedy] == [
        one.response_ids for one in policy.generate(PROMPTS, 0.0, uniforms(4, 2))
    ]
    last = policy.generate(PROMPTS, 1.0, np.full((4, 1), 1 - 2**-53))
    assert [one.response_ids for one in last] == [(3,), (3,), (1,), (3,)]


def test_entropy_of_a_net_that_knows_nothing_is_the_logarithm_of_the_number_of_commands():
    policy = choice_policy()
    with torch.no_grad():
        policy.model.out.weight.zero_()
        statistics, _ = policy.statistics([PROMPTS[0].encode(), PROMPTS[2].encode()], [(0,), (0,)], 1.0)
    np.testing.assert_allclose(statistics.entropy_NL[:, 0], np.log([4, 2]), rtol=1e-6)


def test_the_gradient_is_finite_and_reaches_only_features_of_the_prompts():
    policy = choice_policy()
    statistics, _ = policy.statistics([text.encode() for text in PROMPTS], [(0,)] * 4, 1.0)
    (statistics.logprob_NL.sum() + statistics.entropy_NL.sum()).backward()
    gradient = policy.model.table.grad
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0
    assert (gradient[0] == 0).all()  # the row that stands for no feature


def test_answers_do_not_depend_on_what_was_read_before():
    fresh, used = choice_policy(), choice_policy()
    used.generate([prompt(task=f"put a mug in {chr(97 + n)}.") for n in range(25)], 1.0, uniforms(25))
    numbers = uniforms(4)
    assert fresh.generate(PROMPTS, 1.0, numbers) == used.generate(PROMPTS, 1.0, numbers)


def test_memory_is_bounded_without_a_change_of_answers(monkeypatch):
    numbers = uniforms(4)
    expected = choice_policy().generate(PROMPTS, 1.0, numbers)
    monkeypatch.setattr(policy_module, "_MOST_PROMPTS", 1)
    policy = choice_policy()
    assert policy.generate(PROMPTS, 1.0, numbers) == expected
    assert policy.generate(PROMPTS, 1.0, numbers) == expected


def test_values_start_at_zero_and_depend_only_on_the_prompt():
    policy = choice_policy()
    critic = policy.value_model()
    ids = [text.encode() for text in PROMPTS]
    value, mask = critic(ids, [(0,), (1,), (0,), (3,)])
    assert value.shape == mask.shape == (4, 1)
    assert (value == 0).all()
    with torch.no_grad():
        critic.net.out.weight.normal_()
    value, _ = critic(ids, [(0,)] * 4)
    assert value[0] == value[3] != value[1]
