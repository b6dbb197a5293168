"""Credit assignment, as every trainer calls it: a batch of steps in, an advantage per step out."""

import logging
import time
import warnings
from dataclasses import dataclass

import numpy as np

from scpo.advantages.estimator import Estimator, check_fields, checked_step_term, one_each
from scpo.advantages.gae import outcome_rewards
from scpo.advantages.groups import Float64Array
from scpo.advantages.outcomes import row_scores, step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.credit.metrics import (
    CreditDiagnostics,
    buffer_metrics,
    credit_metrics,
    effect_metrics,
    host_anchor_groups,
    stage_timings,
    term_metrics,
)
from scpo.credit.other_steps import on_shortest_ways, without_success
from scpo.credit.states import identified, named_states, oracle_cosine, state_metrics
from scpo.errors import ConfigError, ContractError, ScorerUnavailable, StepBatchError
from scpo.schema.method import TrainedMethod
from scpo.shaping.drive import Scorer
from scpo.shaping.order import Seed, descents
from scpo.shaping.reference import active_groups
from scpo.shaping.reference_buffer import ReferenceBuffer
from scpo.shaping.shaper import Shaped, ShaperConfig, remember, shape
from scpo.states.identity import Memory
from scpo.steps import BoolArray, FloatArray, StepBatch, check_is_batch, place_of, read_only

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Terms:
    """Terms of an advantage, one value for each row, in the unit of the rewards.

    Read-only, because the estimator, its second call without credit, and the metrics share them.

    Attributes:
        return_N: Discounted step returns R, unshaped.
        bonus_N: What the estimator adds to them: α * credit - penalty.
        penalty_N: The penalty of invalid steps, not negative; the bonus holds it subtracted.
        after_N: What is added to the estimator's advantages: α * credit with ``added_to:
            advantages``, else 0.
    """

    return_N: FloatArray
    bonus_N: FloatArray
    penalty_N: FloatArray
    after_N: FloatArray

    def __post_init__(self) -> None:
        for name, term_N in vars(self).items():
            object.__setattr__(self, name, read_only(term_N))


def assign(
    batch: StepBatch,
    scorer: Scorer | None,
    config: TrainedMethod,
    *,
    seed: Seed = (0, 0),
    speculate: bool = False,
    buffer: ReferenceBuffer | None = None,
    memory: Memory | None = None,
) -> tuple[FloatArray, CreditDiagnostics]:
    """Advantage of each step: returns, credit, bonus, host estimator (paper, section 3.5).

    R~ = R + bonus with bonus = α * credit - penalty * [invalid], added after discounting, at the
    step that earned it: neither term is discounted back to the steps before (as in GiGPO's code).
    The episode's outcome stays unshaped. The estimator decides how R~ is used. With ``added_to:
    advantages`` (ours) the bonus is only -penalty * [invalid], and α * credit is added to the
    estimator's advantages.

    Args:
        batch: The steps.
        scorer: Needed by methods with a shaper and by ``states=scorer``, ignored by others.
        config: The method.
        seed: Run seed and training step, for the random choices of the shaper.
        speculate: Score some pairs in advance, in fewer and larger batches; the credit is the same.
        buffer: Successes of earlier training steps; those of this step are added at the end.
        memory: The state identity's memory of earlier training steps; this step is added.

    Returns:
        ``advantage_N`` (float32) and the diagnostics.

    Raises:
        ConfigError: The estimator is unknown or not row-level, or a scorer is missing.
        StepBatchError: The batch lacks a field that the estimator requires.
        ScorerError: The scorer returned anything but similarities in [0, 1].
        ContractError: The matcher returned no valid credit, or a control of the shaper made it
            infinite or NaN.
    """
    _check_kinds(batch, scorer, config)
    estimator = resolve(config)
    host = config.estimator
    # Arguments are checked before pairs are scored, because scoring takes most of the time.
    _check_level(config, estimator, "row")
    check_fields(batch, estimator)
    _warn_of_contradictions(batch)
    _warn_of_time_order(batch, config.shaper)
    started = time.perf_counter()

    # 1. States, numbered once: estimators and metrics read the same numbers and have no scorer.
    batch, fell_back = identified(batch, host, scorer, memory)
    states_s = time.perf_counter() - started

    # 2. Credit, and the terms that it is added to.
    return_N = step_returns(batch, host.gamma)
    penalty_N = np.float32(host.invalid_penalty) * ~batch.valid_N
    shaped = _shape(batch, scorer, config, seed, speculate=speculate, buffer=buffer, memory=memory)
    before_N, after_N = _placed(config.shaper, shaped, batch)
    bonus_N = before_N - penalty_N
    terms = _Terms(return_N, bonus_N, penalty_N, after_N)

    # 3. Advantages of the host.
    given = estimator.call(batch, terms.return_N, terms.bonus_N, host)
    advantage_N: FloatArray = _advantages(given, batch, host.name) + after_N
    _check_finite(batch, advantage_N, config)

    # 4. Metrics. `_remembered` also adds this step's successes to the buffer.
    started = time.perf_counter()
    metrics = credit_metrics(batch, config, shaped, seed)
    step_N, term_values = _step_term(batch, config, terms, advantage_N)
    metrics |= term_values
    metrics |= state_metrics(batch, host, fell_back=fell_back)
    metrics |= _remembered(batch, shaped, config, seed, buffer)
    unshaped_N, effect = _without_credit(batch, config, terms, shaped, advantage_N)
    metrics |= effect
    timings = _timings(batch, shaped, states_s, time.perf_counter() - started)
    # For the samples of a step, which show the rows that the host compared with each other.
    anchor_N = host_anchor_groups(batch, host)
    return advantage_N, CreditDiagnostics(
        metrics, timings, return_N, bonus_N, shaped, advantage_N, unshaped_N, anchor_N, step_N
    )


