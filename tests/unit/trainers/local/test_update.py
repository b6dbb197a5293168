import copy

import numpy as np
import pytest
import torch

from scpo.schema.trainer import LocalTrainer
from scpo.trainers.local.update import UpdateBatch, update
from tests.support.tiny import tiny_policy

PROMPTS = ["take mug 2 >", "go to desk 1 | nothing >", "shelf 3", "take mug 2 >"] * 4


def trainer_config(**changes) -> LocalTrainer:
    values = dict(
        name="local", steps=1, groups=1, group_size=2, temperature=1.0, max_prompt_tokens=64, max_response_tokens=6,
        epochs=1, mini_batch_rows=16, micro_batch_rows=16, rollout_batch=64,
        loss=dict(clip_low=0.2, clip_high=0.2, dual_clip=3.0, kl_coefficient=0.0, entropy_coefficient=0.001),
        optimizer=dict(learning_rate=0.1, warmup_steps=0, weight_decay=0.0, gradient_clip=1.0),
        validation=dict(every=1, temperature=1.0, seed=0),
        checkpoint_every=1, keep_checkpoints=1, probe_every=1, probe_siblings=2, sample_every=1, sample_groups=1,
        precision_every=1, precision_steps=4,
    )  # fmt: skip
    return LocalTrainer(**(values | changes))


def sampled(policy, seed=0):
    generations = policy.generate(PROMPTS, 1.0, np.random.default_rng(seed).random((len(PROMPTS), 6)))
    advantage = np.random.default_rng(seed).normal(size=len(PROMPTS)).astype(np.float32)
    return UpdateBatch(generations, advantage)


def updated_weights(batch, policy, **changes):
    policy = copy.copy(policy)
    policy.model = copy.deepcopy(policy.model)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.5)
    metrics = update(policy, optimizer, batch, trainer_config(**changes), rng=np.random.default_rng(0))
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()]), metrics


def test_micro_batches_add_up_to_the_mini_batch():
    policy = tiny_policy()
    batch = sampled(policy)
    whole, _ = updated_weights(batch, policy, micro_batch_rows=64)
    parts, _ = updated_weights(batch, policy, micro_batch_rows=3)
    torch.testing.assert_close(whole, parts, atol=1e-6, rtol=0)


def test_equal_rows_computed_once_count_as_often_as_they_occur():
    policy = tiny_policy()
    batch = sampled(policy)
    twice = UpdateBatch([*batch.generations, *batch.generations], np.tile(batch.advantage, 2))
    once, _ = updated_weights(batch, policy, mini_batch_rows=64)
    doubled, _ = updated_weights(twice, policy, mini_batch_rows=64)
    torch.testing.assert_close(once, doubled, atol=1e-6, rtol=0)


def test_an_advantage_on_every_token_is_the_rows_own():
    policy = tiny_policy()
    batch = sampled(policy)
    longest = max(len(generation.response_ids) for generation in batch.generations)
    tokens = UpdateBatch(batch.generations, np.repeat(batch.advantage[:, None], longest, axis=1))
    rows, _ = updated_weights(batch, policy, micro_batch_rows=3)
    same, _ = updated_weights(tokens, policy, micro_batch_rows=3)
    torch.testing.assert_close(rows, same, atol=1e-7, rtol=0)


def test_only_tokens_with_an_advantage_move_the_policy():
    policy = tiny_policy()
    batch = sampled(policy)
    longest = max(len(generation.response_ids) for generation in batch.generations)
    nowhere = np.zeros((len(batch.generations), longest), dtype=np.float32)
    loss = dict(clip_low=0.2, clip_high=0.2, dual_clip=3.0, kl_coefficient=0.0, entropy_coefficient=0.0)
    still, metrics = updated_weights(UpdateBatch(batch.generations, nowhere), policy, loss=loss)
    assert metrics["actor/grad_norm"] == 0
    nowhere[0, 0] = 1.0
    moved, metrics = updated_weights(UpdateBatch(batch.generations, nowhere), policy, loss=loss)
    assert metrics["actor/grad_norm"] > 0
    assert not torch.equal(still, moved)


def test_a_mini_batch_without_a_finite_gradient_changes_no_weight_and_the_others_still_do(caplog):
    policy = tiny_policy()
    batch = sampled(policy)
    broken = UpdateBatch(batch.generations, np.where(np.arange(len(batch.advantage)) == 0, np.inf, batch.advantage))
    before = torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])
    whole, metrics = updated_weights(broken, policy)
    assert torch.equal(whole, before)
    assert not np.isfinite(metrics["actor/grad_norm"])
    assert "changes no weight" in caplog.text
    halves, _ = updated_weights(broken, policy, mini_batch_rows=8)
    assert torch.isfinite(halves).all()
    assert not torch.equal(halves, before)


