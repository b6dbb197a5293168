"""Precision and recall of step credit, with helping steps as the truth.

A step helps if a shortest plan to win is shorter after it than before. During training a sample of
steps is judged (:func:`credit_precision`). Offline, all failed trajectories of groups with a
success are judged, with bootstrap intervals (:func:`step_credit`): only in such groups can a method
compare a failure with a success.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.advantages.registry import WITH_STEP_TERM
from scpo.credit.assign import assign
from scpo.credit.metrics import CreditDiagnostics
from scpo.envs.base import Environment, PlanningEnvironment, ReplayingEnvironment, Task
from scpo.errors import ConfigError, EnvironmentFailure, RecordError, StepBatchError
from scpo.rollout import Trajectory
from scpo.schema.method import TrainedMethod
from scpo.shaping.drive import Scorer
from scpo.shaping.order import Seed
from scpo.shaping.reference import active_groups
from scpo.steps import BoolArray, IntArray, StepBatch

logger = logging.getLogger(__name__)


def credit_precision(
    environment: PlanningEnvironment,
    trajectories: Sequence[Trajectory],
    batch: StepBatch,
    credited_N: BoolArray,
    *,
    steps: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Shares of steps after which a shortest plan to win is shorter than before, on a sample.

    - ``credit/precision``: of credited steps.
    - ``credit/precision_uncredited``: of the other steps of the trajectories that got credit.
    - ``credit/precision_random``: of all steps of failed trajectories, the precision by chance.
    - ``credit/share``: the share of all steps of failed trajectories that is credited.

    A precision is left out if none of its steps could be judged. If no trajectory failed, all four
    are left out.

    Args:
        environment: Searches the plans.
        trajectories: Indexed by ``batch.trajectory_N``.
        batch: The steps.
        credited_N: True for steps that got credit.
        steps: Largest number of steps of each of the three kinds that are judged.
        rng: Draws these steps.

    Returns:
        Metrics ``credit/precision*`` and ``credit/share``.
    """

    # Cached, because consecutive steps share a plan, and the three kinds share steps.
    @functools.cache
    def remaining(trajectory: int, taken: int) -> int | None:
        played = trajectories[trajectory]
        actions = [result.action for result in played.results[:taken]]
        return remaining_plan(environment, played.slot.task, actions)

    def shortens(row: int) -> bool | None:
        """True if the plan is shorter after the row's step; None if a plan is unknown."""
        trajectory = int(batch.trajectory_N[row])
        taken = int(batch.step_N[row])
        before = remaining(trajectory, taken)
        after = remaining(trajectory, taken + 1)
        if before is None or after is None:
            return None
        return after < before

    kinds = _kinds(batch, credited_N)
    metrics = {}

    # The share needs no plans, so it covers all steps and not only the sample.
    credited = kinds["credit/precision"].sum()
    failed = kinds["credit/precision_random"].sum()
    if failed:
        metrics["credit/share"] = float(credited / failed)
    for name, chosen_N in kinds.items():
        # Searching a shortest plan is slow, so only a sample is judged.
        sample = _sample(np.flatnonzero(chosen_N), steps, rng)
        known = [answer for answer in map(shortens, sample) if answer is not None]
        if known:
            metrics[name] = float(np.mean(known))

    return metrics


def _kinds(batch: StepBatch, credited_N: BoolArray) -> dict[str, BoolArray]:
    """Rows of each kind by the name of its metric; copies belong to none."""
    failed_N = batch.original_N & ~batch.success_N
    credited_N = failed_N & credited_N
    # Uncredited steps of the same trajectories: failures without credit may be of another kind.
    has_credit_N = np.isin(batch.trajectory_N, batch.trajectory_N[credited_N])
    return {
        "credit/precision": credited_N,
        "credit/precision_uncredited": failed_N & ~credited_N & has_credit_N,
        "credit/precision_random": failed_N,
    }


def _sample(rows: NDArray[np.int64], steps: int, rng: np.random.Generator) -> list[int]:
    """At most ``steps`` of the rows, drawn without replacement."""
    # Sorted, so that steps of one game mostly follow each other: environments keep few games open.
    return sorted(rng.choice(rows, min(steps, len(rows)), replace=False).tolist())


def remaining_plan(
    environment: PlanningEnvironment, task: Task, actions: Sequence[str]
) -> int | None:
    """Length of a shortest plan to win after these actions; None if unknown.

    If the environment fails, this is logged, because a diagnostic must not stop a run.
    """
    try:
        return environment.remaining_plan(task, actions)
    except EnvironmentFailure as failure:
        logger.warning("credit/precision leaves a step out: %s", failure)
        return None


DRAWS = 2000
"""Resamples of the bootstrap."""

# Smaller values of a step term, or of a change of advantage, count as rounding.
POSITIVE = 1e-6

What = Literal["credit", "raised", "step_term"]
CountArray = NDArray[np.int64]
"""Counts by group, ``(G, 4)``; see :func:`tally`."""


