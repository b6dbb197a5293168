import math

import pytest
import torch

from scpo.policies.loss import TokenStatistics, k3, policy_loss, token_statistics
from scpo.schema.trainer import LossConfig


def config(**changes):
    values = dict(clip_low=0.2, clip_high=0.2, dual_clip=3.0, kl_coefficient=0.0, entropy_coefficient=0.0)
    return LossConfig(**(values | changes))


def loss_of(ratio, advantage, *, reference=None, entropy=0.0, **changes):
    """Loss of one row with one token whose probability ratio to the old policy is ``ratio``."""
    statistics = TokenStatistics(torch.tensor([[math.log(ratio)]]), torch.tensor([[entropy]]))
    reference = None if reference is None else torch.tensor([[reference]])
    return policy_loss(
        statistics, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), config(**changes),
        tokens=1, reference_logprob_NL=reference,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),  # on policy
        (1.1, 2.0, -2.2),  # inside the clip range
        (1.5, 2.0, -2.4),  # gain capped at 1 + clip_high
        (0.5, 2.0, -1.0),  # a fall of a good token is never clipped
        (0.5, -2.0, 1.6),  # gain capped at 1 - clip_low
        (2.0, -2.0, 4.0),  # a rise of a bad token counts fully ...
        (5.0, -2.0, 6.0),  # ... up to the dual clip
    ],
)
def test_clipped_objective_by_hand(ratio, advantage, expected):
    assert float(loss_of(ratio, advantage).total) == pytest.approx(expected, rel=1e-6)


def test_asymmetric_clip_range_lets_good_tokens_rise_further():
    assert float(loss_of(1.5, 1.0, clip_high=0.28).total) == pytest.approx(-1.28)


def test_clipped_tokens_are_counted():
    assert loss_of(1.5, 1.0).clipped == 1
    assert loss_of(1.1, 1.0).clipped == 0


def test_k3_by_hand_and_never_negative():
    logprob, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])
    assert k3(logprob, reference)[0].tolist() == pytest.approx([math.exp(-0.5) + 0.5 - 1, 0.0])
    assert (k3(torch.randn(50, 3), torch.randn(50, 3)) >= 0).all()


def test_kl_and_entropy_enter_with_their_coefficients():
    loss = loss_of(1.0, 0.0, reference=-0.5, entropy=2.0, kl_coefficient=0.1, entropy_coefficient=0.01)
    assert float(loss.total) == pytest.approx(0.1 * (math.exp(-0.5) + 0.5 - 1) - 0.02)


def test_padding_tokens_do_not_count():
    statistics = TokenStatistics(torch.tensor([[0.1, 5.0]]), torch.zeros(1, 2))
    mask = torch.tensor([[1.0, 0.0]])
    loss = policy_loss(statistics, torch.zeros(1, 2), torch.ones(1), mask, config(), tokens=1)
    assert float(loss.total) == pytest.approx(-math.exp(0.1))


def test_token_statistics_are_those_of_the_tempered_distribution():
    statistics = token_statistics(torch.tensor([[[0.0, math.log(3.0)]]]), torch.tensor([[1]]), temperature=1.0)
    assert float(statistics.logprob_NL) == pytest.approx(math.log(0.75))
    assert float(statistics.entropy_NL) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    cold = token_statistics(torch.tensor([[[0.0, math.log(3.0)]]]), torch.tensor([[1]]), temperature=0.5)
    assert float(cold.logprob_NL) == pytest.approx(math.log(0.9))
