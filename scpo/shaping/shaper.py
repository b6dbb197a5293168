"""SCPO's shaper: credit for steps of failures that follow a success (paper, algorithm 1)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt, model_validator

from scpo.errors import ConfigError, StepBatchError
from scpo.shaping.drive import MatchTask, Pairs, Scorer, credit_batch
from scpo.shaping.matcher import AfterFullMatch, MatchRule, MatchTrace, known_matcher
from scpo.shaping.order import Order, Seed, generator, processing_key
from scpo.shaping.reference import Selection, active_groups, failed_groups, outcomes, select
from scpo.shaping.reference_buffer import ReferenceBuffer, Remembering
from scpo.shaping.step_text import StepFilter, StepText, step_texts, surviving
from scpo.states.registry import find_identity
from scpo.steps import BoolArray, FloatArray, IntArray, StepBatch, StrArray
from scpo.strict import Strict

Allocation = Literal["matched", "random_match", "uniform_bonus", "graph"]
"""Steps that the matcher's credit goes to: see :func:`allocate`."""

# No Literal of the names: a notebook may register a matcher after this file was read.
MatcherName = Annotated[str, BeforeValidator(known_matcher)]

Amount = Literal["similarity", "distance"]
CreditedStates = Literal["all", "anchor_without_success", "state_without_success"]
AddedTo = Literal["returns", "advantages"]

LABEL = "SCPO"
"""Name of a method with the shaper in tables and figures."""


class ShaperConfig(Strict):
    """SCPO's shaper (paper section 3, table 4).

    The fields from ``reference_buffer`` on are ours. Each is off by default and then left out of a
    run's identity, so that runs from before it existed keep their ids.

    Attributes:
        matcher: ``kmp``, Algorithm 2, or ``forward``, the prose of section 3.3 (ledger 8).
        monotonic: Credit a reference position at most once; False is the ablation "- monotonicity".
        after_full_match: Without monotonicity, what follows a match of the last position (ledger
            11).
        theta: Match threshold θ.
        soft_base: λ, the similarity that earns no credit. Above θ it is allowed, with a warning.
        alpha: α, weight of the credit in the unit of the rewards.
        reference: The success that failures are matched with.
        reference_order: Order of the reference's steps: time, or the rows of the trainer's batch
            (ledger 12).
        order: Processing order of a failure's steps (ledger 9).
        order_ranks: Data-parallel ranks that ``balanced`` is computed for, where the trainer has
            others.
        step_text: What the scorer compares (ledger 5).
        step_filter: Steps that earn no credit and match nothing.
        allocation: The steps that get the matcher's credit; all but ``matched`` are controls.
        reference_buffer: What groups without a success are matched with (ledger 40).
        reference_max_age: Training steps after which a stored reference expires; None: never.
        dense: Score all pairs before the walks start, as in the paper, instead of those that a walk
            reads: the same credit at the paper's cost (ledger 50).
        amount: ``similarity``: soft credit of a match's score (the paper). ``distance``: that times
            the share of the reference's positions by which the match advances.
        credited_states: ``anchor_without_success`` and ``state_without_success`` drop the credit of
            steps from a state that a success of the group also visited: a host that compares equal
            states already compares these steps with the success's.
        states: Identity of ``scpo.states``: steps match if their actions are equal and lead to the
            same state. None: steps match by the similarity of ``step_text``.
        states_threshold: Threshold of that identity; None: its default.
        added_to: What α * credit is added to: ``returns``, the step returns that the host
            normalises (the paper), or ``advantages``, the host's result, so that no normalisation
            changes the credit (ledger 56).
    """

    matcher: MatcherName
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
    reference_buffer: Remembering = Field(default="off", exclude_if=lambda value: value == "off")
    reference_max_age: PositiveInt | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    dense: bool = Field(default=False, exclude_if=lambda value: not value)
    amount: Amount = Field(default="similarity", exclude_if=lambda value: value == "similarity")
    credited_states: CreditedStates = Field(default="all", exclude_if=lambda value: value == "all")
    states: str | None = Field(default=None, exclude_if=lambda value: value is None)
    states_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    added_to: AddedTo = Field(default="returns", exclude_if=lambda value: value == "returns")

    @model_validator(mode="after")
    def _an_age_needs_a_buffer(self) -> Self:
        """Refuse an age limit that nothing would read."""
        if self.reference_max_age is not None and self.reference_buffer == "off":
            raise ValueError(
                f"reference_max_age={self.reference_max_age} is only read with "
                "reference_buffer=last_success, which is off; allowed: null, or switch the buffer "
                "on"
            )
        return self

    @model_validator(mode="after")
    def _states_are_known(self) -> Self:
        """Refuse unknown identities of states, and those that the matcher cannot compare by."""
        if self.states is None:
            if self.states_threshold is not None:
                raise ValueError(
                    f"states_threshold={self.states_threshold:g} is only read with states; "
                    "allowed: null"
                )
            return self

        try:
            identity = find_identity(self.states, self.states_threshold)
        except ConfigError as error:
            # A plain ValueError: pydantic reports the message together with the field's location.
            raise ValueError(str(error)) from error

        if "scorer" in identity.requires:
            raise ValueError(
                "states=scorer is what the matcher does by itself; use states=null with that scorer"
            )
        if self.reference_buffer != "off":
            raise ValueError(
                f"states={self.states} numbers the states of one batch, so a reference of an "
                "earlier one cannot be compared: reference_buffer must be off, got "
                f"{self.reference_buffer}"
            )

        return self

    def make_buffer(self) -> ReferenceBuffer | None:
        """Empty buffer of a run; None if ``reference_buffer`` is off."""
        if self.reference_buffer == "off":
            return None
        return ReferenceBuffer(self.reference_max_age)


