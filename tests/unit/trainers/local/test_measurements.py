import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scpo.envs.base import StepResult, Task
from scpo.rollout import Slot, Trajectory, step_batch
from scpo.trainers.local.measurements import measure
from tests.support.step_batches import (
    method,
    settings_of,
)
from tests.support.tiny import tiny_policy

PROMPTS = ["take mug 2 >", "go to desk 1 | nothing >", "shelf 3"]
HINDSIGHT = "nothing happens : {final_observation} ; {success}"


def config(estimator):
    return SimpleNamespace(
        method=method(estimator),
        trained=method(estimator),
        env=SimpleNamespace(success_threshold=0.0),
        trainer=SimpleNamespace(micro_batch_rows=2, temperature=1.0),
    )


def trajectory(policy, won, sibling, prompts=PROMPTS):
    uniforms = np.random.default_rng(sibling).random((len(prompts), policy.max_response_tokens))
    last = len(prompts) - 1
    return Trajectory(
        Slot(0, sibling, Task("train/a", "Pick", "0")),
        prompts=list(prompts),
        anchors=list(prompts),
        generations=policy.generate(prompts, 1.0, uniforms),
        results=[
            StepResult("go", True, f"shelf {step}", 10.0 * (won and step == last), step == last, won and step == last)
            for step in range(len(prompts))
        ],
    )


def mean_logprob(policy, prompt_ids, response_ids):
    with torch.no_grad():
        statistics, _ = policy.statistics([prompt_ids], [response_ids], 1.0)
    return float(statistics.logprob_NL.mean())


def test_nothing_is_measured_that_no_estimator_requires():
    policy = tiny_policy()
    assert measure(policy, [trajectory(policy, True, 0)], config(settings_of("grpo"))) == {}


def test_entropy_is_the_mean_over_the_responses_tokens():
    policy = tiny_policy()
    played = [trajectory(policy, True, 0), trajectory(policy, False, 1)]
    entropy_N = measure(policy, played, config(settings_of("empg")))["entropy_N"]
    generations = [generation for one in played for generation in one.generations]
    for row, generation in enumerate(generations):
        with torch.no_grad():
            logits, _, _ = policy.response_logits([generation.prompt_ids], [generation.response_ids])
        expected = torch.distributions.Categorical(logits=logits[0]).entropy().mean()
        assert entropy_N[row] == pytest.approx(float(expected), abs=1e-5)


def test_entropy_of_a_policy_that_knows_nothing_is_the_logarithm_of_its_vocabulary():
    policy = tiny_policy()
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.zero_()
    entropy_N = measure(policy, [trajectory(policy, True, 0)], config(settings_of("empg")))["entropy_N"]
    np.testing.assert_allclose(entropy_N, math.log(len(policy.tokenizer)), rtol=1e-5)


def test_hindsight_scores_successes_with_how_they_ended_before_the_prompt():
    policy = tiny_policy()
    played = [trajectory(policy, False, 0), trajectory(policy, True, 1)]
    logprob_N = measure(policy, played, config(settings_of("hcapo", hindsight_prompt=HINDSIGHT)))["hindsight_logprob_N"]
    assert np.isnan(logprob_N[:3]).all()
    for step in range(3):
        prompt = policy.encode([f"nothing happens : shelf 2 ; yes\n{PROMPTS[step]}"])[0]
        expected = mean_logprob(policy, prompt, played[1].generations[step].response_ids)
        assert logprob_N[3 + step] == pytest.approx(expected, abs=1e-5)
    step_batch(played, success_threshold=0.0, measured={"hindsight_logprob_N": logprob_N})


def test_a_prompt_that_was_cut_keeps_the_hindsight_and_its_own_end():
    policy = tiny_policy()
    long = "desk " * 200 + "mug >"
    played = trajectory(policy, True, 0, prompts=[long])
    logprob_N = measure(policy, [played], config(settings_of("hcapo", hindsight_prompt=HINDSIGHT)))[
        "hindsight_logprob_N"
    ]
    head = policy.encode(["nothing happens : shelf 0 ; yes"])[0]
    cut = [*head, *played.generations[0].prompt_ids]
    assert len(cut) == len(head) + policy.max_prompt_tokens
    assert logprob_N[0] == pytest.approx(mean_logprob(policy, cut, played.generations[0].response_ids), abs=1e-5)


def test_no_success_needs_no_scoring():
    policy = tiny_policy()
    measured = measure(policy, [trajectory(policy, False, 0)], config(settings_of("hcapo", hindsight_prompt=HINDSIGHT)))
    assert np.isnan(measured["hindsight_logprob_N"]).all()
