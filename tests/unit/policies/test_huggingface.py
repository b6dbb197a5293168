"""A Hugging Face model in the local trainer: what a step changes, what it computes, what is refused before loading."""

import math
from types import SimpleNamespace

import pytest

from scpo.errors import ConfigError
from scpo.policies.batches import micro_batches
from sweeps.compose.configuration import compose_run
from tests.support.tiny import tiny_policy

torch = pytest.importorskip("torch", reason="needs torch: make setup")

from scpo.policies import make_policy, model  # noqa: E402
from scpo.policies.model import load_pretrained  # noqa: E402

PAIRS = [((1, 2, 3), (4, 5)), ((2, 3), (4,)), ((3, 4, 5, 6), (1, 2, 3))]


@pytest.fixture
def folder(tmp_path):
    small = tiny_policy()
    small.model.to(torch.bfloat16).save_pretrained(tmp_path)
    small.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def policy(folder, *words):
    chosen = ["trainer=local", "method=grpo", "model=qwen2_5_1_5b", f"model.path={folder}", "env.prompt=verl_agent"]
    return make_policy.make_policy(compose_run([*chosen, *words, "machine.device=cpu"]), SimpleNamespace())


def moved(model, learning_rate=1e-6):
    """Share of the weights that one step of AdamW at the paper's rate changes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    changed = sum(int((old != new).sum()) for old, new in zip(before, model.parameters(), strict=True))
    return changed / sum(one.numel() for one in before)


def test_a_step_of_the_papers_size_moves_the_weights_although_the_model_is_released_in_bfloat16(folder):
    assert moved(load_pretrained(str(folder), "bfloat16")[0]) < 0.2  # the fault: most weights stay where they are
    trained = policy(folder)
    assert {parameter.dtype for parameter in trained.model.parameters()} == {torch.float32}
    assert moved(trained.model) > 0.95


def test_it_computes_in_bfloat16_and_learns_in_float32(folder):
    trained = policy(folder)
    prompts, responses = zip(*PAIRS, strict=True)
    statistics, mask = trained.statistics(prompts, responses, 1.0)
    exact = policy(folder, "model.dtype=float32").statistics(prompts, responses, 1.0)[0]
    difference = float(((statistics.logprob_NL - exact.logprob_NL) * mask).abs().max())
    assert 0 < difference < 0.05
    statistics.logprob_NL.sum().backward()
    assert {parameter.grad.dtype for parameter in trained.model.parameters()} == {torch.float32}


def test_activations_are_computed_again_with_the_same_gradient(folder):
    gradients = []
    for checkpointing in (True, False):
        one = policy(folder, "model.dtype=float32")
        one.recomputes = checkpointing
        prompts, responses = zip(*PAIRS, strict=True)
        one.statistics(prompts, responses, 1.0)[0].logprob_NL.sum().backward()
        assert one.model.training is checkpointing
        gradients.append([parameter.grad for parameter in one.model.parameters()])
    for again, kept in zip(*gradients, strict=True):
        torch.testing.assert_close(again, kept)


def test_an_evaluation_loads_the_model_as_it_was_released(folder):
    evaluated = policy(folder, "method=plain")
    assert {parameter.dtype for parameter in evaluated.model.parameters()} == {torch.bfloat16}
    assert not evaluated.recomputes


def test_what_does_not_fit_is_refused_before_it_is_loaded(monkeypatch):
    monkeypatch.setattr(make_policy, "memory_gib", lambda _: 79.0)
    monkeypatch.setattr(make_policy, "load_huggingface", lambda *_, **__: pytest.fail("loaded"))
    config = compose_run(["scale=paper", "trainer=local", "method=grpo", "model=qwen2_5_7b", "machine.device=cpu"])
    with pytest.raises(ConfigError, match=r"7B with trainer=local needs about \d+ GiB"):
        make_policy.make_policy(config, SimpleNamespace())


@pytest.mark.parametrize(("free", "counted"), [(20.5, 20.5), (None, math.inf)])
def test_a_model_on_a_cpu_may_take_the_memory_that_is_free_and_any_where_that_is_unknown(monkeypatch, free, counted):
    monkeypatch.setattr(model, "free_gib", lambda: free)
    assert model.memory_gib(torch.device("cpu")) == counted


def test_micro_batches_hold_so_many_tokens_and_at_least_one_row():
    pairs = [(tuple(range(length)), (1,)) for length in (3, 3, 4, 9, 30)]
    parts = list(micro_batches(pairs, range(5), 4, most_tokens=12))
    assert [sorted(part.rows) for part in parts] == [[0, 1, 2], [3], [4]]
    assert [len(part.prompts) for part in micro_batches(pairs, range(5), 3)] == [3, 1]  # two rows are equal
