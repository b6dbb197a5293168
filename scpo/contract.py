"""Checks of your own batches, estimators, scorers, matchers and token masks.

    scpo.contract.check_batch(batch)                          columns that contradict each other
    scpo.contract.check_estimator("gigpo", settings, batch)   a custom estimator
    scpo.contract.check_scorer(scorer, pairs)                 a custom scorer
    scpo.contract.check_matcher("kmp")                        a custom matcher
    scpo.contract.check_tokens(advantage_N, mask_NL, advantage_NL)    advantages on the tokens

Each returns None or raises an error that names the row, the pair or the value. No run and no
trainer calls them, so call them yourself: ``check_batch`` and ``check_tokens`` on the first batches
of a trainer of your own (they are cheap enough for its first steps), before and after
``scpo.assign``; the others in the test of the part that you write (CONTRIBUTING.md, "How to add a
part").
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.advantages.estimator import (
    OPTIONAL_FIELDS,
    Estimator,
    EstimatorSettings,
    check_fields,
    checked_step_term,
)
from scpo.advantages.outcomes import step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, ContractError
from scpo.shaping.drive import Scorer, TextPair, checked
from scpo.shaping.matcher import MatchRule, MatchTrace, answer, known_matcher, match
from scpo.steps import (
    BoolArray,
    FloatArray,
    IntArray,
    StepBatch,
    check_is_batch,
    place_of,
    read_only,
    refuse,
)


def check_batch(batch: StepBatch) -> None:
    """Check for contradictions that ``StepBatch`` accepts but that are nearly always a bug.

    The laws: the return is the sum of the rewards; success is a threshold on the return; no two
    steps have the same position; the rows of a group have one task. Warns if no trajectory has a
    sibling, which is right only for estimators that do not compare siblings (PPO).

    Raises:
        StepBatchError: A law is broken; names the row.
    """
    check_is_batch(batch)
    _check_groups(batch)
    line = batch.timeline
    rows = np.flatnonzero(batch.original_N)
    # In float64: a sum of many float32 rewards would differ from the return by rounding.
    summed_N = line.table(batch.reward_N.astype(np.float64)).sum(1)[line.slot_N]
    bad = rows[~np.isclose(summed_N[rows], batch.episode_return_N[rows], rtol=1e-4, atol=1e-4)]
    if len(bad):
        given = batch.episode_return_N[bad[0]]
        total = summed_N[bad[0]]
        refuse(batch, bad[0], f"episode_return_N is {given:g}, but the rewards of its trajectory "
                f"sum up to {total:g}: pass undiscounted rewards, each at its step")  # fmt: skip
    _check_success(batch, rows)

    # Sorted, so that equal positions are neighbours. Copies, which may share their original's
    # position, are not in `rows`.
    order = rows[np.argsort(batch.position_N[rows], kind="stable")]
    same = np.flatnonzero(np.diff(batch.position_N[order]) == 0)
    if len(same):
        row = order[same[0] + 1]
        other = order[same[0]]
        refuse(batch, row, f"position_N is {batch.position_N[row]}, as of row {other}: pass every "
                "row's place in your batch, np.arange(N) if it was never reordered")  # fmt: skip


def _check_groups(batch: StepBatch) -> None:
    """Check that the rows of a group have one task.

    Warns if every trajectory has a group of its own, as with ``group_N = trajectory_N``.

    Raises:
        StepBatchError: A group has rows of two tasks; names the row.
    """
    count = len(batch.timeline.id_K)
    if count > 1 and len(np.unique(batch.group_N)) == count:
        warnings.warn(
            f"each of the {count} trajectories has a group of its own, so that no step has a "
            "sibling to be compared with: pass one group_N for all rollouts of a task",
            stacklevel=3,
        )
    if batch.task_id_N is None:
        return
    # Sorted, so that rows of one group are neighbours.
    order = np.argsort(batch.group_N, kind="stable")
    group_N, task_N = batch.group_N[order], batch.task_id_N[order]
    bad = 1 + np.flatnonzero((group_N[1:] == group_N[:-1]) & (task_N[1:] != task_N[:-1]))
    if len(bad):
        row, other = order[bad[0]], order[bad[0] - 1]
        refuse(batch, row, f"task_id_N is {batch.task_id_N[row]!r}, but row {other} of its group "
                f"has {batch.task_id_N[other]!r}: a group is the rollouts of one task")  # fmt: skip


def _check_success(batch: StepBatch, rows: IntArray) -> None:
    """Check that some threshold on the return separates successes from failures.

    The threshold itself is not part of a batch, so only its existence can be checked.

    Raises:
        StepBatchError: A success has no larger return than a failure; names both rows.
    """
    won = rows[batch.success_N[rows]]
    lost = rows[~batch.success_N[rows]]
    if not len(won) or not len(lost):
        return
    # A threshold exists if the lowest return of a success exceeds the highest of a failure.
    low_row = won[batch.episode_return_N[won].argmin()]
    high_row = lost[batch.episode_return_N[lost].argmax()]
    low = batch.episode_return_N[low_row]
    high = batch.episode_return_N[high_row]
    if low <= high:
        refuse(batch, low_row, f"success_N is True at episode_return_N {low:g}, but row {high_row} "
                f"with {high:g} fails: success_N is episode_return_N > threshold")  # fmt: skip


def check_estimator(
    estimator: Estimator | str,
    settings: EstimatorSettings,
    batch: StepBatch,
    *,
    bonus_N: FloatArray | None = None,
    across_groups: bool = False,
    steps_differ: bool = False,
    averages_terms: bool = False,
    counts_copies: bool = False,
) -> None:
    """Check the laws of every row-level estimator, on a batch of yours.

    - Results are finite float32, one for each row; inputs are not modified; equal inputs give
      equal results.
    - Permuting the rows permutes the results. Renumbering groups, trajectories or positions in the
      same order changes nothing.
    - A copy gets its original's result, and no result depends on the number of copies.
    - The results of a group do not depend on other groups.
    - Siblings that took the same steps to the same return have the advantage 0.
    - Without ``step_term`` the valid steps of a trajectory have the same advantage.
    - The bonus is read if and only if ``requires`` contains ``step_bonus``, and a bonus of one step
      raises that step's advantage; an optional column is read only if it is required.
    - A success does not get less at every step than a failure of as many steps.
    - A group of one trajectory has finite advantages.
    - A penalty of invalid actions lowers the advantage of an invalid action.

    Copies are added to a batch that lacks them. A batch of one group cannot show whether groups
    affect each other: this gives a warning.

    Args:
        estimator: The estimator, or the name of a registered one.
        settings: Its settings.
        batch: Steps, with the optional columns that the estimator requires.
        bonus_N: A bonus for each row, equal among the copies of a step; None: one is made up.
        across_groups: The estimator normalises over the batch by design (EMPG): groups may affect
            each other.
        steps_differ: It distinguishes the steps of one trajectory by design (HCAPO, EMPG): siblings
            that took the same steps need equal advantages, but not 0, and no step term is needed.
        averages_terms: It averages its terms by design (HGPO with ``base_group``): the advantage
            without the step term need not be equal at the valid steps of a trajectory.
        counts_copies: Its statistics count copies by design. Not needed for our own estimators,
            which count copies as verl-agent's do (ledger 6).

    Raises:
        ConfigError: The name is unknown, the estimator works on tokens, its function does not take
            four arguments, or settings or batch have another type.
        ContractError: A law is broken; names the law and the row.
        StepBatchError: The batch lacks a column that the estimator requires.
    """
    entry = _row_level(estimator)
    if not isinstance(settings, entry.settings):
        raise ConfigError(
            f"settings of estimator {entry.name!r} are a {type(settings).__name__}, expected "
            f"{entry.settings.__name__}: pass scpo.load_method(<a method with it>).estimator"
        )

    check_is_batch(batch)
    check_fields(batch, entry)
    bonus_N = _made_up_bonus(batch) if bonus_N is None else np.asarray(bonus_N, np.float32)
    if not across_groups and len(np.unique(batch.group_N)) == 1:
        warnings.warn(
            "the batch has one group, so that it is not checked whether groups affect each other: "
            "pass a batch of two or more",
            stacklevel=2,
        )
    if not batch.is_copy_N.any():
        batch, bonus_N = _with_copies(batch, bonus_N)
    # In training a column that is not required may be absent, so it is removed here.
    not_required: dict[str, Any] = {
        name: None for need, name in OPTIONAL_FIELDS.items() if need not in entry.requires
    }
    batch = replace(batch, **not_required)

    def estimate(of: StepBatch, bonus: FloatArray) -> FloatArray:
        return np.asarray(entry.call(*_arguments(of, bonus, settings)))

    answer_N = _checked_answer(entry, batch, bonus_N, settings)
    _check_deterministic(entry, batch, bonus_N, answer_N, settings)
    _check_invariances(entry, batch, bonus_N, answer_N, estimate, across_groups=across_groups)
    if not (counts_copies or _is_ours(entry)):
        _check_uncounted(entry, batch, bonus_N, answer_N, estimate)
    _check_made_up_groups(entry, batch, bonus_N, estimate, steps_differ=steps_differ)
    _check_single(entry, batch, estimate)
    _check_sign(entry, batch, settings)
    _check_penalty(entry, batch, settings)
    step_N = None
    if entry.step_term is not None:
        step_N = checked_step_term(entry, *_arguments(batch, bonus_N, settings))
    if not steps_differ:
        _check_step_term(entry, batch, step_N, answer_N)
    if step_N is not None and not averages_terms:
        _check_rest(entry, batch, step_N, answer_N)


def _arguments(
    batch: StepBatch, bonus_N: FloatArray, settings: EstimatorSettings
) -> tuple[StepBatch, FloatArray, FloatArray, EstimatorSettings]:
    """Arguments of an estimator, read-only as in ``scpo.assign``, where metrics share them."""
    return_N = step_returns(batch, settings.gamma)
    return batch, read_only(return_N), read_only(bonus_N), settings


def _check_deterministic(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    answer_N: FloatArray,
    settings: EstimatorSettings,
) -> None:
    """Call the estimator and its step term again, on equal inputs.

    Raises:
        ContractError: A result differs from that of the first call; names the row.
    """
    # The second call gets copies: results cached for the same arrays would hide randomness.
    first = _arguments(batch, bonus_N, settings)
    again = _arguments(_take(batch, np.arange(len(batch))), bonus_N.copy(), settings)
    answers: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
        f"estimator {entry.name!r}": (answer_N, np.asarray(entry.call(*again)))
    }
    if entry.step_term is not None:
        answers[f"step_term of estimator {entry.name!r}"] = (
            checked_step_term(entry, *first),
            checked_step_term(entry, *again),
        )
    for what, (first_N, again_N) in answers.items():
        # The last bits may differ: threads may sum in another order.
        bad = np.flatnonzero(~np.isclose(first_N, again_N, rtol=1e-5, atol=1e-6))
        if len(bad):
            row = bad[0]
            raise ContractError(
                f"{what} is not deterministic: {place_of(batch, row)} has {first_N[row]:g}, and "
                f"{again_N[row]:g} in a second call with equal inputs: keep nothing from one call "
                "to the next, and draw no random numbers (runs are resumed and compared by seed)"
            )


def _check_invariances(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    answer_N: FloatArray,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
    *,
    across_groups: bool,
) -> None:
    """Check that the order of rows, copies, other groups and other ids do not matter.

    Raises:
        ContractError: One of them changes an advantage; names the row.
    """
    # Row order: reversing is the permutation that moves most rows.
    rows = np.arange(len(batch))[::-1]
    got_N = estimate(_take(batch, rows), bonus_N[rows])
    _same(entry, batch, rows, got_N, answer_N[rows], law=_ORDER)
    # Copies: `neighbours(0)` is the row of each step's original.
    original_N = batch.timeline.neighbours(0)
    rows = np.arange(len(batch))
    _same(entry, batch, rows, answer_N, answer_N[original_N], law=_COPIES)
    if not across_groups:
        _check_each_group(entry, batch, bonus_N, answer_N, estimate)
    for column in ("group_N", "trajectory_N", "position_N"):
        # The new numbers have the same order, which an estimator may read (first fit by positions).
        numbers_N = 10 * getattr(batch, column) + 3
        renumbered = replace(batch, **{column: numbers_N})
        got_N = estimate(renumbered, bonus_N)
        _same(entry, batch, rows, got_N, answer_N, law=_of_numbers(column))


def _is_ours(entry: Estimator) -> bool:
    """True for the estimators of this package, whose statistics count copies (ledger 6)."""
    return str(getattr(entry.function, "__module__", "")).startswith("scpo.advantages.")


def _check_uncounted(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    answer_N: FloatArray,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
) -> None:
    """Check that the advantages are the same without the copies.

    Raises:
        ContractError: An advantage depends on how often a step was copied; names the row.
    """
    rows = np.flatnonzero(batch.original_N)
    without_copies_N = estimate(_take(batch, rows), bonus_N[rows])
    _same(entry, batch, rows, without_copies_N, answer_N[rows], law=_COUNTED)


def _check_single(
    entry: Estimator,
    batch: StepBatch,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
) -> None:
    """Check that a group of one trajectory, whose siblings were lost, has finite advantages.

    Raises:
        ContractError: The estimator fails on it, or an advantage is not finite.
    """
    siblings = _five_siblings([10.0, 0.0, 0.0, 0.0, 0.0], batch)
    single = _take(siblings, np.flatnonzero(siblings.trajectory_N == siblings.trajectory_N[0]))
    whose = f"estimator {entry.name!r}, a group of one trajectory of {len(single)} steps"
    remedy = (
        "it has no sibling to be compared with: return 0 or the return itself, and do not divide "
        "by n - 1"
    )
    try:
        answer_N = estimate(single, np.zeros(len(single), np.float32))
    except ArithmeticError as error:
        raise ContractError(f"{whose}: {type(error).__name__}: {error}; {remedy}") from error
    if not np.isfinite(answer_N).all():
        raise ContractError(f"{whose}: got {answer_N.tolist()}, expected finite numbers; {remedy}")


def _check_sign(entry: Estimator, batch: StepBatch, settings: EstimatorSettings) -> None:
    """Check that a success does not get less at every step than a failure in the same states.

    Both the advantage and its step term are checked, for siblings with equal actions and for
    failures with other actions than the successes.

    Raises:
        ContractError: The success gets less at every step.
    """
    siblings = _five_siblings([10.0, 10.0, 0.0, 0.0, 0.0], batch)
    other_N = np.where(siblings.success_N, siblings.action_N, "other")
    bonus_N = np.zeros(len(siblings), np.float32)
    for made in (siblings, replace(siblings, action_N=other_N)):
        arguments = _arguments(made, bonus_N, settings)
        values: dict[str, NDArray[Any]] = {"advantage": np.asarray(entry.call(*arguments))}
        if entry.step_term is not None:
            values["step_term"] = checked_step_term(entry, *arguments)
        for name, value_N in values.items():
            # Steps of the first trajectory, a success, and of the last, a failure.
            won, lost = value_N[:3], value_N[-3:]
            if np.all(won < lost):
                raise ContractError(
                    f"estimator {entry.name!r} has the wrong sign: a success of reward 10 gets the "
                    f"{name} {won[0]:g} at its first step and a failure of reward 0 and as many "
                    f"steps {lost[0]:g}, likewise at every step; expected more for the success"
                )


def _check_penalty(entry: Estimator, batch: StepBatch, settings: EstimatorSettings) -> None:
    """Check that a penalty, passed as in ``scpo.assign``, lowers an invalid action's advantage.

    Raises:
        ContractError: It does not.
    """
    if not settings.invalid_penalty:
        return
    # A tiny penalty would be lost in rounding.
    penalty = max(settings.invalid_penalty, 0.1)
    siblings = _five_siblings([10.0, 10.0, 0.0, 0.0, 0.0], batch)
    # One step of the second trajectory, a success; all siblings took the same step in valid format.
    invalid = 4
    siblings = replace(siblings, valid_N=np.arange(len(siblings)) != invalid)
    values = []
    for amount in (0.0, penalty):
        changed = settings.model_copy(update={"invalid_penalty": amount})
        bonus_N = -np.float32(amount) * ~siblings.valid_N
        answer_N = entry.call(*_arguments(siblings, bonus_N, changed))
        values.append(float(answer_N[invalid]))
    without, with_penalty = values
    if not with_penalty < without:
        raise ContractError(
            f"estimator {entry.name!r} gives an invalid action the advantage {with_penalty:g} with "
            f"invalid_penalty={penalty:g} and {without:g} with 0, expected less: subtract it "
            "(row_scores of scpo.advantages.outcomes; bonus_N has it, too, if requires has "
            "'step_bonus'), or set invalid_penalty to 0 if it has none by design"
        )


def _check_step_term(entry: Estimator, batch: StepBatch, step_N: Any, answer_N: FloatArray) -> None:
    """Check that an estimator that separates a trajectory's valid steps does so by its step term.

    Metrics, tables and the precision of step credit read the step term. Invalid steps may differ
    without one, because estimators subtract their penalty from the outcome.

    Args:
        entry: The estimator.
        batch: The steps.
        step_N: Its step term; None without one.
        answer_N: Its advantages.

    Raises:
        ContractError: It lacks a step term, or the term separates no step; names two steps.
    """
    pair = _separated(batch, answer_N)
    if pair is None or (step_N is not None and _separated(batch, step_N) is not None):
        return
    row, other = pair
    missing = "has no step_term" if step_N is None else "has a step_term that separates none"
    raise ContractError(
        f"estimator {entry.name!r} separates the steps of one trajectory ({answer_N[other]:g} at "
        f"{place_of(batch, other)}, {answer_N[row]:g} at {place_of(batch, row)}) and {missing}: "
        "give Estimator(step_term=...) the part of the advantage that differs between steps, which "
        "metrics and tables show (gigpo.py), or pass steps_differ=True if it has no such part"
    )


def _check_rest(entry: Estimator, batch: StepBatch, step_N: Any, answer_N: FloatArray) -> None:
    """Check that all valid steps of a trajectory have the same advantage without the step term.

    Raises:
        ContractError: It is not; names two steps.
    """
    rest_N = answer_N - step_N
    pair = _separated(batch, rest_N)
    if pair is None:
        return
    row, other = pair
    raise ContractError(
        f"estimator {entry.name!r}: its step_term is not what separates the steps of a trajectory: "
        f"without it the advantage is {rest_N[other]:g} at {place_of(batch, other)} and "
        f"{rest_N[row]:g} at {place_of(batch, row)}, but it must be the same there. step_term is "
        "the part of the advantage that differs between steps, with its weight and sign "
        "(gigpo.py); pass averages_terms=True if it averages its terms by design"
    )


def _separated(batch: StepBatch, value_N: NDArray[Any]) -> tuple[int, int] | None:
    """Two valid steps of one trajectory with different values; None if no trajectory has them."""
    line = batch.timeline
    first: dict[int, int] = {}
    for row in np.flatnonzero(batch.original_N & batch.valid_N).tolist():
        other = first.setdefault(int(line.slot_N[row]), row)
        if not np.isclose(value_N[row], value_N[other], rtol=1e-4, atol=1e-5):
            return row, other
    return None


def _check_made_up_groups(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
    *,
    steps_differ: bool,
) -> None:
    """Check laws that the user's batch may not show, on made-up groups of five siblings.

    Raises:
        ContractError: Siblings that took the same steps have different advantages, or the bonus is
            read but not required, or required but not read.
    """
    # The mean of five returns of 0.1 is rounded, so that their computed deviation need not be 0.
    repeated = [_five_siblings(5 * [total], batch) for total in (0.0, 0.1, 10.0)]
    for siblings in repeated:
        _check_siblings(entry.name, siblings, estimate, steps_differ=steps_differ)
    # Some estimators read the bonus only if successes took another action in the same state.
    mixed = _five_siblings([10.0, 0.0, 10.0, 0.0, 0.0], batch)
    action_N = np.where(mixed.success_N, mixed.action_N, "other")
    with_bonus = [(batch, bonus_N)]
    for made in (*repeated, replace(mixed, action_N=action_N)):
        with_bonus.append((made, _made_up_bonus(made)))
    _check_bonus(entry, with_bonus, estimate)


# Of a batch, so many rows get a bonus by themselves; a smaller change is rounding.
MOST_BONUSES, SMALL_CHANGE = 30, 1e-5


class _Law(NamedTuple):
    """Law of a change that must not matter.

    Attributes:
        change: What was changed.
        rule: The law, and what to do in an estimator that breaks it.
    """

    change: str
    rule: str


_ORDER = _Law(
    "with the rows reversed",
    "an advantage does not depend on the order of rows: find a step's siblings and neighbours by "
    "group_N, trajectory_N and step_N (batch.timeline), not by their place in the arrays",
)
_COPIES = _Law(
    "a copy's original",
    "a row that a trainer duplicated gets its original's advantage: distinguish the two only for "
    "statistics, by batch.original_N",
)
_COUNTED = _Law(
    "without the copies in the batch",
    "how often a trainer duplicated a row means nothing: take statistics over batch.original_N, or "
    "pass counts_copies=True if they count copies by design, as verl-agent's do",
)
_GROUPS = _Law(
    "leaving out the other groups",
    "an advantage depends only on its group: take means and deviations within each group_N, or "
    "pass across_groups=True if it normalises over the batch by design",
)


def _of_numbers(column: str) -> _Law:
    """The law of numbers that are only names."""
    return _Law(
        f"with 10 * {column} + 3",
        f"the numbers in {column} tell rows apart and mean nothing else: do not compute with them",
    )


def _five_siblings(totals: Sequence[float], batch: StepBatch) -> StepBatch:
    """A group of five siblings that took the same three steps, from states a, b and c to d.

    Args:
        totals: The return of each; above 0 is a success.
        batch: A batch with the optional columns that the group shall have.
    """
    states = np.array(["a", "b", "c", "d"], object)
    count = 15
    step_N = np.tile(np.arange(3), 5)
    return_N = np.repeat(np.array(totals, np.float32), 3)
    won_N = return_N > 0
    columns: dict[str, Any] = {
        "group_N": np.zeros(count), "trajectory_N": np.repeat(np.arange(5), 3), "step_N": step_N,
        "task_N": np.full(count, "task", object), "anchor_N": states[step_N],
        "action_N": states[step_N + 1], "next_observation_N": states[step_N + 1],
        "reward_N": return_N * (step_N == 2), "valid_N": np.ones(count, bool),
        "episode_return_N": return_N, "success_N": won_N, "won_N": won_N,
        "position_N": np.arange(count), "is_copy_N": np.zeros(count, bool),
    }  # fmt: skip
    optional = {
        "state_N": states[step_N], "next_state_N": states[step_N + 1],
        "state_id_N": step_N, "next_state_id_N": step_N + 1,
        # The policy grows more certain with each step; failures have no hindsight.
        "entropy_N": 1.0 - step_N / 3,
        "hindsight_logprob_N": np.where(won_N, step_N / 3 - 1.0, np.nan),
    }  # fmt: skip
    for name, column in optional.items():
        if getattr(batch, name) is not None:
            columns[name] = column
    return StepBatch(**columns)


def _check_siblings(
    name: str,
    siblings: StepBatch,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
    *,
    steps_differ: bool,
) -> None:
    """Check that siblings that took the same steps have the advantage 0, or equal ones.

    Raises:
        ContractError: They have not; names the step and its advantages.
    """
    answer_N = estimate(siblings, np.zeros(len(siblings), np.float32))
    answer_KT = answer_N.reshape(5, -1)
    wanted_KT = answer_KT[:1] if steps_differ else np.zeros_like(answer_KT)
    bad = np.argwhere(~np.isclose(answer_KT, wanted_KT, rtol=1e-5, atol=1e-6))
    if len(bad):
        step = bad[0][1]
        wanted = "equal ones" if steps_differ else "0"
        hint = (
            "compare a step with its siblings' by what happened in it"
            if steps_differ
            else "subtract the group's mean (scpo.advantages.groups), or pass steps_differ=True if "
            "it tells the steps of one trajectory apart by design"
        )
        raise ContractError(
            f"estimator {name!r}: five siblings took the same steps to the "
            f"return {siblings.episode_return_N[0]:g}, and step {step} has the advantages "
            f"{', '.join(f'{value:g}' for value in answer_KT[:, step])}, expected {wanted}, since "
            f"none is better than another: {hint}"
        )


def _check_bonus(
    entry: Estimator,
    cases: Sequence[tuple[StepBatch, FloatArray]],
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
) -> None:
    """Check that the estimator reads the bonus if and only if it declares it.

    Several batches are tried, because the bonus may have no effect in one: GiGPO's has an effect
    only if states repeat.

    Raises:
        ContractError: The bonus is read but not declared, or declared but not read.
    """
    reads = any(
        not np.array_equal(estimate(batch, np.zeros_like(bonus_N)), estimate(batch, bonus_N))
        for batch, bonus_N in cases
    )
    declared = "step_bonus" in entry.requires
    if reads and not declared:
        raise ContractError(
            f"estimator {entry.name!r} reads the bonus, and no shaper gives one to an estimator "
            "that does not declare it: add 'step_bonus' to requires"
        )
    if declared and not reads:
        raise ContractError(
            f"estimator {entry.name!r} has 'step_bonus' in requires and gives the same advantages "
            f"with and without a bonus, so that method=scpo method.host={entry.name} would have "
            "no effect: add bonus_N to step_return_N in what it compares, or remove 'step_bonus' "
            "from requires"
        )
    if declared:
        _check_sign_of_bonus(entry, [batch for batch, _ in cases], estimate)


def _check_sign_of_bonus(
    entry: Estimator,
    batches: Sequence[StepBatch],
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
) -> None:
    """Check that a bonus of one step raises the advantage of that step somewhere.

    It need not do so everywhere: a step without siblings in its state has nothing to exceed.

    Raises:
        ContractError: It lowers the advantage wherever it has an effect; names the row.
    """
    lowered = ""
    for batch in batches:
        without_N = estimate(batch, np.zeros(len(batch), np.float32))
        # Each row is a call, so that of a large batch a few of its rows do.
        rows = np.flatnonzero(batch.original_N)
        for row in rows[:: max(1, len(rows) // MOST_BONUSES)]:
            # Copies of a step have its bonus.
            same_N = (batch.trajectory_N == batch.trajectory_N[row]) & (
                batch.step_N == batch.step_N[row]
            )
            change = estimate(batch, same_N.astype(np.float32))[row] - without_N[row]
            if change > SMALL_CHANGE:
                return
            if change < -SMALL_CHANGE and not lowered:
                lowered = (
                    f"{place_of(batch, row)} has advantage {without_N[row]:g}, and "
                    f"{without_N[row] + change:g} with a bonus of 1 at this step only"
                )
    if lowered:
        raise ContractError(
            f"estimator {entry.name!r} has the wrong sign at the bonus: {lowered}, likewise "
            "wherever the bonus has an effect; expected more: add bonus_N to step_return_N"
        )


def _check_each_group(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    answer_N: FloatArray,
    estimate: Callable[[StepBatch, FloatArray], FloatArray],
) -> None:
    """Check that each group has the same advantages by itself as in the whole batch.

    Raises:
        ContractError: An advantage depends on another group; names the row.
    """
    for group in np.unique(batch.group_N):
        rows = np.flatnonzero(batch.group_N == group)
        by_itself_N = estimate(_take(batch, rows), bonus_N[rows])
        _same(entry, batch, rows, by_itself_N, answer_N[rows], law=_GROUPS)


def check_scorer(scorer: Scorer, pairs: Sequence[TextPair], *, tolerance: float = 1e-6) -> None:
    """Check the laws of every scorer, on pairs of step texts of yours.

    Scores are numbers in [0, 1], one for each pair; the same pairs get the same scores again; the
    score of a pair does not depend on the other pairs of a call, because a run scores only the
    pairs that its matchers read. If all pairs get the same score, this gives a warning.

    Not checked, because all calls are in one process: that another process gives the same scores. A
    resumed run is a new process, where Python's ``hash()`` of a text, and the order of a set of
    texts, are others; use ``zlib.crc32`` and ``sorted``.

    Args:
        scorer: The scorer, e.g. from ``scpo.load_scorer``.
        pairs: Two step texts each, at least two pairs.
        tolerance: Largest allowed difference of a pair's scores in calls with different other
            pairs: a model whose batches are padded to other shapes rounds differently
            (docs/scoring.md).

    Raises:
        ScorerError: It failed, or gave an invalid score; names the pair.
        ContractError: A law is broken, or there are fewer than two pairs; names the pair.
    """
    pairs = list(pairs)
    if len(pairs) < 2:
        raise ContractError(f"pairs has {len(pairs)} pairs of step texts; expected two or more")
    name = getattr(scorer, "name", type(scorer).__name__)
    score_P = checked(scorer, pairs)
    alone_P = np.array([checked(scorer, [pair])[0] for pair in pairs])
    others = (
        ("asked again for the same pairs", checked(scorer, pairs), 0.0),
        ("asked in the opposite order", checked(scorer, pairs[::-1])[::-1], tolerance),
        ("asked for one pair at a time", alone_P, tolerance),
    )
    for how, other_P, allowed in others:
        apart_P = np.abs(other_P - score_P)
        worst = int(np.argmax(apart_P))
        if apart_P[worst] > allowed:
            raise ContractError(
                f"scorer {name!r} gave {score_P[worst]:g} to the pair {pairs[worst]!r}, and "
                f"{other_P[worst]:g} when it was {how}; allowed is a difference of {allowed:g}: "
                "credit must not depend on what else a matcher reads"
            )
    if np.ptp(score_P) == 0:
        warnings.warn(
            f"scorer {name!r} gave {score_P[0]:g} to each of the {len(pairs)} pairs", stacklevel=2
        )


# Size of the made-up problems of ``check_matcher``, and their number for each of its rules.
MOST_REFERENCE, MOST_FAILED, PROBLEMS = 5, 7, 60


def check_matcher(matcher: str, *, longer: bool = False) -> None:
    """Check the laws of every matcher, on made-up similarities (the same ones at each call).

    - It asks only for cells that exist, at most as often as there are cells.
    - Its walk consists of steps of the processing order.
    - A failed step is credited at most once, with its similarity in the matrix and a credit in
      [0, 1]; monotonic credit uses each position at most once, in ascending order.
    - The same similarities give the same result again.
    - A step whose similarities to all reference steps are below θ is not credited.
    - A score equal to θ matches: a failed trajectory of one step and a reference of one step earn
      ``rule.credit(score)``.

    Args:
        matcher: Name of a registered matcher.
        longer: It needs several matches by design, so that the last law does not apply.

    Raises:
        ConfigError: The name is unknown.
        ContractError: A law is broken; names the law and the value.
    """
    known_matcher(matcher)
    random = np.random.default_rng(0)
    for theta in (0.3, 0.7, 1.0):
        rule = MatchRule(theta, 0.2, matcher=matcher)
        repeated = replace(rule, monotonic=False)
        for variant in (rule, repeated, replace(repeated, after_full_match="restart")):
            for _ in range(PROBLEMS):
                _check_match(variant, random)
        score = np.float32(theta)
        earned_l = _matched(rule, np.full((1, 1), score), np.zeros((1, 1)), (0,)).credit_l(1)
        if not longer and earned_l[0] != rule.credit(score):
            raise ContractError(
                f"matcher {matcher!r}: a failed step whose similarity to the only reference step "
                f"is θ = {theta:g} earned {earned_l[0]:g}; expected is rule.credit(score) = "
                f"{rule.credit(score):g}. Compare with score >= rule.theta, or pass longer=True "
                "if it needs several matches by design"
            )


def _check_match(rule: MatchRule, random: np.random.Generator) -> None:
    """Check the laws on one made-up problem.

    Raises:
        ContractError: A law is broken.
    """
    m = int(random.integers(1, MOST_REFERENCE + 1))
    length = int(random.integers(0, MOST_FAILED + 1))
    # Few values, one of them θ itself, so that matches, ties and misses are all frequent.
    values = np.array([0, 0.25, rule.theta, 0.9, 1], np.float32)
    failed = random.choice(values, (m, length))
    among = random.choice(values, (m, m))
    # A tuple, as in a run.
    order = tuple(random.permutation(length).tolist())
    trace = _matched(rule, failed, among, order)
    for cell in trace.credited:
        if np.float32(cell.similarity) != failed[cell.u, cell.v]:
            raise ContractError(
                f"matcher {rule.matcher!r} credited {cell!r}, whose similarity is "
                f"{failed[cell.u, cell.v]:g}: return the score that was read of that cell"
            )
        most = failed[:, cell.v].max()
        if most < rule.theta:
            raise ContractError(
                f"matcher {rule.matcher!r} credited {cell!r}, but the similarities of step "
                f"{cell.v} to the {m} reference steps are at most {most:g}, below "
                f"θ = {rule.theta:g}: credit steps with score >= rule.theta only"
            )
    again = _matched(rule, failed, among, order)
    if again != trace:
        raise ContractError(
            f"matcher {rule.matcher!r} returned {trace!r}, and {again!r} for the same "
            "similarities: keep nothing from one call to the next"
        )


def _matched(
    rule: MatchRule, failed: NDArray[Any], among: NDArray[Any], order: Sequence[int]
) -> MatchTrace:
    """The trace of a matcher.

    Raises:
        ContractError: The matcher breaks a law, or raises an error of its own.
    """
    m, length = failed.shape
    try:
        return answer(match(rule, m, order), {"failed": failed, "self": among})
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(
            f"matcher {rule.matcher!r} failed with a reference of {m} steps and a failed "
            f"trajectory of {length}: {type(error).__name__}: {error}. It is called as "
            "f(rule, m, order)"
        ) from error


def check_tokens(advantage_N: FloatArray, mask_NL: BoolArray, advantage_NL: NDArray[Any]) -> None:
    """Check that each step's response tokens have its advantage, and all other tokens 0.

    It detects a batch that was reordered, padded or cut before the advantages were applied to it.

    Args:
        advantage_N: Advantage of each row, from ``scpo.assign``.
        mask_NL: True on the response tokens that are trained on.
        advantage_NL: The advantages that the loss reads.

    Raises:
        ContractError: A token has another value; names row and token.
    """
    advantage_N = np.asarray(advantage_N)
    mask_NL = np.asarray(mask_NL, bool)
    got_NL = np.asarray(advantage_NL)
    # Shapes first: NumPy would compare one row with all of them.
    if mask_NL.shape != got_NL.shape or len(mask_NL) != len(advantage_N):
        raise ContractError(
            f"advantage_N has {len(advantage_N)} rows, mask_NL is {mask_NL.shape}, advantage_NL "
            f"{got_NL.shape}; pass one row for each step, and mask and advantages of one shape"
        )

    wanted_NL = np.where(mask_NL, advantage_N[:, None], 0)
    bad = np.argwhere(~np.isclose(got_NL, wanted_NL, rtol=1e-5, atol=1e-7))
    if len(bad):
        row, token = bad[0]
        reason = f"its step has {advantage_N[row]:g}"
        if not mask_NL[row, token]:
            reason = f"not a response token: 0 instead of {advantage_N[row]:g}"
        raise ContractError(
            f"row {row}, token {token}: advantage {got_NL[row, token]:g}, expected "
            f"{wanted_NL[row, token]:g} ({reason})"
        )


def _row_level(estimator: Estimator | str) -> Estimator:
    """Look up an estimator and check that it takes a batch, not tokens (PPO's GAE).

    Raises:
        ConfigError: It is unknown, works on tokens, or takes other arguments.
    """
    entry = ESTIMATORS.get(estimator) if isinstance(estimator, str) else estimator
    if not isinstance(entry, Estimator) or entry.level != "row":
        names = ", ".join(name for name, known in ESTIMATORS.items() if known.level == "row")
        raise ConfigError(
            f"estimator {estimator!r} is not one that works on rows; allowed: an Estimator, or "
            f"{names}"
        )
    _check_takes_four(entry)
    return entry


def _check_takes_four(entry: Estimator) -> None:
    """Check the number of arguments by the signature.

    A TypeError of a call could also come from inside the function.
    """
    try:
        signature = inspect.signature(entry.function)
    except ValueError:
        return  # a builtin without a signature
    try:
        signature.bind(*range(4))
    except TypeError:
        raise ConfigError(
            f"the function of estimator {entry.name!r} takes {signature}, expected four arguments: "
            "(batch, step_return_N, bonus_N, settings)"
        ) from None


def _checked_answer(
    entry: Estimator,
    batch: StepBatch,
    bonus_N: FloatArray,
    settings: EstimatorSettings,
) -> FloatArray:
    """Advantages (N,) of a batch, after the checks that need only one call.

    Raises:
        ContractError: The estimator modified an input or reads a column that it does not require,
            or its result has another type or shape or is not finite.
    """
    try:
        given = entry.call(*_arguments(batch, bonus_N, settings))
    except (TypeError, AttributeError) as error:
        missing = [
            f"{need!r} for {name}"
            for need, name in OPTIONAL_FIELDS.items()
            if need not in entry.requires
        ]
        if "NoneType" not in str(error) or not missing:
            raise
        line = traceback.extract_tb(error.__traceback__)[-1]
        needs = " or ".join(missing)
        raise ContractError(
            f"estimator {entry.name!r} reads something that is None, line {line.lineno}: "
            f"`{line.line}` ({error}). Batches have an optional column only where it is required: "
            f"add {needs} to requires"
        ) from error

    answer_N = np.asarray(given)
    if answer_N.dtype != np.float32 or answer_N.shape != (len(batch),):
        got = f"{answer_N.dtype} {answer_N.shape}"
        wanted = f"float32 ({len(batch)},)"
        if given is None:
            got, wanted = "returned None", f"an array of {wanted}"
        elif not isinstance(given, np.ndarray):
            got = f"returned a {type(given).__name__} (as an array: {got})"
            wanted = f"an array of {wanted}"
        else:
            got = f"gave {got}"
        raise ContractError(f"estimator {entry.name!r} {got}, expected {wanted}")

    bad = np.flatnonzero(~np.isfinite(answer_N))
    if len(bad):
        raise ContractError(
            f"estimator {entry.name!r}: {place_of(batch, bad[0])} has advantage {answer_N[bad[0]]}"
        )
    return answer_N


def _same(
    entry: Estimator,
    batch: StepBatch,
    rows: IntArray,
    got: FloatArray,
    wanted: FloatArray,
    *,
    law: _Law,
) -> None:
    """Check that advantages are equal after a change that must not matter.

    The last bits may differ: sums run in another order.

    Args:
        entry: The estimator.
        batch: The batch before the change.
        rows: Rows of the batch that the advantages belong to.
        got: Advantages after the change, one for each of ``rows``.
        wanted: Advantages before the change, one for each of ``rows``.
        law: The violated law, for the message.

    Raises:
        ContractError: They differ; names the first row.
    """
    bad = np.flatnonzero(~np.isclose(got, wanted, rtol=1e-5, atol=1e-6))
    if len(bad):
        place = place_of(batch, rows[bad[0]])
        raise ContractError(
            f"estimator {entry.name!r}: {place} has advantage {wanted[bad[0]]:g}, {law.change} "
            f"{got[bad[0]]:g}; {law.rule}"
        )


def _with_copies(batch: StepBatch, bonus_N: FloatArray) -> tuple[StepBatch, FloatArray]:
    """The batch and its bonus with a copy of every third row, as trainers fill mini-batches."""
    rows = np.concatenate([np.arange(len(batch)), np.arange(0, len(batch), 3)])
    is_copy_N = np.arange(len(rows)) >= len(batch)
    columns = {name: column[rows] for name, column in _columns(batch).items()}
    return replace(batch, **columns | {"is_copy_N": is_copy_N}), bonus_N[rows]


def _take(batch: StepBatch, rows: IntArray) -> StepBatch:
    """Batch of these rows in this order; it must hold whole trajectories."""
    return replace(batch, **{name: column[rows] for name, column in _columns(batch).items()})


def _columns(batch: StepBatch) -> dict[str, NDArray[Any]]:
    """Columns that the batch has, by name; optional ones may be absent."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if value is not None}


def _made_up_bonus(batch: StepBatch) -> FloatArray:
    """A number in [0, 1) for each step, shared by its copies.

    A hash of trajectory and step, as shaders use it. A generator would give a row another number
    after rows are permuted or left out.
    """
    wave = np.sin(12.9898 * batch.trajectory_N + 78.233 * batch.step_N)
    return np.modf(np.abs(wave) * 43758.5453)[0].astype(np.float32)