@dataclass(frozen=True)
class FailedMatch:
    """Match of one failed trajectory, of an active group or one with a stored reference.

    Attributes:
        task: Filtered texts of reference (m) and failed steps (l), and the processing order of the
            latter.
        reference_row_m: Rows of the reference steps in the batch, in reference order; empty for a
            reference from the buffer.
        failed_row_l: Rows of the failed steps in the batch, in time order.
        trace: The walk and the cells that the matcher credited.
        credit_l: Credit of the failed steps, in time order; with a control, no longer on the
            matched steps.
        age: Training steps since the buffer's reference was played; None for a sibling.
    """

    task: MatchTask
    reference_row_m: IntArray
    failed_row_l: IntArray
    trace: MatchTrace
    credit_l: FloatArray
    age: int | None = None


@dataclass(frozen=True)
class Shaped:
    """Result of the shaper.

    Attributes:
        credit_N: Credit of every row in [0, 1]; 0 outside failed trajectories of active groups and,
            with a reference buffer, of groups without a success. A copy has its original's.
        text_N: Step text of every row.
        surviving_N: Rows that passed the step filter.
        matches: One record per failed trajectory of an active group, by group and trajectory id;
            then one per failed trajectory of a group with a reference from the buffer.
        pairs: Counts of scored pairs.
        seconds: Seconds per stage: text, scoring, self_similarity, matching, accumulation.
    """

    credit_N: FloatArray
    text_N: StrArray
    surviving_N: BoolArray
    matches: tuple[FailedMatch, ...]
    pairs: Pairs
    seconds: dict[str, float]


def shape(
    batch: StepBatch,
    scorer: Scorer,
    config: ShaperConfig,
    seed: Seed,
    *,
    speculate: bool = False,
    buffer: ReferenceBuffer | None = None,
) -> Shaped:
    """Credit of each step: algorithm 1 up to the addition to returns (``scpo.credit.assign``).

    Groups without a success, or without a failure, are skipped. A reference with no surviving step
    gives no credit. With a ``buffer``, a group without a success is matched with the stored success
    of its task, if there is one; the buffer does not change here (see :func:`remember`).

    Args:
        batch: The steps; copies are not read.
        scorer: Answers text pairs with similarities in [0, 1].
        config: The shaper's settings.
        seed: Run seed and training step; read only where something is random.
        speculate: Score some pairs in advance, for fewer, larger batches; the credit is the same.
        buffer: Successes of earlier training steps.

    Raises:
        ScorerError: The scorer returned anything but similarities in [0, 1].
        StepBatchError: There is a buffer, and the batch has no task ids.
    """
    # The stages are those of the paper's timing table.
    started = time.perf_counter()
    text_N = step_texts(batch, config.step_text)
    surviving_N = surviving(batch, config.step_filter)
    # A list, so that the time to make the plans counts to the stage "text", not to "matching".
    plans = list(_plans(batch, text_N, surviving_N, config, seed, buffer=buffer))
    planned = time.perf_counter()
    rule = MatchRule(
        config.theta, config.soft_base, config.monotonic, config.matcher, config.after_full_match
    )

    # All groups at once, so that every round of the walks is one large call of the scorer.
    matched = credit_batch(
        [plan.task for plan in plans], scorer, rule, dense=config.dense, speculate=speculate
    )
    driven = time.perf_counter()

    # Credit of the walks, after a control if there is one, written to the rows.
    matches = _matches(batch, plans, matched.traces, config, seed)
    credit_N = _accumulate(batch, matches)
    seconds = {
        "text": planned - started,
        **matched.seconds,
        "accumulation": time.perf_counter() - driven,
    }
    return Shaped(credit_N, text_N, surviving_N, matches, matched.pairs, seconds)


