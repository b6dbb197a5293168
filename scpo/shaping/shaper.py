"""SCPO's shaper: credit for the steps of failed trajectories that follow a successful sibling (paper, algorithm 1)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from scpo.shaping.controls import Allocation, allocate
from scpo.shaping.drive import MatchTask, Pairs, Scorer, credit_batch
from scpo.shaping.matcher import AfterFullMatch, Matcher, MatchRule, MatchTrace
from scpo.shaping.order import Order, Seed, processing_key
from scpo.shaping.reference import Selection, active_groups, select
from scpo.shaping.step_text import StepFilter, StepText, step_texts, surviving
from scpo.steps import BoolArray, FloatArray, IntArray, StepBatch, StrArray
from scpo.strict import Strict

LABEL = "SCPO"
"""What tables and figures call a method with the shaper."""


class ShaperConfig(Strict):
    """SCPO's shaper (paper section 3, table 4). ``allocation`` is where the matcher's credit lands."""

    matcher: Matcher
    monotonic: bool
    after_full_match: AfterFullMatch
    theta: Annotated[float, Field(gt=0, le=1)]
    soft_base: Annotated[float, Field(ge=0, lt=1)]
    alpha: NonNegativeFloat
    reference: Selection
    reference_order: Literal["time", "batch"]
    order: Order
    order_ranks: PositiveInt
    step_text: StepText
    step_filter: StepFilter
    allocation: Allocation


@dataclass(frozen=True)
class FailedMatch:
    """One failed trajectory of an active group and what the matcher made of it.

    Attributes:
        task: Filtered texts of reference (m) and failed steps (l), and the processing order of the latter.
        reference_row_m: Rows of the reference steps in the batch, in reference order.
        failed_row_l: Rows of the failed steps in the batch, in time order.
        trace: The walk and the cells that the matcher credited.
        credit_l: Credit of the failed steps, in time order; a control has moved it away from the matched steps.
    """

    task: MatchTask
    reference_row_m: IntArray
    failed_row_l: IntArray
    trace: MatchTrace
    credit_l: FloatArray


@dataclass(frozen=True)
class Shaped:
    """What the shaper answers.

    Attributes:
        credit_N: Credit of every row in [0, 1]; 0 outside failed trajectories of active groups. A copy has its
            original's.
        text_N: Step text of every row.
        surviving_N: Rows that the step filter left in.
        matches: One record per failed trajectory of an active group, by group and trajectory id.
        pairs: What the scoring took.
        seconds: Seconds per stage: text, scoring, self_similarity, matching, accumulation.
    """

    credit_N: FloatArray
    text_N: StrArray
    surviving_N: BoolArray
    matches: tuple[FailedMatch, ...]
    pairs: Pairs
    seconds: dict[str, float]


def shape(
    batch: StepBatch, scorer: Scorer, config: ShaperConfig, seed: Seed, *, dense: bool = False, speculate: bool = False
) -> Shaped:
    """Credit of every step (paper, algorithm 1 up to the addition, which is ``scpo.credit.assign``'s).

    Groups without a success, or without a failure, are left alone. A reference with no surviving step credits nobody.

    Args:
        batch: The steps; copies are not read.
        scorer: Answers text pairs with similarities in [0, 1].
        config: The shaper's settings.
        seed: Run seed and training step; read only where something is random.
        dense: Score all pairs first, as in the paper.
        speculate: Score some pairs ahead, for fewer and larger batches; the credit is the same.

    Raises:
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    started = time.perf_counter()
    text_N, surviving_N = step_texts(batch, config.step_text), surviving(batch, config.step_filter)
    plans = list(_plan(batch, text_N, surviving_N, config, seed))
    planned = time.perf_counter()
    rule = MatchRule(config.theta, config.soft_base, config.monotonic, config.matcher, config.after_full_match)
    matched = credit_batch([task for task, _, _ in plans], scorer, rule, dense=dense, speculate=speculate)
    driven = time.perf_counter()
    matches = tuple(
        FailedMatch(task, reference_row_m, failed_row_l, trace, _credit(batch, failed_row_l, trace, config, seed))
        for (task, reference_row_m, failed_row_l), trace in zip(plans, matched.traces, strict=True)
    )
    credit_N = _accumulate(batch, matches)
    seconds = {"text": planned - started, **matched.seconds, "accumulation": time.perf_counter() - driven}
    return Shaped(credit_N, text_N, surviving_N, matches, matched.pairs, seconds)


def _plan(
    batch: StepBatch, text_N: StrArray, surviving_N: BoolArray, config: ShaperConfig, seed: Seed
) -> Iterator[tuple[MatchTask, IntArray, IntArray]]:
    """For every failed trajectory of an active group what is to be matched, and the rows it stands for."""
    line, key_N = batch.timeline, processing_key(batch, config.order, seed)
    for group, successful, failed in active_groups(line):
        reference_row_m = _filtered(line.rows_of(select(line, successful, config.reference, seed)), surviving_N)
        if config.reference_order == "batch":
            reference_row_m = reference_row_m[np.argsort(line.position_N[reference_row_m], kind="stable")]
        reference = tuple(text_N[reference_row_m])
        for k in failed:
            failed_row_l = _filtered(line.rows_of(k), surviving_N)
            order = np.argsort(key_N[failed_row_l], kind="stable").tolist()
            task = MatchTask(group, reference, tuple(text_N[failed_row_l]), tuple(order))
            yield task, reference_row_m, failed_row_l


def _filtered(rows: IntArray, surviving_N: BoolArray) -> IntArray:
    return rows[surviving_N[rows]]


def _credit(
    batch: StepBatch, failed_row_l: IntArray, trace: MatchTrace, config: ShaperConfig, seed: Seed
) -> FloatArray:
    matched_l = trace.credit_l(len(failed_row_l))
    if not len(matched_l):
        return matched_l
    return allocate(matched_l, config.allocation, seed, int(batch.trajectory_N[failed_row_l[0]]))


def _accumulate(batch: StepBatch, matches: tuple[FailedMatch, ...]) -> FloatArray:
    """Write credit back to the steps that earned it; a copy gets its original's."""
    credit_N = np.zeros(len(batch), dtype=np.float32)
    for match in matches:
        credit_N[match.failed_row_l] = match.credit_l
    return credit_N[batch.timeline.neighbours(0)]
