"""One recorded batch through the loss of the local trainer and of verl: the same number and the same gradient."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from scpo.generation import Generation
from sweeps.compose.configuration import compose_run
from tests.support.tiny import tiny_policy
from tests.unit.trainers.verl.test_verl_settings import FILES

pytest.importorskip("ray", reason="needs verl: make test-verl")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

ROWS = 12


@dataclass
class Recorded:
    """Sampled rows, log-probabilities that the sampling policy and the reference might have had, and advantages."""

    policy: object
    generations: list[Generation]
    old: list[np.ndarray]
    reference: list[np.ndarray]
    advantage_N: np.ndarray

    @property
    def lengths(self):
        return [len(one.response_ids) for one in self.generations]

    def statistics(self):
        prompts, responses = zip(*((one.prompt_ids, one.response_ids) for one in self.generations), strict=True)
        return self.policy.statistics(prompts, responses, 1.0)

    def gradient(self, loss):
        self.policy.model.zero_grad()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in self.policy.model.parameters()])


@pytest.fixture(scope="module")
def batch():
    rng, policy = np.random.default_rng(0), tiny_policy(max_response_tokens=6)
    prompts = [f"go to desk {number % 2 + 1} >" for number in range(ROWS)]
    sampled = policy.generate(prompts, 1.0, rng.random((ROWS, 6)))
    cut = [
        replace(one, response_ids=one.response_ids[:length], logprobs=one.logprobs[:length])
        for one, length in zip(sampled, rng.integers(1, 7, ROWS), strict=True)
    ]
    old, reference = ([np.array(one.logprobs) + rng.normal(0, 0.4, len(one.logprobs)) for one in cut] for _ in range(2))
    return Recorded(policy, cut, old, reference, rng.normal(0, 2, ROWS).astype(np.float32))


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor(np.stack([np.pad(row, (0, width - len(row))) for row in rows]), dtype=torch.float32)


def ours(batch, config):
    from scpo.policies.loss import policy_loss

    found, mask = batch.statistics()
    loss = policy_loss(
        found, padded(batch.old), torch.tensor(batch.advantage_N), mask, config.trainer.loss,
        tokens=float(mask.sum()), reference_logprob_NL=padded(batch.reference),
    ).total  # fmt: skip
    return float(loss), batch.gradient(loss)


def nested(rows):
    return torch.nested.as_nested_tensor([torch.as_tensor(row) for row in rows], layout=torch.jagged)


def over_sequences(batch, value_NL):
    """Values of responses where verl's engine leaves them: over prompt and response, one place before the token."""
    rows = []
    for one, value, length in zip(batch.generations, value_NL, batch.lengths, strict=True):
        rows.append(torch.cat([torch.zeros(len(one.prompt_ids) - 1), value[:length], torch.zeros(1)]))
    return nested(rows)


def verl_batch(batch, tokens):
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    prompts = [torch.tensor(one.prompt_ids) for one in batch.generations]
    responses = [torch.tensor(one.response_ids) for one in batch.generations]
    spread = [np.full(length, one) for one, length in zip(batch.advantage_N, batch.lengths, strict=True)]
    data = TensorDict(
        {
            "prompts": nested(prompts), "responses": nested(responses),
            "input_ids": nested([torch.cat(pair) for pair in zip(prompts, responses, strict=True)]),
            "response_mask": nested([torch.ones(length, dtype=torch.int64) for length in batch.lengths]),
            "old_log_probs": nested([row.astype(np.float32) for row in batch.old]),
            "ref_log_prob": nested([row.astype(np.float32) for row in batch.reference]),
            "advantages": nested(spread),
        },
        batch_size=ROWS,
    )  # fmt: skip
    for name, value in {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": ROWS}.items():
        tu.assign_non_tensor_data(data, name, value)
    return data


def theirs(batch, config):
    """verl's own ppo_loss with the settings that the launcher writes."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    from scpo.trainers.verl.launch import compose_verl
    from scpo.trainers.verl.verl_settings import settings

    verl_config = compose_verl([setting.override for setting in settings(config, FILES)])
    actor = omega_conf_to_dataclass(verl_config.actor_rollout_ref.actor)
    found, mask = batch.statistics()
    output = {name: over_sequences(batch, value) for name, value in
              (("log_probs", found.logprob_NL), ("entropy", found.entropy_NL))}  # fmt: skip
    loss, _ = ppo_loss(actor, output, verl_batch(batch, int(mask.sum())))
    return float(loss), batch.gradient(loss)


def test_loss_and_gradient_agree_to_a_ten_thousandth(batch):
    config = compose_run(["scale=paper"])
    (our_loss, our_gradient), (their_loss, their_gradient) = ours(batch, config), theirs(batch, config)
    assert abs(our_loss) > 1e-2
    assert our_loss == pytest.approx(their_loss, abs=1e-4)
    assert float((our_gradient - their_gradient).abs().max()) < 1e-4
    assert float(our_gradient.abs().max()) > 1e-2


def test_the_comparison_notices_a_coefficient_that_differs(batch):
    config = compose_run(["scale=paper"])
    other = compose_run(["scale=paper", "trainer.loss.kl_coefficient=0.2", "trainer.loss.entropy_coefficient=0.1"])
    assert ours(batch, config)[0] != pytest.approx(theirs(batch, other)[0], abs=1e-4)