def remember(buffer: ReferenceBuffer, batch: StepBatch, config: ShaperConfig, seed: Seed) -> None:
    """Store the reference of every group with a success, as :func:`shape` would choose it.

    A success without surviving steps is not stored. Groups in which every sibling succeeded count
    as well: their task may fail next time.

    Args:
        buffer: Changed in place.
        batch: The steps.
        config: The shaper's settings.
        seed: Run seed and training step, as given to :func:`shape`: a random choice of the
            reference is then the same.

    Raises:
        StepBatchError: The batch has no task ids.
    """
    text_N = step_texts(batch, config.step_text)
    surviving_N = surviving(batch, config.step_filter)
    task_N = _task_ids(batch)
    line = batch.timeline
    for _, successful, _ in outcomes(line):
        if not len(successful):
            continue
        row_m = _reference_rows(batch, successful, surviving_N, config, seed)
        # A reference without surviving steps could match nothing.
        if len(row_m):
            buffer.keep(task_N[row_m[0]], seed[1], text_N[row_m].tolist())


class _Plan(NamedTuple):
    """Inputs of one failed trajectory's match; attributes as in ``FailedMatch``."""

    task: MatchTask
    reference_row_m: IntArray
    failed_row_l: IntArray
    age: int | None = None


def _plans(
    batch: StepBatch,
    text_N: StrArray,
    surviving_N: BoolArray,
    config: ShaperConfig,
    seed: Seed,
    *,
    buffer: ReferenceBuffer | None,
) -> Iterator[_Plan]:
    """Plan the matches of failed trajectories with their references.

    Failures of active groups are matched with a sibling. With a buffer, failures of groups without
    a success are matched with the stored success of their task, if there is one.

    Yields:
        A plan for each failed trajectory, by group and trajectory id; those with a stored reference
        last.

    Raises:
        StepBatchError: There is a buffer, and the batch has no task ids.
    """
    line = batch.timeline
    key_N = processing_key(batch, config.order, seed)

    def plan(
        k: int,
        group: int,
        reference: tuple[str, ...],
        reference_row_m: IntArray,
        age: int | None = None,
    ) -> _Plan:
        """Plan of failed trajectory ``k`` of the timeline against a reference."""
        row_l = _filtered(line.rows_of(k), surviving_N)
        # Stable: steps of equal position, as in a batch that was never reordered, stay in time
        # order.
        order = np.argsort(key_N[row_l], kind="stable").tolist()
        return _Plan(
            MatchTask(group, reference, tuple(text_N[row_l]), tuple(order)),
            reference_row_m,
            row_l,
            age,
        )

    # Groups with a success: all failures of a group share one reference.
    for group, successful, failed in active_groups(line):
        reference_row_m = _reference_rows(batch, successful, surviving_N, config, seed)
        reference = tuple(text_N[reference_row_m])
        for k in failed:
            yield plan(k, group, reference, reference_row_m)

    if buffer is None:
        return

    # Groups without a success, with the stored reference of their task.
    task_N = _task_ids(batch)
    for group, failed in failed_groups(line):
        first_row = line.rows_of(failed[0])[0]
        found = buffer.find(task_N[first_row], seed[1])
        if found is None:
            continue
        # A stored reference has no rows in this batch.
        no_rows = np.empty(0, np.int64)
        for k in failed:
            yield plan(k, group, found.texts, no_rows, seed[1] - found.step)


