"""Diagnostics of a credit assignment: metrics of a training step, and their arrays."""

import logging
from dataclasses import dataclass

import numpy as np

from scpo.advantages.anchors import StateSettings, anchor_groups, state_groups
from scpo.advantages.estimator import EstimatorSettings
from scpo.advantages.groups import Float64Array
from scpo.schema.method import TrainedMethod
from scpo.shaping.drive import Pairs
from scpo.shaping.order import Seed, descents, processing_key
from scpo.shaping.reference import active_groups, failed_groups
from scpo.shaping.shaper import FailedMatch, Shaped
from scpo.shaping.step_text import after_no_op
from scpo.steps import BoolArray, FloatArray, IntArray, StepBatch

STAGES = ("text", "scoring", "self_similarity", "matching", "accumulation", "metrics")
"""The rows of the paper's timing table; ``text`` corresponds to its tokenizer decode."""

# Warn if more than this share of the scored pairs reaches θ, unless there are fewer pairs than
# ABOVE_THETA_PAIRS: in a small sample a large share may be chance.
ABOVE_THETA_WARNING = 0.8
ABOVE_THETA_PAIRS = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CreditDiagnostics:
    """Diagnostics of ``assign``.

    Attributes:
        metrics: Deterministic values, by the names of the diagnostics table. A ratio whose
            denominator is 0 (credited steps per failed trajectory when none failed, exact share
            when nothing was credited) is left out, not written as 0. Amounts are never left out:
            those of credit and pairs are 0 for a method without a shaper, and if the scorer is
            unavailable, when ``scpo/shaping_skipped`` is 1.
        timings: Seconds per stage, ``timing_s/scpo/*``, for all stages; 0 without a shaper.
        step_return_N: Discounted step returns, unshaped.
        bonus_N: Added to the step returns: alpha * credit - invalid penalty; with ``added_to:
            advantages`` the credit is only in ``advantage_N``.
        shaped: The shaper's answer with one record per failed trajectory; None for a method without
            a shaper, and for one whose scorer is unavailable.
        advantage_N: The advantages; None for a token-level estimator.
        unshaped_advantage_N: The advantages without the credit; None for a method without a shaper.
        anchor_group_N: Dense id of every row's anchor group, as the host forms them; None for a
            token-level estimator.
        step_term_N: The part of the advantage that separates the steps of a trajectory; None for
            an estimator without a step term.
    """

    metrics: dict[str, float]
    timings: dict[str, float]
    step_return_N: FloatArray
    bonus_N: FloatArray
    shaped: Shaped | None
    advantage_N: FloatArray | None = None
    unshaped_advantage_N: FloatArray | None = None
    anchor_group_N: IntArray | None = None
    step_term_N: Float64Array | None = None


