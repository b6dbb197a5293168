"""The update guard of verl, on an engine made of AdamW and a linear layer."""

from types import SimpleNamespace

import pytest

from scpo.trainers.verl.update_guard import BLIND, environment, train_batch, update_counts

torch = pytest.importorskip("torch", reason="needs torch: make setup")


class Engine:
    """What ``train_batch`` asks of verl's engine."""

    def __init__(self):
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.AdamW(self.layer.parameters(), lr=0.1, weight_decay=0.1)

    def get_data_parallel_group(self):
        return None

    def is_mp_src_rank_with_outputs(self):
        return True

    def optimizer_zero_grad(self):
        self.optimizer.zero_grad()

    def optimizer_step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.layer.parameters(), 1.0)
        self.optimizer.step()
        return norm

    def forward_backward_batch(self, data, loss_function, forward_only):
        assert not forward_only
        loss_function(self.layer(torch.ones(3)), data).backward()
        return {"metrics": {"pg_loss": [0.0]}}

    @property
    def weights(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.layer.parameters()])


def loss(output, data):
    """A policy term that follows the advantages, and an entropy bonus that does not ask for them."""
    return output.sum() * (data["advantages"].sum() + 1e-3)


def batch(*values):
    return {"advantages": torch.tensor([values])}


@pytest.mark.parametrize("skip", [True, False])
def test_a_mini_batch_without_an_advantage_moves_nothing_where_the_guard_is_on(skip):
    engine = Engine()
    train_batch(engine, batch(1.0, 0.0), loss, skip=skip)  # Adam has a momentum from here on
    before = engine.weights
    metrics = train_batch(engine, batch(0.0, 1e-7), loss, skip=skip)["metrics"]
    assert torch.equal(engine.weights, before) is skip
    assert metrics[BLIND] == [1.0]
    assert bool(metrics["grad_norm"] == 0) is skip
    before = engine.weights
    metrics = train_batch(engine, batch(0.0, -0.5), loss, skip=skip)["metrics"]
    assert not torch.equal(engine.weights, before)
    assert metrics[BLIND] == [0.0]


def test_advantages_of_rows_of_different_lengths_are_read():
    rows = [torch.zeros(2), torch.tensor([0.0, 0.0, -2.0])]
    data = {"advantages": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}
    quiet = SimpleNamespace(
        get_data_parallel_group=lambda: None,
        optimizer_zero_grad=lambda: None,
        forward_backward_batch=lambda data, loss_function, forward_only: {"metrics": {}},
        optimizer_step=lambda: 1.0,
        is_mp_src_rank_with_outputs=lambda: True,
    )
    assert train_batch(quiet, data, loss, skip=True)["metrics"] == {"grad_norm": 1.0, BLIND: [0.0]}


def test_counts_are_those_of_the_local_trainer():
    assert update_counts(0.25, 8, skip=True) == {
        "actor/updates": 6, "update/without_advantage": 0, "update/skipped": 2,
    }  # fmt: skip
    assert update_counts(0.25, 8, skip=False) == {
        "actor/updates": 8, "update/without_advantage": 2, "update/skipped": 0,
    }  # fmt: skip
    assert environment(True) != environment(False)