def _timings(
    batch: StepBatch, shaped: Shaped | None, states_s: float, metrics_s: float
) -> dict[str, float]:
    """Seconds by stage: those of the paper's timing table, and ``states``, which is ours."""
    stages = dict(shaped.seconds) if shaped else {}
    timings = stage_timings(stages | {"metrics": metrics_s})
    # Methods that compare equal texts number no states.
    if batch.state_id_N is not None:
        timings["timing_s/scpo/states"] = states_s
    return timings


def _step_term(
    batch: StepBatch, config: TrainedMethod, terms: _Terms, advantage_N: FloatArray
) -> tuple[Float64Array | None, dict[str, float]]:
    """The step term, None for an estimator without one, and metrics of the advantage's two terms.

    The metrics are the mean and deviation of both terms, and the step term's ``states/cosine``.
    """
    estimator = ESTIMATORS[config.estimator.name]
    host = config.estimator
    if estimator.step_term is None:
        return None, term_metrics(batch, advantage_N, None)
    values = (terms.return_N, terms.bonus_N)
    step_N = checked_step_term(estimator, batch, *values, host) + terms.after_N
    oracle = oracle_cosine(batch, estimator, host, values, step_N)
    return step_N, term_metrics(batch, advantage_N, step_N) | oracle


def _without_credit(
    batch: StepBatch,
    config: TrainedMethod,
    terms: _Terms,
    shaped: Shaped | None,
    advantage_N: FloatArray,
) -> tuple[FloatArray | None, dict[str, float]]:
    """The advantages without the credit, None without a shaper, and metrics of the difference.

    The estimator is called again rather than the credit subtracted: a host's normalisation also
    changes the advantages of other rows in the same state (paper, equation 5).
    """
    if not shaped:
        return None, {}
    if not shaped.credit_N.any():
        # Without credit a second call of the estimator would give the same advantages.
        return advantage_N, {}
    host = config.estimator
    given = ESTIMATORS[host.name].call(batch, terms.return_N, -terms.penalty_N, host)
    unshaped_N = _advantages(given, batch, host.name)
    return unshaped_N, effect_metrics(batch, shaped.credit_N, unshaped_N, advantage_N, host)


def _remembered(
    batch: StepBatch,
    shaped: Shaped | None,
    config: TrainedMethod,
    seed: Seed,
    buffer: ReferenceBuffer | None,
) -> dict[str, float]:
    """Add the step's successes to the buffer; returns the buffer's metrics before that.

    Called after the credit, because a step is matched only with successes of earlier steps.
    """
    if buffer is None or config.shaper is None:
        return {}
    metrics = buffer_metrics(batch, shaped, len(buffer))
    remember(buffer, batch, config.shaper, seed)
    return metrics


def _advantages(given: object, batch: StepBatch, name: str) -> FloatArray:
    """An estimator's result as float32, which trainers read: estimators compute in float64.

    Raises:
        StepBatchError: The result is not an array with one number for each row.
    """
    array = one_each(given, batch, f"estimator {name!r}", "advantage")
    return array.astype(np.float32, copy=False)