def _reference_rows(
    batch: StepBatch, successful: IntArray, surviving_N: BoolArray, config: ShaperConfig, seed: Seed
) -> IntArray:
    """Rows of a group's reference, in reference order (``reference_order``)."""
    line = batch.timeline
    chosen = select(line, successful, config.reference, seed)

    # Filtered after the choice: the longest success is the one with the most environment steps.
    row_m = _filtered(line.rows_of(chosen), surviving_N)
    if config.reference_order != "batch":
        return row_m
    return row_m[np.argsort(line.position_N[row_m], kind="stable")]


def _task_ids(batch: StepBatch) -> StrArray:
    """Task of each row: a group's number is new in every training step, its task is not."""
    if batch.task_id_N is None:
        raise StepBatchError(
            "a reference buffer needs task_id_N, which this batch lacks: the trainer provides it, "
            "or set method.shaper.reference_buffer=off"
        )
    return batch.task_id_N


def _filtered(rows: IntArray, surviving_N: BoolArray) -> IntArray:
    """The given rows that passed the step filter, in their order."""
    return rows[surviving_N[rows]]


def _matches(
    batch: StepBatch,
    plans: Sequence[_Plan],
    traces: Sequence[MatchTrace],
    config: ShaperConfig,
    seed: Seed,
) -> tuple[FailedMatch, ...]:
    """Add to each plan the trace of its walk and the credit that follows from it."""
    matches = []
    for plan, trace in zip(plans, traces, strict=True):
        credit_l = _credit(batch, plan, trace, config, seed)
        rows = (plan.reference_row_m, plan.failed_row_l)
        matches.append(FailedMatch(plan.task, *rows, trace, credit_l, plan.age))
    return tuple(matches)


def _credit(
    batch: StepBatch, plan: _Plan, trace: MatchTrace, config: ShaperConfig, seed: Seed
) -> FloatArray:
    """``credit_l`` of one failed trajectory, in time order, after the controls."""
    length = len(plan.failed_row_l)
    m = len(plan.task.reference)
    if config.amount == "similarity":
        matched_l = trace.credit_l(length)
    else:
        matched_l = trace.distance_credit_l(length, m)
    # All steps were filtered out: there is nothing to allocate, and no row to read the id from.
    if not len(matched_l):
        return matched_l
    trajectory = int(batch.trajectory_N[plan.failed_row_l[0]])
    return allocate(matched_l, config.allocation, seed, trajectory)


def allocate(
    matched_l: FloatArray, allocation: Allocation, seed: Seed, trajectory: int
) -> FloatArray:
    """Distribute the matcher's credit over one failed trajectory's surviving steps; its sum stays.

    ``matched``: as the matcher gave it. The others are controls: does it matter *which* steps of a
    failure are credited, or would any bonus of that size do? ``random_match``: the same values,
    permuted at random. ``uniform_bonus``: the mean, c_v = Σ c / l, on each of the l steps.
    ``graph``: unchanged here; ``scpo.credit.other_steps`` moves it within the group.

    Args:
        matched_l: The matcher's credit in [0, 1], of at least one step.
        allocation: The rule.
        seed: Run seed and training step.
        trajectory: Trajectory id; the draw depends only on it and on ``seed``.

    Returns:
        ``credit_l``, float32.
    """
    if allocation == "random_match":
        return generator(seed, "control", trajectory).permutation(matched_l)
    if allocation == "uniform_bonus":
        # The mean is taken in float64, so that l times the mean is the sum as nearly as possible.
        return np.full_like(matched_l, matched_l.mean(dtype=np.float64))
    return matched_l


def _accumulate(batch: StepBatch, matches: tuple[FailedMatch, ...]) -> FloatArray:
    """Write credit back to the steps that earned it; a copy gets its original's."""
    credit_N = np.zeros(len(batch), dtype=np.float32)
    # Trajectories do not overlap, so each row is written at most once.
    for match in matches:
        credit_N[match.failed_row_l] = match.credit_l
    # Matching reads only originals; an offset of 0 is every row's original.
    return credit_N[batch.timeline.neighbours(0)]
