import warnings

import numpy as np
import pytest
import torch

from tests.support.tiny import tiny_policy

PROMPTS = ["take mug 2 >", "go to desk 1 | nothing >", "shelf 3", "take mug 2 >"]


def uniforms(rows, tokens=6, seed=0):
    return np.random.default_rng(seed).random((rows, tokens))


def test_sampled_logprobs_are_those_of_the_training_pass():
    policy = tiny_policy()
    answers = policy.generate(PROMPTS, 1.0, uniforms(4))
    with torch.no_grad():
        statistics, mask = policy.statistics(
            [answer.prompt_ids for answer in answers], [answer.response_ids for answer in answers], 1.0
        )
    for row, answer in enumerate(answers):
        scored = statistics.logprob_NL[row, : len(answer.logprobs)]
        np.testing.assert_allclose(scored, answer.logprobs, atol=1e-5)
        assert int(mask[row].sum()) == len(answer.response_ids)


def test_a_row_samples_the_same_alone_and_among_others():
    policy = tiny_policy(batch_rows=2)
    numbers = uniforms(4)
    together = policy.generate(PROMPTS, 1.0, numbers)
    alone = [policy.generate([prompt], 1.0, numbers[[row]])[0] for row, prompt in enumerate(PROMPTS)]
    assert [answer.response_ids for answer in together] == [answer.response_ids for answer in alone]


def test_equal_prompts_with_other_numbers_sample_differently():
    answers = tiny_policy().generate(["take mug 2 >"] * 8, 1.0, uniforms(8))
    assert len({answer.response_ids for answer in answers}) > 1


def test_temperature_zero_is_greedy():
    policy = tiny_policy()
    first = policy.generate(PROMPTS, 0.0, uniforms(4, seed=1))
    second = policy.generate(PROMPTS, 0.0, uniforms(4, seed=2))
    assert [answer.response_ids for answer in first] == [answer.response_ids for answer in second]


def test_sampling_follows_the_models_distribution():
    policy = tiny_policy(max_response_tokens=1, batch_rows=4096)
    answers = policy.generate(["take mug 2 >"] * 4096, 1.0, uniforms(4096, 1))
    counts = np.bincount([answer.response_ids[0] for answer in answers], minlength=len(policy.tokenizer))
    with torch.no_grad():
        logits, _, _ = policy.response_logits([answers[0].prompt_ids], [answers[0].response_ids])
    expected = 4096 * logits[0, 0].softmax(-1).numpy()
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_a_response_ends_at_the_end_token_which_its_text_keeps():
    answers = tiny_policy(max_response_tokens=40).generate(PROMPTS * 8, 1.0, uniforms(32, 40))
    ended = [answer for answer in answers if answer.response_ids[-1] == 1]
    assert ended
    assert all(answer.text.endswith("</action>") and answer.response_ids.count(1) == 1 for answer in ended)


def test_a_long_prompt_loses_its_beginning_and_is_marked_as_truncated():
    policy = tiny_policy()
    answer = policy.generate(["desk " * 200 + "mug"], 1.0, uniforms(1))[0]
    assert len(answer.prompt_ids) == 64
    assert answer.truncated
    assert policy.tokenizer.decode(answer.prompt_ids[-1]) == "mug"


@pytest.mark.parametrize("text", ["go to desk 1", "take mug 2 from shelf 3"])
def test_words_survive_encoding_and_decoding(text):
    policy = tiny_policy()
    assert policy.decode(policy.encode([text])[0]) == text


def test_sampling_uses_the_present_name_of_the_models_cache():
    """transformers 5.24 renamed ``past_key_values`` and removes that name in 5.40."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        tiny_policy().generate(PROMPTS, 1.0, uniforms(4))