def _check_finite(batch: StepBatch, advantage_N: FloatArray, config: TrainedMethod) -> None:
    """Refuse NaN and float32 overflow: a single one would make every weight of the policy NaN."""
    bad = np.flatnonzero(~np.isfinite(advantage_N))
    if len(bad):
        alpha = f", method.shaper.alpha={config.shaper.alpha:g}" if config.shaper else ""
        raise StepBatchError(
            f"{place_of(batch, bad[0])}: its advantage is {advantage_N[bad[0]]}. Either estimator "
            f"{config.estimator.name!r} divides by 0 there, or the rewards (up to "
            f"{np.abs(batch.reward_N).max():g}) or the settings (method={config.name}{alpha}) "
            "are too large for float32: scale them down"
        )


def _placed(
    shaper: ShaperConfig | None, shaped: Shaped | None, batch: StepBatch
) -> tuple[FloatArray, FloatArray]:
    """α * credit, as the part added to step returns and the part added to advantages.

    At most one of the two has values other than 0. α is cast to float32 first, because a product
    with a float64 would not be float32, which trainers expect.
    """
    nothing_N = np.zeros(len(batch), dtype=np.float32)
    if shaper is None or shaped is None:
        return nothing_N, nothing_N
    scaled_N = np.float32(shaper.alpha) * shaped.credit_N
    if shaper.added_to == "returns":
        return scaled_N, nothing_N
    return nothing_N, scaled_N


def _shape(
    batch: StepBatch,
    scorer: Scorer | None,
    config: TrainedMethod,
    seed: Seed,
    *,
    speculate: bool,
    buffer: ReferenceBuffer | None,
    memory: Memory | None,
) -> Shaped | None:
    """The shaper's answer; None for a method without a shaper, or if the scorer is unavailable.

    ``ScorerUnavailable`` is only raised where the configuration allows a step without shaping
    (``on_scorer_failure: skip_shaping``); any other failure of a scorer ends the run.

    Raises:
        ConfigError: The method has a shaper, and ``scorer`` is None.
        ContractError: Credit of a step is not finite.
    """
    if config.shaper is None:
        return None
    if scorer is None:
        raise ConfigError(
            f"method {config.name!r} has a shaper, which needs a scorer: got None, pass "
            "scpo.load_scorer('exact')"
        )

    try:
        named, shaper = named_states(batch, config.shaper, memory)
        shaped = shape(named, scorer, shaper, seed, speculate=speculate, buffer=buffer)
    except ScorerUnavailable as error:
        _log.error("NO SHAPING in this step (scpo/shaping_skipped = 1): %s", error)
        return None

    # The controls change finished credit, so that the matching is the same with and without them.
    if config.shaper.credited_states != "all":
        shaped = without_success(batch, shaped, config.shaper.credited_states)
    if config.shaper.allocation == "graph":
        shaped = on_shortest_ways(batch, shaped)
    _check_credit(batch, shaped, config.shaper)
    return shaped


def _check_credit(batch: StepBatch, shaped: Shaped, shaper: ShaperConfig) -> None:
    """Refuse NaN and infinite credit before the estimator turns it into advantages.

    The matcher's own credit was checked when it was returned, so a control must be the cause.

    Raises:
        ContractError: Credit of a step is not finite; names the row and the settings.
    """
    bad = np.flatnonzero(~np.isfinite(shaped.credit_N))
    if len(bad):
        raise ContractError(
            f"{place_of(batch, bad[0])}: the shaper's credit is {shaped.credit_N[bad[0]]}; allowed "
            f"is a finite number. The credit of matcher {shaper.matcher!r} was finite, so one of "
            f"method.shaper.amount={shaper.amount}, allocation={shaper.allocation} and "
            f"credited_states={shaper.credited_states} is the cause"
        )


