"""The shaper's scoring, dense as in the paper against ours, on recorded rollouts and on some made on the spot.

    python -m bench.bench_shaper                      # minutes on a laptop: a small reranker
    python -m bench.bench_shaper --large              # and what XLM-R-large costs here: 3 GB of memory, minutes
    python -m bench.bench_shaper --device cuda        # all of it with XLM-R-large in fp16 on a GPU
    python -m bench.bench_shaper --large --docs docs  # also write the table and the plot of docs/scoring.md

Dense scores every failed step against every reference step, and every reference against itself above the diagonal.
Ours asks for what the walks read, each pair once. Each side starts every batch with a cold scorer and pays for the same
reranker with random weights (batches of 8 rows); which steps match is decided by all-MiniLM-L6-v2. The credit of all
is compared. "Ahead" is ours with machine.scorer.speculate.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.playing import fresh_batches
from bench.reranker_cost import large_cost
from bench.rerankers import SMALL, XLM_R_LARGE, Paid, Weights, clock_of
from bench.shaper_report import print_cost, print_results, write_docs
from scpo.scoring import PairCache, make_scorer
from scpo.scoring.canonical import canonical_batches
from scpo.shaping.drive import MatchTask, TextPair, credit_batch
from scpo.shaping.matcher import MatchRule, match_dense
from scpo.shaping.shaper import shape
from scpo.steps import FloatArray, StepBatch
from sweeps.compose import compose_run
from tests.step_batches import ROLLOUTS, recorded

RECORDED = ("gigpo_s0", "scpo_minilm_s0")
T = TypeVar("T")
OURS, PAPERS = 8, 64  # rows of a padded batch: conf/scorer/bge_reranker_v2_m3.yaml, and the paper's


@dataclass(frozen=True)
class Side:
    """One way of scoring one batch; ``widths``: pairs of each padded length; ``passes``: forward passes of each.

    ``seconds`` are the processor's on a CPU, where one thread works, so that a busy machine does not count.
    """

    pairs: int
    seconds: float
    widths: Counter[int]
    passes: Counter[int]


@dataclass(frozen=True)
class Result:
    """One batch; ``step`` is the training step it was recorded at, or its number.

    ``read``: cells that the walks read; ``new``: pairs of ours that no earlier batch of the source had; ``equal``: the
    credit is the same bit for bit.
    """

    source: str
    step: int
    read: int
    new: int
    equal: bool
    dense: Side
    ours: Side
    ahead: Side


def main() -> None:
    """Measure and print."""
    import torch

    parser = argparse.ArgumentParser(description="The shaper's scoring: dense against ours.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--fresh", type=int, default=1, help="batches of 16 x 8 rollouts to make")
    parser.add_argument("--large", action="store_true", help="what a reranker of XLM-R-large's shape costs here")
    parser.add_argument("--docs", type=Path, help="folder of scoring.md, whose table and plot are written")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    weights = Weights.random(SMALL if arguments.device == "cpu" else XLM_R_LARGE, arguments.device)
    results = compare(weights, sources(arguments.fresh))
    print_results(results)
    cost = None
    if arguments.large or arguments.device == "cuda":
        cost = large_cost(weights if arguments.device == "cuda" else Weights.random(XLM_R_LARGE, "cpu"), OURS, PAPERS)
        print_cost(cost, results)
    if arguments.docs:
        write_docs(arguments.docs, results, cost)


def sources(fresh: int) -> Iterator[tuple[str, int, StepBatch]]:
    """The recorded batches, where they are, and fresh ones."""
    for run in RECORDED:
        if (ROLLOUTS / f"{run}.json.gz").exists():
            yield from ((run, step, batch) for step, batch, _ in recorded(run))
        else:
            print(f"{run}: no recorded rollouts at {ROLLOUTS}")
    yield from (("fresh", number, batch) for number, batch in enumerate(fresh_batches(fresh), start=1))


def compare(weights: Weights, batches: Iterator[tuple[str, int, StepBatch]]) -> list[Result]:
    """Score every batch in each way; batches without an active group have nothing to score and are left out."""
    config = compose_run([]).method.shaper
    rule = MatchRule(config.theta, config.soft_base, config.monotonic, config.matcher, config.after_full_match)
    meaning = PairCache(make_scorer(compose_run(["scorer=minilm"]).scorer))
    weights.cold(OURS).score([("warm", "up")])
    seen: dict[str, set[TextPair]] = defaultdict(set)
    results = []
    for source, step, batch in batches:
        tasks = [one.task for one in shape(batch, meaning, config, (0, step)).matches]
        pairs = every_pair(tasks)
        if pairs:
            answers = dict(zip(pairs, meaning.score(pairs), strict=True))
            scorers = [Paid(weights.cold(OURS), answers) for _ in range(3)]
            results.append(_result((source, step), tasks, scorers, rule, seen[source]))
    return results


def _result(
    place: tuple[str, int], tasks: list[MatchTask], scorers: list[Paid], rule: MatchRule, seen: set[TextPair]
) -> Result:
    dense, credits = _side(scorers[0], lambda scorer: dense_credits(tasks, scorer, rule))
    ours, lazy = _side(scorers[1], lambda scorer: credit_batch(tasks, scorer, rule))
    ahead, speculative = _side(scorers[2], lambda scorer: credit_batch(tasks, scorer, rule, speculate=True))
    equal = all(
        np.array_equal(credit_l, trace.credit_l(len(credit_l))) and trace == other
        for credit_l, trace, other in zip(credits, lazy.traces, speculative.traces, strict=True)
    )
    asked = {pair for call in scorers[1].calls for pair in call}
    new = len(asked - seen)
    seen |= asked
    return Result(*place, lazy.pairs.asked, new, equal, dense, ours, ahead)


def _side(scorer: Paid, call: Callable[[Paid], T]) -> tuple[Side, T]:
    clock = clock_of(scorer.reranker)
    started = clock()
    outcome = call(scorer)
    seconds = clock() - started
    widths: Counter[int] = Counter()
    passes: Counter[int] = Counter()
    for pairs in scorer.calls:
        lengths = [len(encoded.ids) for encoded in scorer.reranker.encode(pairs)]
        for rows in canonical_batches(lengths, OURS):
            widths[rows.width] += len(rows.indices)
            passes[rows.width] += 1
    return Side(sum(map(len, scorer.calls)), seconds, widths, passes), outcome


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
