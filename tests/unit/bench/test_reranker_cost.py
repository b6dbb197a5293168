from collections import Counter

import pytest

from bench import reranker_cost
from bench.rerankers import SMALL, Weights, pair_of
from scpo.scoring.cross_encoder import TOKEN_BUCKETS

TINY = SMALL | {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
AS_ON_A_GPU = "cpu:0"  # a CPU to torch, but not the name by which the benchmark knows one


@pytest.fixture(scope="module")
def weights():
    pytest.importorskip("torch", reason="needs torch: make setup")
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    return Weights.random(TINY, "cpu")


def cost(seconds):
    return reranker_cost.Cost("cpu", seconds, "", 0.0, 0, 0)


def test_a_pass_that_was_not_measured_costs_as_much_a_token_as_the_nearest_one_that_was():
    known = cost({(8, 64): 2.0, (4, 128): 3.0, (64, 64): 16.0})
    assert known.of_pass(reranker_cost.ours, 64) == 2.0
    assert known.of_pass(reranker_cost.ours, 32) == 2.0  # 16 rows: 512 tokens as well
    assert known.of_pass(reranker_cost.ours, 512) == 3.0
    assert known.of_pass(reranker_cost.papers, 256) == 64.0
    assert known.of_passes(reranker_cost.ours, Counter({64: 3, 128: 2})) == 12.0


def test_a_pass_between_two_measured_lengths_costs_what_lies_between_them():
    known = cost({(1, 32): 2.0, (1, 64): 3.0, (8, 64): 20.0})
    assert known.of_pass(reranker_cost.single, 32) == 2.0
    assert known.of_pass(reranker_cost.single, 40) == 2.25
    assert known.of_pass(reranker_cost.single, 128) == 6.0  # beyond them: twice the tokens
    assert known.of_pass(reranker_cost.single, 16) == 1.0


def test_a_timed_pair_fills_more_than_half_of_each_padded_length(weights):
    reranker = weights.cold(512, share=True)
    passes = reranker.batches(reranker.encode([pair_of(width) for width in TOKEN_BUCKETS]))
    assert [(rows.width, rows.size) for rows in passes] == [(w, reranker_cost.ours(w)) for w in TOKEN_BUCKETS]


def test_the_pairs_scored_alone_and_together_differ_and_some_fill_their_padded_length(weights):
    pairs = reranker_cost._pairs(256)
    lengths = {len(pair.ids) for pair in weights.cold(512).encode(pairs)}
    assert len(set(pairs)) == 256
    assert {31, 32, 33} <= lengths


def test_the_peak_of_gpu_memory_is_read_after_our_passes_and_before_the_papers(weights, monkeypatch):
    import torch

    calls = []

    def measure(_weights, rows, width, _repetitions):
        calls.append((rows, width))
        return 0.1

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: calls.append("peak") or 1.15e9)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 1.2e9)
    monkeypatch.setattr(reranker_cost, "seconds_a_pass", measure)
    measured = reranker_cost.large_cost(Weights(weights.tokenizer, weights.model, AS_ON_A_GPU))
    ours, papers = ([(rows(width), width) for width in TOKEN_BUCKETS] for rows in (reranker_cost.ours, lambda _: 64))
    assert calls == ["empty", "reset", *ours, "peak", *papers]
    assert measured.memory.startswith("Peak GPU memory of ours: 1.15 GB of tensors, 1.20 GB with")
    assert (measured.compared, measured.difference, measured.flips) == (256, 0.0, 0)