@dataclass(frozen=True)
class Helping:
    """Judged steps of one batch, and those that help.

    Attributes:
        row_S: Rows of the failed steps of active groups whose plans are known.
        group_S: Rollout group of each.
        helps_S: True where a shortest plan is shorter after the step than before.
        unknown: Number of steps left out because no plan was found before or after them.
    """

    row_S: IntArray
    group_S: IntArray
    helps_S: BoolArray
    unknown: int


class Rate(NamedTuple):
    """A share and its 95 % interval; NaN if undefined."""

    value: float
    low: float
    high: float


class StepCredit(NamedTuple):
    """Precision, recall and share of step credit.

    Attributes:
        precision: Of credited steps, the share that helps.
        recall: Of helping steps, the share credited.
        share: Of all steps, the share credited.
        gain: Precision minus the share of all steps that help, which is the precision by chance.
        credited: Number of credited steps.
        steps: Number of judged steps.
        clusters: Number of rollout groups, the clusters of the bootstrap.
    """

    precision: Rate
    recall: Rate
    share: Rate
    gain: Rate
    credited: int
    steps: int
    clusters: int


def helping_steps(environment: PlanningEnvironment, batch: StepBatch) -> Helping:
    """Judge the failed steps of a batch's active groups by the remaining plans.

    Args:
        environment: Plays the games named in ``batch.task_id_N``.
        batch: The steps.

    Returns:
        The judged steps, in the order of trajectory and time.

    Raises:
        StepBatchError: The batch has no task ids.
    """
    active = {group for group, _, _ in active_groups(batch.timeline)}
    rows: list[int] = []
    answers: list[bool | None] = []
    for row_T, task in _episodes(batch):
        # Methods can learn from a failure only if its group has a success.
        if batch.success_N[row_T[0]] or int(batch.group_N[row_T[0]]) not in active:
            continue
        actions = batch.action_N[row_T].tolist()
        plans = []
        # One plan more than there are steps: each step is judged by the plans before and after it.
        for taken in range(len(actions) + 1):
            plans.append(remaining_plan(environment, task, actions[:taken]))
        rows += row_T.tolist()
        for before, after in itertools.pairwise(plans):
            if before is None or after is None:
                answers.append(None)
            else:
                answers.append(after < before)

    # Steps without a plan before or after them are left out, and counted.
    known = np.array([answer is not None for answer in answers], dtype=np.bool_)
    row_S = np.array(rows, dtype=np.int64)[known]
    helps_S = np.array([bool(answer) for answer in answers], dtype=np.bool_)[known]
    return Helping(row_S, batch.group_N[row_S], helps_S, int((~known).sum()))


def judge_of(environment: Environment) -> ReplayingEnvironment:
    """Return the environment if it can judge steps.

    Raises:
        ConfigError: The environment has no planner.
    """
    if not isinstance(environment, ReplayingEnvironment):
        raise ConfigError(
            f"{type(environment).__name__} knows no plans: only environments with a planner "
            "(scpo.envs.base.ReplayingEnvironment) tell which steps help"
        )
    return environment


def with_states(environment: ReplayingEnvironment, batch: StepBatch) -> StepBatch:
    """Add the state columns by replaying the batch's actions; unchanged if it has them.

    Recorded rollouts hold only observations; estimators with ``state_key=state`` need more.

    Raises:
        RecordError: A game answers otherwise than it did when the rollouts were recorded.
    """
    if batch.state_N is not None:
        return batch
    state_N = np.empty(len(batch), dtype=object)
    next_state_N = np.empty(len(batch), dtype=object)
    for row_T, task in _episodes(batch):
        answers, states = environment.replay(task, batch.action_N[row_T].tolist())
        for row, answer in zip(row_T, answers, strict=True):
            if answer != batch.next_observation_N[row]:
                raise RecordError(
                    f"game {task.id}, step {batch.step_N[row]}: {batch.action_N[row]!r} was "
                    f"answered {batch.next_observation_N[row]!r} when it was recorded, now "
                    f"{answer!r}: these are not the games that were played; name their folder "
                    "(--games)"
                )
        state_N[row_T], next_state_N[row_T] = states[:-1], states[1:]
    return replace(batch, state_N=state_N, next_state_N=next_state_N)


def _episodes(batch: StepBatch) -> Iterator[tuple[IntArray, Task]]:
    """Yield the rows of every trajectory, in time order, and its task."""
    if batch.task_id_N is None:
        raise StepBatchError(
            "judging steps needs task_id_N, which this batch lacks: record the rollouts with task "
            "ids"
        )
    for k in range(len(batch.timeline.id_K)):
        row_T = batch.timeline.rows_of(k)
        yield row_T, Task(str(batch.task_id_N[row_T[0]]), str(batch.task_N[row_T[0]]), "")


def step_credited(diagnostics: CreditDiagnostics, method: TrainedMethod) -> BoolArray | None:
    """Rows credited by the shaper or by a positive step term; None for methods with neither.

    For a method with a shaper, the host's step term is not read, because the question is which
    steps SCPO credits.

    Args:
        diagnostics: Diagnostics of ``assign`` on a batch.
        method: The method.
    """
    if method.shaper is not None:
        # None if the scorer was unavailable in this step.
        if diagnostics.shaped is None:
            return None
        return diagnostics.shaped.credit_N > 0
    return _positive_step_term(diagnostics)