def test_first_update_is_on_policy():
    policy = tiny_policy()
    _, metrics = updated_weights(sampled(policy), policy)
    assert metrics["actor/clip_fraction"] == 0
    assert metrics["actor/kl_old"] == pytest.approx(0, abs=1e-6)
    assert metrics["actor/updates"] == 1


def test_dropout_is_off_even_for_a_model_in_training_mode():
    policy = tiny_policy()
    batch = sampled(policy)
    for layer in policy.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    policy.model.train()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    metrics = update(policy, optimizer, batch, trainer_config(), rng=np.random.default_rng(0))
    assert metrics["actor/kl_old"] == pytest.approx(0, abs=1e-6)


def test_rows_are_cut_into_equal_mini_batches():
    policy = tiny_policy()
    assert updated_weights(sampled(policy), policy, mini_batch_rows=6)[1]["actor/updates"] == 3
    assert updated_weights(sampled(policy), policy, mini_batch_rows=6, epochs=2)[1]["actor/updates"] == 6


def test_a_rewarded_response_gains_on_a_punished_one():
    policy = tiny_policy()
    batch = sampled(policy)
    good, bad = batch.generations[0], batch.generations[1]
    rewarded = UpdateBatch([good, bad], np.array([1.0, -1.0], dtype=np.float32))
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    update(policy, optimizer, rewarded, trainer_config(), rng=np.random.default_rng(0))
    with torch.no_grad():
        statistics, mask = policy.statistics(
            [good.prompt_ids, bad.prompt_ids], [good.response_ids, bad.response_ids], 1.0
        )
    change = (statistics.logprob_NL * mask).sum(1).numpy() - [sum(good.logprobs), sum(bad.logprobs)]
    assert change[0] > change[1]


def test_kl_to_a_reference_is_measured_and_pulls_back():
    policy = tiny_policy()
    reference = copy.copy(policy)
    reference.model = copy.deepcopy(policy.model)
    batch = sampled(policy)
    no_reward = UpdateBatch(batch.generations, np.zeros_like(batch.advantage))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    loss = dict(clip_low=0.2, clip_high=0.2, dual_clip=3.0, kl_coefficient=1.0, entropy_coefficient=0.0)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.05)
    distances = [
        update(
            policy, optimizer, no_reward, trainer_config(loss=loss), rng=np.random.default_rng(0), reference=reference
        )
        for _ in range(5)
    ]
    assert 0 < distances[-1]["actor/kl_reference"] < distances[0]["actor/kl_reference"]


def adam_updated(batch, policy, **changes):
    """Weights before and after an update by AdamW whose first moment already points somewhere, and the metrics."""
    policy = copy.copy(policy)
    policy.model = copy.deepcopy(policy.model)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1, weight_decay=0.01)
    for parameter in policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    before = torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])
    metrics = update(policy, optimizer, batch, trainer_config(**changes), rng=np.random.default_rng(0))
    after = torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])
    return before, after, metrics


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_a_mini_batch_without_an_advantage_makes_no_step_where_the_guard_is_on(rounding):
    policy = tiny_policy()
    generations = sampled(policy).generations
    batch = UpdateBatch(generations, np.full(len(generations), rounding, dtype=np.float32))
    before, after, metrics = adam_updated(batch, policy, skip_updates_without_advantage=True)
    assert torch.equal(before, after), "neither Adam's momentum nor weight decay"
    assert metrics == {"actor/updates": 0, "update/without_advantage": 0, "update/skipped": 1}
    before, after, metrics = adam_updated(batch, policy)
    assert not torch.equal(before, after)
    assert (metrics["actor/updates"], metrics["update/without_advantage"], metrics["update/skipped"]) == (1, 1, 0)


def test_only_the_mini_batches_without_an_advantage_are_left_out():
    policy = tiny_policy()
    batch = sampled(policy)
    advantage = np.zeros(len(batch.generations), dtype=np.float32)
    advantage[3] = 1.0
    batch = UpdateBatch(batch.generations, advantage)
    before, after, metrics = adam_updated(batch, policy, mini_batch_rows=4, skip_updates_without_advantage=True)
    assert (metrics["actor/updates"], metrics["update/without_advantage"], metrics["update/skipped"]) == (1, 0, 3)
    assert not torch.equal(before, after)
    assert metrics["actor/entropy"] > 0
