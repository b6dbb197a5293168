"""How often credit falls on a step that helps: precision, recall and share credited, with intervals, without training.

A step helps if a shortest plan to win is shorter after it than before. Looked at are the failed trajectories of groups
that have a success too: where a method can know what success looks like.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.credit.assign import assign, resolve
from scpo.diagnostics.precision import remaining_plan
from scpo.envs.base import PlanningEnvironment, Task
from scpo.errors import ConfigError, StepBatchError
from scpo.schema.method import TrainedMethod
from scpo.shaping.drive import Scorer
from scpo.shaping.order import Seed
from scpo.shaping.reference import active_groups
from scpo.steps import BoolArray, IntArray, StepBatch

DRAWS = 2000
POSITIVE = 1e-6  # of a normalised term; what is below is rounding
What = Literal["credit", "raised", "step_term"]
CountArray = NDArray[np.int64]


@dataclass(frozen=True)
class Helping:
    """Which steps of one batch are looked at, and which of them help.

    Attributes:
        row_S: Rows of the failed steps of active groups whose plans are known.
        group_S: Their group.
        helps_S: Whether a shortest plan is shorter after the step.
        unknown: Steps that are left out, for no plan was found before or after them.
    """

    row_S: IntArray
    group_S: IntArray
    helps_S: BoolArray
    unknown: int


class Rate(NamedTuple):
    """A share and its 95 % interval."""

    value: float
    low: float
    high: float


class StepCredit(NamedTuple):
    """``precision``: of credited steps, the share that helps; ``recall``: of those that help, the share credited.

    ``share``: of all steps, the share credited; ``gain``: precision above the share of all steps that help.
    """

    precision: Rate
    recall: Rate
    share: Rate
    gain: Rate
    credited: int
    steps: int
    clusters: int


def helping_steps(environment: PlanningEnvironment, batch: StepBatch) -> Helping:
    """Judge the failed steps of the active groups of a batch by the plans that remain.

    Args:
        environment: Knows the games by the ids in ``batch.task_id_N``.
        batch: The steps.

    Raises:
        StepBatchError: The batch does not say which task a row is of.
    """
    line, task_id_N = batch.timeline, batch.task_id_N
    if task_id_N is None:
        raise StepBatchError("judging steps needs task_id_N, which this batch lacks: record the rollouts with task ids")
    rows: list[int] = []
    answers: list[bool | None] = []
    for _, _, failed in active_groups(line):
        for k in failed:
            row_T = line.rows_of(k)
            task = Task(str(task_id_N[row_T[0]]), str(batch.task_N[row_T[0]]), "")
            actions = [str(action) for action in batch.action_N[row_T]]
            left = [remaining_plan(environment, task, actions[:taken]) for taken in range(len(actions) + 1)]
            rows += row_T.tolist()
            answers += [
                None if before is None or after is None else after < before
                for before, after in itertools.pairwise(left)
            ]
    known = np.array([answer is not None for answer in answers], dtype=np.bool_)
    row_S = np.array(rows, dtype=np.int64)[known]
    helps_S = np.array([bool(answer) for answer in answers], dtype=np.bool_)[known]
    return Helping(row_S, batch.group_N[row_S], helps_S, int((~known).sum()))


def credited_rows(batch: StepBatch, method: TrainedMethod, scorer: Scorer | None, seed: Seed, what: What) -> BoolArray:
    """Rows with positive step credit.

    Args:
        batch: The steps.
        method: What assigns the credit.
        scorer: For a method with a shaper.
        seed: Run seed and training step.
        what: ``credit``: the shaper's; ``raised``: rows whose advantage is higher with the shaper than without;
            ``step_term``: those with a positive part of the advantage that tells steps apart.

    Raises:
        ConfigError: The method has none of the kind.
    """
    _, diagnostics = assign(batch, scorer, method, seed=seed)
    if what != "step_term":
        shaped, unshaped_N, advantage_N = diagnostics.shaped, diagnostics.unshaped_advantage_N, diagnostics.advantage_N
        if shaped is None or unshaped_N is None or advantage_N is None:
            raise ConfigError(f"method {method.name!r} has no shaper and so no {what}; allowed for it: step_term")
        return shaped.credit_N > 0 if what == "credit" else advantage_N - unshaped_N > POSITIVE
    step_term = resolve(method).step_term
    if step_term is None:
        raise ConfigError(f"estimator {method.estimator.name!r} gives every step its trajectory's outcome")
    term_N = step_term(batch, diagnostics.step_return_N, diagnostics.bonus_N, method.estimator)
    positive_N: BoolArray = np.asarray(term_N) > POSITIVE
    return positive_N


def tally(helping: Helping, credited_N: BoolArray) -> CountArray:
    """Counts of one batch by group, ``(G, 4)``: steps, helping, credited, both."""
    _, place_S = np.unique(helping.group_S, return_inverse=True)
    credited_S = credited_N[helping.row_S]
    columns = (np.ones_like(credited_S), helping.helps_S, credited_S, credited_S & helping.helps_S)
    groups = place_S.max(initial=-1) + 1
    counts = [np.bincount(place_S, weights=column, minlength=groups) for column in columns]
    return np.stack(counts, axis=1).astype(np.int64)


def step_credit(counts: Sequence[CountArray], *, seed: int = 0) -> StepCredit:
    """The shares over all batches, with percentile intervals of a cluster bootstrap.

    Steps of a failure, and failures of a group, share a game and a reference; so rollout groups are drawn, not steps.
    The draws depend on the seed and the number of groups alone: methods on the same rollouts get the same ones.

    Args:
        counts: As :func:`tally` gives them, one for each batch.
        seed: Of the draws.

    Raises:
        ConfigError: There is not one step to look at.
    """
    counts_G4 = np.concatenate(list(counts)) if counts else np.zeros((0, 4), np.int64)
    if not len(counts_G4):
        raise ConfigError("no group of these rollouts has both a success and a failure: there is nothing to judge")
    draws = np.random.default_rng(seed).multinomial(len(counts_G4), np.full(len(counts_G4), 1 / len(counts_G4)), DRAWS)
    drawn = _shares(draws @ counts_G4)
    steps, _, credited, _ = (int(total) for total in counts_G4.sum(axis=0))
    rates = (
        Rate(float(value), *_interval(sample))
        for value, sample in zip(_shares(counts_G4.sum(axis=0)), drawn, strict=True)
    )
    return StepCredit(*rates, credited, steps, len(counts_G4))


def _shares(total: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
    """Precision, recall, share and gain of totals in the last axis; NaN of none."""
    steps, helping, credited, both = np.moveaxis(total.astype(np.float64), -1, 0)
    divide = functools.partial(np.true_divide, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = divide(both, credited)
        return precision, divide(both, helping), divide(credited, steps), precision - divide(helping, steps)


def _interval(sample: NDArray[np.float64]) -> tuple[float, float]:
    found = sample[np.isfinite(sample)]
    if len(found) < len(sample) / 2:
        return float("nan"), float("nan")
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