def credited_rows(
    batch: StepBatch, method: TrainedMethod, scorer: Scorer | None, seed: Seed, what: What
) -> BoolArray:
    """Rows with positive step credit.

    Args:
        batch: The steps.
        method: Method that assigns the credit.
        scorer: Needed by a method with a shaper.
        seed: Run seed and training step.
        what: ``credit``: rows that the shaper credits; ``raised``: rows whose advantage is higher
            with the shaper than without; ``step_term``: rows with a positive step term, the part of
            the advantage that separates the steps of a trajectory.

    Raises:
        ConfigError: The method has no credit of this kind.
    """
    _, diagnostics = assign(batch, scorer, method, seed=seed)
    answer: BoolArray | None = None
    if what == "step_term":
        answer = _positive_step_term(diagnostics)
    elif what == "credit":
        answer = None if diagnostics.shaped is None else diagnostics.shaped.credit_N > 0
    elif diagnostics.advantage_N is not None and diagnostics.unshaped_advantage_N is not None:
        answer = diagnostics.advantage_N - diagnostics.unshaped_advantage_N > POSITIVE
    if answer is None:
        raise ConfigError(
            f"method {method.name!r} has no {what}: credit and raised exist for methods with a "
            f"shaper, step_term for {', '.join(WITH_STEP_TERM)}"
        )
    return answer


def _positive_step_term(diagnostics: CreditDiagnostics) -> BoolArray | None:
    """Rows whose step term is above rounding; None for estimators without one.

    The step term of ``assign`` is read, not computed again, because its states may depend on a
    scorer or on a memory of earlier training steps.
    """
    if diagnostics.step_term_N is None:
        return None
    positive_N: BoolArray = diagnostics.step_term_N > POSITIVE
    return positive_N


def tally(helping: Helping, credited_N: BoolArray) -> CountArray:
    """Counts of one batch by group, ``(G, 4)``: steps, helping, credited, both.

    Args:
        helping: The judged steps of the batch.
        credited_N: True for rows of the batch that got credit.
    """
    _, group_id_S = np.unique(helping.group_S, return_inverse=True)
    credited_S = credited_N[helping.row_S]
    columns = (np.ones_like(credited_S), helping.helps_S, credited_S, credited_S & helping.helps_S)
    groups = group_id_S.max(initial=-1) + 1
    counts = [np.bincount(group_id_S, weights=column, minlength=groups) for column in columns]
    return np.stack(counts, axis=1).astype(np.int64)


def step_credit(counts: Sequence[CountArray], *, seed: int = 0) -> StepCredit:
    """Shares over all batches, with percentile intervals of a cluster bootstrap.

    Rollout groups are resampled, not steps, because the steps of a group share a game and a
    reference. The draws depend only on the seed and the number of groups: methods on the same
    rollouts get the same draws, so that their differences do not come from the draws.

    Args:
        counts: Results of :func:`tally`, one for each batch.
        seed: Seed of the draws.

    Raises:
        ConfigError: No step can be judged.
    """
    counts_G4 = np.concatenate(list(counts)) if counts else np.zeros((0, 4), np.int64)
    if not len(counts_G4):
        raise ConfigError(
            "no group of these rollouts has both a success and a failure: there is nothing to judge"
        )

    # A row of `draws` has the number of times that each group was drawn, its weight in the sums
    # whose ratios are the shares of a resample.
    groups = len(counts_G4)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(groups, np.full(groups, 1 / groups), DRAWS)
    drawn = _shares(draws @ counts_G4)

    # The shares of all groups, each with the percentiles of its resamples.
    steps, _, credited, _ = (int(total) for total in counts_G4.sum(axis=0))
    whole = _shares(counts_G4.sum(axis=0))
    rates = []
    for value, sample in zip(whole, drawn, strict=True):
        rates.append(Rate(float(value), *_interval(sample)))
    precision, recall, share, gain = rates
    return StepCredit(precision, recall, share, gain, credited, steps, groups)


def _shares(total: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
    """Precision, recall, share and gain from totals as in :func:`tally`, ``(..., 4)``.

    NaN where the denominator is 0.
    """
    steps, helping, credited, both = np.moveaxis(total.astype(np.float64), -1, 0)
    divide = functools.partial(np.true_divide, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = divide(both, credited)
        return (
            precision,
            divide(both, helping),
            divide(credited, steps),
            precision - divide(helping, steps),
        )


def _interval(sample: NDArray[np.float64]) -> tuple[float, float]:
    """The 2.5 and 97.5 % percentiles over the resamples in which the share is defined.

    NaN if the share is undefined in more than half of the resamples: the interval would mislead.
    """
    found = sample[np.isfinite(sample)]
    if len(found) < len(sample) / 2:
        return float("nan"), float("nan")
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