def stage_timings(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of every stage by its name in the logs.

    0 for a stage that did not run, so that runs with and without a shaper log the same columns.
    """
    return {f"timing_s/scpo/{stage}": seconds.get(stage, 0.0) for stage in STAGES}


def credit_metrics(
    batch: StepBatch, config: TrainedMethod, shaped: Shaped | None, seed: Seed
) -> dict[str, float]:
    """Metrics of the batch, of credit and of scored pairs, over rows without copies.

    Copies are left out because their number depends on the trainer and its number of GPUs.
    ``credit/exact`` counts what the matcher credited, even where a control moved the credit to
    other steps.

    Args:
        batch: The steps.
        config: The method.
        shaped: The shaper's answer, after the controls; None without a shaper or a scorer.
        seed: Run seed and training step.

    Returns:
        Values by their names in ``metrics.jsonl``, as described in ``CreditDiagnostics``.
    """
    original_N = batch.original_N
    failed = int((original_N & ~batch.success_N).sum())
    matches = shaped.matches if shaped else ()
    # The paper averages the number of credited steps over failures with a successful sibling.
    siblings = [match for match in matches if match.age is None]
    alpha = config.shaper.alpha if config.shaper else 0.0
    # In float64: float32 sums over thousands of steps would depend on their order.
    credit = sum(float(match.credit_l.sum(dtype=np.float64)) for match in matches)
    credited = sum(map(_credited, matches))

    # Credited cells, and those with equal texts (74 % in the paper, appendix C.2).
    cells = exact = 0
    for match in matches:
        for cell in match.trace.credited:
            # A match whose similarity is below λ earns nothing.
            if cell.credit > 0:
                cells += 1
                exact += match.task.reference[cell.u] == match.task.failed[cell.v]

    return {
        **_batch_metrics(batch, config, seed),
        **_ratio("credit/steps", sum(map(_credited, siblings)), len(siblings)),
        **_ratio("credit/steps_all", credited, int((~batch.timeline.success_K).sum())),
        **_ratio("credit/aux_mean", alpha * credit, int(original_N.sum())),
        **_ratio("credit/aux_mean_failed", alpha * credit, failed),
        **_ratio("credit/exact", exact, cells),
        **_pair_metrics(shaped.pairs if shaped else Pairs(0, 0, 0, 0, 0)),
        "scpo/shaping_skipped": float(config.shaper is not None and shaped is None),
    }


def _credited(match: FailedMatch) -> int:
    """Number of credited steps of a failed trajectory."""
    return int((match.credit_l > 0).sum())


def buffer_metrics(batch: StepBatch, shaped: Shaped | None, tasks: int) -> dict[str, float]:
    """Metrics of the reference buffer, before this step's successes are stored.

    - ``all_failed``: share of groups without a success.
    - ``served``: share of these groups for which the buffer had a reference.
    - ``age``: training steps since the buffer's references were played, mean over groups.
    - ``steps``: credited rows per trajectory that was matched with a reference of the buffer.
    - ``share``: share of all credit that was earned with a reference of the buffer.
    - ``tasks``: number of tasks in the buffer.
    """
    line = batch.timeline
    groups = len(np.unique(line.group_K))
    failed = len(list(failed_groups(line)))
    matches = shaped.matches if shaped else ()

    # Credit of every failed trajectory.
    amounts = []
    # Credit, and number of credited rows, of those matched with a reference from the buffer.
    from_buffer = []
    counts = []
    # By group, because all failures of a group share one reference.
    ages: dict[int, int] = {}
    for match in matches:
        amount = float(match.credit_l.sum(dtype=np.float64))
        amounts.append(amount)
        if match.age is not None:
            from_buffer.append(amount)
            counts.append(_credited(match))
            ages[match.task.group] = match.age

    return {
        **_ratio("buffer/all_failed", failed, groups),
        **_ratio("buffer/served", len(ages), failed),
        **_ratio("buffer/age", sum(ages.values()), len(ages)),
        **_ratio("buffer/steps", sum(counts), len(counts)),
        **_ratio("buffer/share", sum(from_buffer), sum(amounts)),
        "buffer/tasks": float(tasks),
    }


def _batch_metrics(batch: StepBatch, config: TrainedMethod, seed: Seed) -> dict[str, float]:
    """Metrics of the batch: groups and anchor groups.

    ``group/without_win``: share of groups in which every sibling failed. ``anchor/alone``: share of
    rows without another row in their anchor group, whose step term is 0 in most hosts.
    ``credit/no_op_anchors``: share of rows whose anchor group may mix unlike states (ledger 13).
    ``credit/descents``: how often the step index falls along the processing order, mean over
    trajectories (ledger 9).
    """
    line = batch.timeline
    shaper = config.shaper
    active = len(list(active_groups(line)))
    failed = len(list(failed_groups(line)))
    groups = len(np.unique(line.group_K))
    alone_N = alone_in_anchor_group(batch, config.estimator)[batch.original_N]
    key_N = processing_key(batch, shaper.order if shaper else "balanced", seed)
    metrics = _ratio("credit/active_groups", active, groups)
    metrics |= _ratio("group/without_win", failed, groups)
    metrics |= _ratio("anchor/alone", int(alone_N.sum()), len(alone_N))
    if shaper:
        # The paper leaves open how a no-op's answer enters anchor groups (ledger 13).
        no_op_N = after_no_op(batch, shaper.step_filter)[batch.original_N]
        metrics |= _ratio("credit/no_op_anchors", int(no_op_N.sum()), len(no_op_N))
    return metrics | {"credit/descents": descents(batch, key_N)}


def _pair_metrics(pairs: Pairs) -> dict[str, float]:
    """Counts of pairs, and the share that reaches θ.

    Warns if nearly all pairs reach θ: then the scorer matches any two steps, as a bi-encoder does
    that maps the cosine to (1 + cosine) / 2.
    """
    if pairs.scored >= ABOVE_THETA_PAIRS and pairs.above_theta > ABOVE_THETA_WARNING * pairs.scored:
        _log.warning(
            "%d of %d scored pairs reach theta: the scorer hardly tells steps apart",
            pairs.above_theta,
            pairs.scored,
        )
    return {
        **_ratio("credit/above_theta", pairs.above_theta, pairs.scored),
        "scpo/pairs_dense": float(pairs.dense),
        "scpo/pairs_asked": float(pairs.asked),
        "scpo/pairs_scored": float(pairs.scored),
        "scpo/pairs_speculated": float(pairs.speculated),
    }


def effect_metrics(
    batch: StepBatch,
    credit_N: FloatArray,
    unshaped_N: FloatArray,
    advantage_N: FloatArray,
    host: EstimatorSettings,
) -> dict[str, float]:
    """The effect of the credit on the advantages, over rows without copies.

    ``effective``: share of the credit in anchor groups of at least two rows. After division by the
    deviation, the advantages of two rows depend only on which is larger, so credit in a group of
    two may change neither; it counts as effective nevertheless (ledger 29). ``shift``: mean
    absolute change of the advantages of credited rows. ``shift_rms``: root mean square change over
    all rows, because a normalisation also moves rows without credit. ``turned_positive``: share of
    credited rows whose advantage is positive only with the credit.

    Args:
        batch: The steps.
        credit_N: Credit of every row, some of it above 0.
        unshaped_N: Advantages without the credit.
        advantage_N: Advantages with it.
        host: Settings of the host, which decide on the anchor groups.
    """
    original_N = batch.original_N
    shared_N = ~alone_in_anchor_group(batch, host)
    credited_N = (credit_N > 0) & original_N
    # In a group of one step, subtracting the mean removes its credit.
    in_groups = credit_N[credited_N & shared_N].sum(dtype=np.float64)
    effective = in_groups / credit_N[credited_N].sum(dtype=np.float64)
    shift_N = (advantage_N - unshaped_N).astype(np.float64)
    turned_N = (unshaped_N <= 0) & (advantage_N > 0)
    return {
        "credit/effective": float(effective),
        "credit/shift": float(np.abs(shift_N[credited_N]).mean()),
        "credit/shift_rms": float(np.sqrt(np.square(shift_N[original_N]).mean())),
        "credit/turned_positive": float(turned_N[credited_N].mean()),
    }


def term_metrics(
    batch: StepBatch, advantage_N: FloatArray, step_N: Float64Array | None
) -> dict[str, float]:
    """Mean and standard deviation of an advantage's two terms, over rows without copies.

    ``advantage/step_*``: the term that separates the steps of one trajectory, its weight included;
    missing for an estimator without one (``step_N`` is None). ``advantage/outcome_*``: the rest. An
    advantage is the sum of the two terms, so the rest is found by subtraction.
    """
    advantage_M = advantage_N[batch.original_N].astype(np.float64)
    if not len(advantage_M):
        return {}
    if step_N is None:
        return _moments("advantage/outcome", advantage_M)
    step_M = step_N[batch.original_N]
    return _moments("advantage/outcome", advantage_M - step_M) | _moments("advantage/step", step_M)


def _moments(name: str, value_M: Float64Array) -> dict[str, float]:
    return {f"{name}_mean": float(value_M.mean()), f"{name}_std": float(value_M.std())}


def alone_in_anchor_group(batch: StepBatch, host: EstimatorSettings) -> BoolArray:
    """Rows that are the only step of their anchor group, as the host forms it.

    A step and its copies count as one, since comparing a step with itself gives no advantage.
    """
    anchor_N = host_anchor_groups(batch, host)
    count_A = np.bincount(anchor_N[batch.original_N], minlength=int(anchor_N.max(initial=-1)) + 1)
    alone_N: BoolArray = count_A[anchor_N] == 1
    return alone_N


def host_anchor_groups(batch: StepBatch, host: EstimatorSettings) -> IntArray:
    """Dense id of every row's anchor group, as the host estimator forms them.

    Hosts that compare no states get GiGPO's groups, equal raw observations, so that a run of GRPO
    logs the same diagnostics.
    """
    if isinstance(host, StateSettings):
        return state_groups(batch, host)
    return anchor_groups(batch)


def _ratio(name: str, part: float, whole: float) -> dict[str, float]:
    """``{name: part / whole}``; empty if ``whole`` is 0."""
    return {name: part / whole} if whole else {}
