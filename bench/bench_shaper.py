"""The shaper's scoring, dense as in the paper against ours, on recorded rollouts and on some made on the spot.

    python -m bench.bench_shaper                      # minutes on a laptop: a small reranker
    python -m bench.bench_shaper --large              # and what XLM-R-large costs here: 3 GB of memory, minutes
    python -m bench.bench_shaper --device cuda        # all of it with XLM-R-large in fp16 on a GPU
    python -m bench.bench_shaper --large --docs docs  # also write the table and the plot of docs/scoring.md

Dense scores every failed step against every reference step, and every reference against itself
above the diagonal. Ours asks for what the walks read, each pair once. Each starts every batch with
a cold scorer and pays for the same reranker with random weights. On a CPU each of our pairs is a
pass of its own, and those of dense share passes of 512 tokens; on a GPU ours share passes of 512,
and those of dense passes of 4,096, the paper's 64 pairs where they have 64 tokens. Which steps
match is decided by all-MiniLM-L6-v2. The credit of all is compared. "Ahead" is ours with
machine.scorer.speculate.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.playing import fresh_batches
from bench.random_walks import best_of
from bench.recorded import RUNS, recorded
from bench.reranker_cost import BATCH_TOKENS, DENSE_TOKENS_ON_GPU, large_cost
from bench.rerankers import SMALL, XLM_R_LARGE, Paid, Weights, clock_of, pair_of
from bench.shaper_report import Result, Side, print_cost, print_results, write_docs
from scpo.scoring import PairCache, make_scorer
from scpo.scoring.cross_encoder import TOKEN_BUCKETS, canonical_batches
from scpo.shaping.drive import MatchTask, TextPair, credit_batch
from scpo.shaping.matcher import MatchRule, match_dense
from scpo.shaping.shaper import shape
from scpo.steps import FloatArray, StepBatch
from sweeps.compose.configuration import compose_run

T = TypeVar("T")


def main() -> None:
    """Measure and print."""
    import torch

    parser = argparse.ArgumentParser(description="The shaper's scoring: dense against ours.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--fresh", type=int, default=1, help="batches of 16 x 8 rollouts to make")
    parser.add_argument("--large", action="store_true", help="what a reranker of XLM-R-large's shape costs here")
    parser.add_argument("--docs", type=Path, help="folder of scoring.md, whose table and plot are written")
    arguments = parser.parse_args()
    if arguments.fresh < 1 and (arguments.large or arguments.device == "cuda"):
        parser.error("--large and --device cuda project a training step from fresh batches: --fresh must be at least 1")
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    weights = Weights.random(SMALL if arguments.device == "cpu" else XLM_R_LARGE, arguments.device)
    results = compare(weights, sources(arguments.fresh))
    print_results(results)
    cost = None
    if arguments.large or arguments.device == "cuda":
        cost = large_cost(weights if arguments.device == "cuda" else Weights.random(XLM_R_LARGE, "cpu"))
        print_cost(cost, results)
    if arguments.docs:
        write_docs(arguments.docs, results, cost)


def sources(fresh: int) -> Iterator[tuple[str, int, StepBatch]]:
    """The recorded batches and fresh ones."""
    for run in RUNS:
        yield from ((run, step, batch) for step, batch, _ in recorded(run))
    yield from (("fresh", number, batch) for number, batch in enumerate(fresh_batches(fresh), start=1))


def compare(weights: Weights, batches: Iterator[tuple[str, int, StepBatch]]) -> list[Result]:
    """Score every batch in each way; batches without an active group have nothing to score and are left out."""
    config = compose_run([]).method.shaper
    rule = MatchRule(config.theta, config.soft_base, config.monotonic, config.matcher, config.after_full_match)
    meaning = PairCache(make_scorer(compose_run(["scorer=minilm"]).scorer))
    dense_tokens = BATCH_TOKENS if weights.device == "cpu" else DENSE_TOKENS_ON_GPU
    warm_up = [pair_of(width) for width in TOKEN_BUCKETS]
    weights.cold(BATCH_TOKENS).score(warm_up)
    weights.cold(dense_tokens, share=True).score(warm_up)
    results = []
    for source, step, batch in batches:
        meaning.begin_step()
        tasks = [one.task for one in shape(batch, meaning, config, (0, step)).matches]
        pairs = every_pair(tasks)
        if pairs:
            answers = dict(zip(pairs, meaning.score(pairs), strict=True))
            dense = Paid(weights.cold(dense_tokens, share=True), answers)
            ours, ahead = (Paid(weights.cold(BATCH_TOKENS), answers) for _ in range(2))
            results.append(_result((source, step), tasks, (dense, ours, ahead), rule))
    return results


def _result(place: tuple[str, int], tasks: list[MatchTask], cold: tuple[Paid, Paid, Paid], rule: MatchRule) -> Result:
    dense, credits = _side(cold[0], DENSE_TOKENS_ON_GPU, lambda: dense_credits(tasks, cold[0], rule))
    ours, lazy = _side(cold[1], BATCH_TOKENS, lambda: credit_batch(tasks, cold[1], rule))
    ahead, speculative = _side(cold[2], BATCH_TOKENS, lambda: credit_batch(tasks, cold[2], rule, speculate=True))
    equal = lazy.traces == speculative.traces and all(
        np.array_equal(credit_l, trace.credit_l(len(credit_l)))
        for credit_l, trace in zip(credits, lazy.traces, strict=True)
    )
    return Result(*place, lazy.pairs.asked, equal, dense, ours, ahead)


def _side(paid: Paid, tokens_on_gpu: int, call: Callable[[], T]) -> tuple[Side, T]:
    seconds, outcome = best_of(1, call, clock_of(paid.reranker))
    lengths: Counter[int] = Counter()
    widths: Counter[int] = Counter()
    passes: Counter[int] = Counter()
    for pairs in paid.calls:
        tokens = [len(pair.ids) for pair in paid.reranker.encode(pairs)]
        lengths.update(tokens)
        for rows in canonical_batches(tokens, lambda width: max(1, tokens_on_gpu // width)):
            widths[rows.width] += len(rows.indices)
            passes[rows.width] += 1
    return Side(sum(map(len, paid.calls)), seconds, lengths, widths, passes), outcome


def every_pair(tasks: Sequence[MatchTask]) -> list[TextPair]:
    """What the paper scores: all M, and one M* per group above its diagonal, repetitions included."""
    references = {task.group: task for task in tasks}.values()
    return [
        *(task.texts(cell) for task in tasks for cell in task.cells("failed")),
        *(task.texts(cell) for task in references for cell in task.cells("self")),
    ]


def dense_credits(tasks: Sequence[MatchTask], scorer: Paid, rule: MatchRule) -> list[FloatArray]:
    """Credit of each failed trajectory from full matrices."""
    pairs = every_pair(tasks)
    known = dict(zip(pairs, scorer.score(pairs), strict=True))
    return [_dense_credit(task, known, rule) for task in tasks]


def _dense_credit(task: MatchTask, known: dict[TextPair, np.float32], rule: MatchRule) -> FloatArray:
    m, length = len(task.reference), len(task.failed)
    similarity = np.array([known[task.texts(cell)] for cell in task.cells("failed")]).reshape(m, length)
    self_similarity = np.zeros((m, m), dtype=np.float32)
    for cell in task.cells("self"):
        self_similarity[cell.u, cell.v] = known[task.texts(cell)]
    return match_dense(similarity, self_similarity, float(rule.theta), float(rule.soft_base), task.order)


if __name__ == "__main__":
    main()
