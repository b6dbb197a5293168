import numpy as np
import pytest
import torch

from scpo.advantages.gae import CriticSettings, gae
from scpo.policies.batches import micro_batches, response_mask, token_pairs
from scpo.policies.critic import Targets, make_critic, update_critic, value_loss, values
from tests.support.step_batches import (
    settings_of,
)
from tests.support.tiny import tiny_policy
from tests.unit.trainers.local.test_update import PROMPTS, trainer_config


def played():
    policy = tiny_policy()
    generations = policy.generate(PROMPTS, 1.0, np.random.default_rng(0).random((len(PROMPTS), 6)))
    return policy, generations


def critic_of(policy, learning_rate=0.01):
    return make_critic(policy, CriticSettings(learning_rate=learning_rate, value_clip=0.5), weight_decay=0.0)


@pytest.mark.parametrize(
    ("value", "old", "target", "expected"),
    [
        (1.0, 1.0, 3.0, 2.0),  # 0.5 * 2²
        (2.0, 1.0, 3.0, 1.125),  # clipped to 1.5, which is further off: 0.5 * 1.5²
        (0.0, 1.0, 3.0, 4.5),  # clipped to 0.5, but the value itself is further off
        (3.0, 1.0, 3.0, 1.125),  # a hit beyond the clip still costs what the clipped value costs
    ],
)
def test_value_loss_by_hand(value, old, target, expected):
    tensors = [torch.tensor([[number, 7.0]]) for number in (value, old, target)]
    mask = torch.tensor([[1.0, 0.0]])
    assert float(value_loss(*tensors, mask, 0.5)) == pytest.approx(expected)


def test_first_values_are_zero_and_later_ones_depend_on_the_tokens_before():
    policy, generations = played()
    critic = critic_of(policy)
    assert (values(critic, generations, 4) == 0).all()
    with torch.no_grad():
        critic.model.head.weight.normal_()
    value_NL = values(critic, generations, 4)
    assert (value_NL[~response_mask(generations)] == 0).all()
    # Before the first token nothing is known but the prompt.
    assert value_NL[0, 0] == pytest.approx(value_NL[3, 0], abs=1e-6)
    assert value_NL[0, 0] != pytest.approx(value_NL[1, 0], abs=1e-6)
    np.testing.assert_allclose(values(critic, generations[:1], 4)[0], value_NL[0, : len(generations[0].response_ids)],
                               atol=1e-5)  # fmt: skip


def test_the_critic_learns_its_targets_and_does_not_change_the_policy():
    policy, generations = played()
    before = [parameter.clone() for parameter in policy.model.parameters()]
    critic, mask_NL = critic_of(policy), response_mask(generations)
    losses = []
    for step in range(30):
        value_NL = values(critic, generations, 16)
        targets = Targets(value_NL, np.where(mask_NL, np.float32(2.0), np.float32(0)))
        metrics = update_critic(critic, generations, targets, trainer_config(), rng=np.random.default_rng(step))
        losses.append(metrics["critic/loss"])
    assert losses[0] == pytest.approx(0.5 * 2.0**2)
    assert losses[-1] < 0.1 * losses[0]
    assert metrics["critic/return"] == pytest.approx(2.0)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_targets_that_are_not_finite_leave_the_critic_as_it_was():
    policy, generations = played()
    critic = critic_of(policy)
    value_NL = values(critic, generations, 4)
    targets = Targets(value_NL, np.full_like(value_NL, np.inf))
    update_critic(critic, generations, targets, trainer_config(), rng=np.random.default_rng(0))
    assert (values(critic, generations, 4) == value_NL).all()


def test_advantages_of_a_fresh_critic_are_the_whitened_scores():
    _, generations = played()
    mask_NL = response_mask(generations)
    reward_NL = np.zeros(mask_NL.shape)
    reward_NL[np.arange(len(mask_NL)), mask_NL.sum(1) - 1] = np.arange(len(mask_NL))
    advantage_NL, return_NL = gae(reward_NL, np.zeros(mask_NL.shape), mask_NL, settings_of("gae"))
    assert (return_NL[mask_NL] == np.repeat(np.arange(len(mask_NL)), mask_NL.sum(1))).all()
    assert advantage_NL[mask_NL].mean() == pytest.approx(0, abs=1e-6)


def test_micro_batches_hold_every_row_once_and_equal_rows_as_one_pair():
    _, generations = played()
    pairs = token_pairs([*generations, *generations])
    parts = list(micro_batches(pairs, range(len(pairs)), 3))
    assert sorted(row for part in parts for row in part.rows) == list(range(len(pairs)))
    assert all(len(part.prompts) <= 3 for part in parts)
    for part in parts:
        for row, place in zip(part.rows, part.pair_of, strict=True):
            assert (part.prompts[place], part.responses[place]) == pairs[row]
    assert sum(len(part.prompts) for part in parts) == len(set(pairs))
