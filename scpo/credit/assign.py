"""The one call that every trainer makes: a batch of steps in, an advantage for each of them out."""

import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.estimator import OPTIONAL_FIELDS, Estimator, EstimatorSettings
from scpo.advantages.gae import outcome_rewards
from scpo.advantages.gigpo import GigpoSettings
from scpo.advantages.outcomes import row_scores, step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, ScorerUnavailable, StepBatchError
from scpo.schema.method import MethodConfig
from scpo.shaping.drive import Pairs, Scorer
from scpo.shaping.order import Seed, descents, processing_key
from scpo.shaping.reference import active_groups, trajectories
from scpo.shaping.shaper import Shaped, shape
from scpo.shaping.step_text import after_no_op
from scpo.steps import BoolArray, FloatArray, IntArray, StepBatch

STAGES = ("text", "scoring", "self_similarity", "matching", "accumulation", "metrics")
"""The rows of the paper's timing table; ``text`` stands for its tokenizer decode."""
ABOVE_THETA_WARNING, ABOVE_THETA_PAIRS = 0.8, 50
"""Warn when more than this share of at least this many scored pairs reaches θ."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CreditDiagnostics:
    """What ``assign`` saw and did.

    Attributes:
        metrics: Deterministic values, by the names of the diagnostics table. A ratio without a denominator (credited
            steps per failed trajectory when none failed, exact share when nothing was credited) is left out rather than
            written as 0; amounts are always there. A method without a shaper has zero amounts of credit and pairs, and
            so has one whose scorer is unavailable: then ``scpo/shaping_skipped`` is 1.
        timings: Seconds per stage, ``timing_s/scpo/*``; all there, 0 without a shaper.
        step_return_N: Discounted step returns, unshaped.
        bonus_N: What was added to them: alpha * credit - invalid penalty.
        shaped: The shaper's answer with one record per failed trajectory; None for a method without a shaper, and for
            one whose scorer is unavailable.
        advantage_N: The advantages; None of a token-level estimator.
        unshaped_advantage_N: The advantages without the credit; None for a method without a shaper.
    """

    metrics: dict[str, float]
    timings: dict[str, float]
    step_return_N: FloatArray
    bonus_N: FloatArray
    shaped: Shaped | None
    advantage_N: FloatArray | None = None
    unshaped_advantage_N: FloatArray | None = None

    def steps(self, batch: StepBatch) -> list[dict[str, Any]]:
        """JSON-ready samples for the disk: text, outcome and credit of every surviving step."""
        return [] if self.shaped is None else _step_records(batch, self.shaped)


def assign(
    batch: StepBatch, scorer: Scorer | None, config: MethodConfig, *, seed: Seed = (0, 0), speculate: bool = False
) -> tuple[FloatArray, CreditDiagnostics]:
    """Advantage of every step: returns, credit, bonus, host estimator (paper, section 3.5).

    R~ = R + bonus with bonus = α * credit - penalty * [invalid], added after discounting, at the step that earned it.
    The episode's outcome stays unshaped. What R~ is used for is up to the estimator.

    Args:
        batch: The steps.
        scorer: Needed by methods with a shaper, ignored by others.
        config: The method.
        seed: Run seed and training step, for what is random in the shaper.
        speculate: Score some pairs ahead, for fewer and larger batches; the credit is the same.

    Returns:
        ``advantage_N`` (float32) and the diagnostics.

    Raises:
        ConfigError: The estimator is unknown or not a row-level one, or a scorer is missing.
        StepBatchError: The batch lacks a field that the estimator requires.
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    estimator, host = resolve(config), _settings(config)
    _check_level(config, estimator, "row")
    _check_fields(batch, host.name, estimator)
    return_N = step_returns(batch, host.gamma)
    penalty_N = np.float32(host.invalid_penalty) * ~batch.valid_N
    shaped, alpha = _shape(batch, scorer, config, seed, speculate)
    bonus_N = np.float32(alpha) * shaped.credit_N - penalty_N if shaped else -penalty_N
    advantage_N: FloatArray = estimator.function(batch, return_N, bonus_N, host)
    started = time.perf_counter()
    metrics = _batch_metrics(batch, config, seed) | _credit_metrics(batch, config, shaped, alpha)
    unshaped_N = advantage_N if shaped else None
    if shaped and shaped.credit_N.any():
        unshaped_N = estimator.function(batch, return_N, -penalty_N, host)
        metrics |= _effect_metrics(batch, shaped.credit_N, advantage_N - unshaped_N, host)
    seconds = (shaped.seconds if shaped else {}) | {"metrics": time.perf_counter() - started}
    timings = {f"timing_s/scpo/{stage}": seconds.get(stage, 0.0) for stage in STAGES}
    return advantage_N, CreditDiagnostics(metrics, timings, return_N, bonus_N, shaped, advantage_N, unshaped_N)


def _shape(
    batch: StepBatch, scorer: Scorer | None, config: MethodConfig, seed: Seed, speculate: bool
) -> tuple[Shaped | None, float]:
    """The shaper's answer and its weight α; None and 0 for a method without a shaper, or when the scorer is gone."""
    if config.shaper is None:
        return None, 0.0
    if scorer is None:
        raise ConfigError(f"method {config.name!r} has a shaper, which needs a scorer: got None, see scpo.scoring")
    try:
        return shape(batch, scorer, config.shaper, seed, speculate=speculate), config.shaper.alpha
    except ScorerUnavailable as error:
        _log.error("NO SHAPING in this step (scpo/shaping_skipped = 1): %s", error)
        return None, 0.0


def assign_tokens(
    batch: StepBatch, value_NL: FloatArray, mask_NL: BoolArray, config: MethodConfig, *, seed: Seed = (0, 0)
) -> tuple[FloatArray, FloatArray, CreditDiagnostics]:
    """Advantage of every response token, for estimators that read a critic's values (PPO).

    The row's score (episode return - penalty * [invalid]) is the reward of its last valid token.

    Args:
        batch: The steps.
        value_NL: The critic's value before each token.
        mask_NL: True on response tokens.
        config: The method.
        seed: Run seed and training step.

    Returns:
        ``advantage_NL`` and ``return_NL`` (the critic's target), float32, and the diagnostics.

    Raises:
        ConfigError: The estimator is unknown or works on rows.
        StepBatchError: The arrays do not fit the batch, or a needed number is not finite.
    """
    estimator, settings = resolve(config), _settings(config)
    _check_level(config, estimator, "token")
    if len(mask_NL) != len(batch):
        raise StepBatchError(f"mask_NL has {len(mask_NL)} rows, the batch {len(batch)}: pass one for each step")
    token_reward_NL = outcome_rewards(row_scores(batch, settings), mask_NL)
    advantage_NL, return_NL = estimator.function(token_reward_NL, value_NL, mask_NL, settings)
    metrics = _batch_metrics(batch, config, seed) | _credit_metrics(batch, config, None, 0.0)
    bonus_N = -np.float32(settings.invalid_penalty) * ~batch.valid_N
    timings = {f"timing_s/scpo/{stage}": 0.0 for stage in STAGES}
    return_N = step_returns(batch, settings.gamma)
    return advantage_NL, return_NL, CreditDiagnostics(metrics, timings, return_N, bonus_N, None)


def resolve(config: MethodConfig) -> Estimator:
    """The registered estimator of a method; ``level`` says whether ``assign`` or ``assign_tokens`` calls it.

    Raises:
        ConfigError: The estimator is unknown, or there is none.
    """
    name = _settings(config).name
    if name not in ESTIMATORS:
        raise ConfigError(f"method {config.name!r}: estimator {name!r} is unknown; allowed: {', '.join(ESTIMATORS)}")
    if config.shaper and config.shaper.soft_base > config.shaper.theta:
        warnings.warn(
            f"method {config.name!r}: soft_base {config.shaper.soft_base} exceeds theta {config.shaper.theta}: matches "
            "below soft_base advance the walk but earn no credit",
            stacklevel=2,
        )
    return ESTIMATORS[name]


def _settings(config: MethodConfig) -> EstimatorSettings:
    if config.estimator is None:
        raise ConfigError(f"method {config.name!r} prompts and has no estimator: it is evaluated, not trained")
    return config.estimator


def _check_level(config: MethodConfig, estimator: Estimator, level: str) -> None:
    if estimator.level != level:
        call = "assign_tokens" if estimator.level == "token" else "assign"
        raise ConfigError(
            f"method {config.name!r}: estimator {_settings(config).name!r} works on {estimator.level}s: "
            f"call scpo.credit.{call}"
        )


def _check_fields(batch: StepBatch, name: str, estimator: Estimator) -> None:
    for requirement, field in OPTIONAL_FIELDS.items():
        if requirement in estimator.requires and getattr(batch, field) is None:
            raise StepBatchError(
                f"estimator {name!r} requires {field}, which this batch lacks: the trainer provides it"
            )


def _batch_metrics(batch: StepBatch, config: MethodConfig, seed: Seed) -> dict[str, float]:
    groups = len(np.unique(batch.group_N))
    active = len(list(active_groups(trajectories(batch))))
    key_N = processing_key(batch, config.shaper.order if config.shaper else "balanced", seed)
    return _ratio("credit/active_groups", active, groups) | {"credit/descents": descents(batch, key_N)}


def _effect_metrics(
    batch: StepBatch, credit_N: FloatArray, shift_N: FloatArray, host: EstimatorSettings
) -> dict[str, float]:
    """The share of the credit that can reach an advantage, and how far it shifts them, over rows without copies.

    Dividing by a deviation leaves two rows nothing but their order, so credit in a group of two may shift neither: it
    counts as effective all the same (ledger 29).
    """
    anchor_N = host_anchor_groups(batch, host)
    original_N = batch.original_N
    shared_N = np.bincount(anchor_N[original_N])[anchor_N] >= 2
    credited_N = (credit_N > 0) & original_N
    effective = credit_N[credited_N & shared_N].sum(dtype=np.float64) / credit_N[credited_N].sum(dtype=np.float64)
    shift = np.abs(shift_N[credited_N]).mean(dtype=np.float64)
    return {"credit/effective": float(effective), "credit/shift": float(shift)}


def host_anchor_groups(batch: StepBatch, host: EstimatorSettings) -> IntArray:
    """Dense id of every row's anchor group, as the host estimator forms them."""
    similarity = host.anchor_similarity if isinstance(host, GigpoSettings) and host.anchors == "similar" else None
    return anchor_groups(batch, similarity)


def _credit_metrics(batch: StepBatch, config: MethodConfig, shaped: Shaped | None, alpha: float) -> dict[str, float]:
    """Amounts of credit and of scored pairs, over rows without copies; ``exact`` is about what the matcher credited."""
    original_N = batch.original_N
    failed_N = original_N & ~batch.success_N
    matches = shaped.matches if shaped else ()
    credit = sum(float(match.credit_l.sum(dtype=np.float64)) for match in matches)
    credited = sum(int((match.credit_l > 0).sum()) for match in matches)
    cells = [(match, cell) for match in matches for cell in match.trace.credited if cell.credit > 0]
    exact = sum(match.task.reference[cell.u] == match.task.failed[cell.v] for match, cell in cells)
    pairs = shaped.pairs if shaped else Pairs(0, 0, 0, 0, 0)
    if pairs.scored >= ABOVE_THETA_PAIRS and pairs.above_theta > ABOVE_THETA_WARNING * pairs.scored:
        _log.warning(
            "%d of %d scored pairs reach theta: the scorer hardly tells steps apart", pairs.above_theta, pairs.scored
        )
    return {
        **_ratio("credit/steps", credited, len(matches)),
        **_ratio("credit/steps_all", credited, len(np.unique(batch.trajectory_N[failed_N]))),
        **_ratio("credit/aux_mean", alpha * credit, int(original_N.sum())),
        **_ratio("credit/aux_mean_failed", alpha * credit, int(failed_N.sum())),
        **_ratio("credit/exact", exact, len(cells)),
        **_ratio("credit/above_theta", pairs.above_theta, pairs.scored),
        **_no_op_anchors(batch, config),
        "scpo/pairs_dense": float(pairs.dense),
        "scpo/pairs_asked": float(pairs.asked),
        "scpo/pairs_scored": float(pairs.scored),
        "scpo/pairs_speculated": float(pairs.speculated),
        "scpo/shaping_skipped": float(config.shaper is not None and shaped is None),
    }


def _no_op_anchors(batch: StepBatch, config: MethodConfig) -> dict[str, float]:
    """The share of rows whose anchor group may mix unlike states (ledger 13)."""
    if config.shaper is None:
        return {}
    no_op_N = after_no_op(batch, config.shaper.step_filter)
    return _ratio("credit/no_op_anchors", int(no_op_N[batch.original_N].sum()), int(batch.original_N.sum()))


def _ratio(name: str, part: float, whole: int) -> dict[str, float]:
    return {name: part / whole} if whole else {}


def _step_records(batch: StepBatch, shaped: Shaped) -> list[dict[str, Any]]:
    return [
        {
            "group": int(batch.group_N[row]),
            "trajectory": int(batch.trajectory_N[row]),
            "step": int(batch.step_N[row]),
            "text": shaped.text_N[row],
            "success": bool(batch.success_N[row]),
            "credit": float(shaped.credit_N[row]),
        }
        for row in np.flatnonzero(batch.original_N & shaped.surviving_N)
    ]