def assign_tokens(
    batch: StepBatch,
    value_NL: FloatArray,
    mask_NL: BoolArray,
    config: TrainedMethod,
    *,
    seed: Seed = (0, 0),
) -> tuple[FloatArray, FloatArray, CreditDiagnostics]:
    """Advantage of every response token, for estimators that read a critic's values (PPO).

    The row's score (episode return - penalty * [invalid]) is the reward of its last valid token.
    There is no credit: a shaper's host must read a step's bonus, and GAE does not.

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
    estimator = resolve(config)
    settings = config.estimator
    _check_level(config, estimator, "token")
    if len(mask_NL) != len(batch):
        raise StepBatchError(
            f"mask_NL has {len(mask_NL)} rows, the batch {len(batch)}: pass one for each step"
        )

    token_reward_NL = outcome_rewards(row_scores(batch, settings), mask_NL)
    inputs = (read_only(np.asarray(array)) for array in (token_reward_NL, value_NL, mask_NL))
    advantage_NL, return_NL = estimator.call(*inputs, settings)
    # For the diagnostics only: the penalty is already in the scores.
    bonus_N = -np.float32(settings.invalid_penalty) * ~batch.valid_N
    metrics = credit_metrics(batch, config, None, seed)
    step_return_N = step_returns(batch, settings.gamma)
    return (
        advantage_NL,
        return_NL,
        CreditDiagnostics(metrics, stage_timings({}), step_return_N, bonus_N, None),
    )


def resolve(config: TrainedMethod) -> Estimator:
    """Registered estimator of a method; its ``level`` selects ``assign`` or ``assign_tokens``.

    Warns if λ exceeds θ. That is allowed: matches between θ and λ then advance the walk but earn
    nothing.

    Raises:
        ConfigError: The estimator is unknown.
    """
    name = config.estimator.name
    if name not in ESTIMATORS:
        raise ConfigError(
            f"method {config.name!r}: estimator {name!r} is unknown; allowed: "
            f"{', '.join(ESTIMATORS)}, or one of your own in OURS of scpo.advantages.registry: "
            "`python -m scpo.new estimator NAME` writes and registers it"
        )
    if config.shaper and config.shaper.soft_base > config.shaper.theta:
        warnings.warn(
            f"method {config.name!r}: soft_base {config.shaper.soft_base} exceeds theta "
            f"{config.shaper.theta}: matches below soft_base advance the walk but earn no credit",
            stacklevel=2,
        )
    return ESTIMATORS[name]


def _check_kinds(batch: StepBatch, scorer: object, config: object) -> None:
    """Reject arguments that a notebook is likely to pass by mistake."""
    check_is_batch(batch)
    if not isinstance(config, TrainedMethod):
        name = config if isinstance(config, str) else "scpo"
        raise ConfigError(f"config is {config!r}; pass scpo.load_method({name!r})")
    if scorer is not None and not callable(getattr(scorer, "score", None)):
        name = scorer if isinstance(scorer, str) else "exact"
        raise ConfigError(
            f"scorer is {scorer!r}, which has no score(pairs); pass scpo.load_scorer({name!r})"
        )


def _check_level(config: TrainedMethod, estimator: Estimator, level: str) -> None:
    """Refuse a row-level estimator in ``assign_tokens`` and a token-level one in ``assign``."""
    if estimator.level != level:
        call = "assign_tokens" if estimator.level == "token" else "assign"
        raise ConfigError(
            f"method {config.name!r}: estimator {estimator.name!r} works on {estimator.level}s: "
            f"call scpo.credit.assign.{call}"
        )


def _warn_of_time_order(batch: StepBatch, shaper: ShaperConfig | None) -> None:
    """Warn if the method asks for the order of a trainer's rows and the batch is in time order.

    ``balanced`` and ``length`` are orders of a trainer's rows. A batch in time order, as
    ``StepBatch.from_episodes`` makes it, would silently get chronological credit.
    """
    if shaper is None or shaper.order not in ("balanced", "length") or shaper.order_ranks == 1:
        return
    if batch.timeline.length_K.max(initial=0) > 1 and not descents(batch, batch.position_N):
        warnings.warn(
            f"order={shaper.order!r} takes the order of the rows in the trainer's batch "
            "(position_N), and these are in time order, so that the credit is that of "
            "order='chronological'. Pass position_N, in the paper's setting scpo.shaping.order."
            "positions(<tokens of each row>, 'balanced', 4), or load_method(..., "
            "order='chronological') if time order is meant",
            stacklevel=3,
        )


def _warn_of_contradictions(batch: StepBatch) -> None:
    """Warn where ``success_N`` and the returns of siblings contradict each other.

    Not an error, because rewards may be shaped on purpose. The text does not depend on the batch,
    so Python shows the warning once per training.
    """
    line = batch.timeline
    return_K = batch.episode_return_N[line.row_KT[:, 0]]
    for _, successful, failed in active_groups(line):
        if return_K[successful].min() <= return_K[failed].max():
            warnings.warn(
                "a success has no larger return than a failure of its group, so that what reads "
                "success_N (credit of SCPO, graphs of states) and what reads returns contradict "
                "each other. Pass success_N = episode_return_N > threshold, as "
                "scpo.contract.check_batch(batch) checks and names the rows, or ignore this if "
                "your rewards are shaped that way on purpose",
                stacklevel=3,
            )
            return
