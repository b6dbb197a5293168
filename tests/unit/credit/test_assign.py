import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recorded import recorded
from scpo.advantages.anchors import anchor_groups
from scpo.advantages.registry import ESTIMATORS, HOSTS
from scpo.credit.assign import assign, assign_tokens, resolve
from scpo.credit.metrics import STAGES
from scpo.errors import ConfigError, ContractError, StepBatchError
from scpo.schema.method import IndependentSampling
from scpo.shaping.matcher import MATCHERS, Cell, Credited, MatchTrace
from tests.support.step_batches import (
    EqualityScorer,
    make_batch,
    method,
    random_batch,
    settings_of,
    shaper_config,
    take,
)  # fmt: skip

SCPO = method(settings_of("gigpo"), shaper_config(order="chronological"))
GIGPO = method(settings_of("gigpo"), name="gigpo")
PPO = method(settings_of("gae"), name="ppo", sampling=IndependentSampling(rule="independent"))

# failed trajectory 1 follows the reference with a and b (the second from a shared anchor), 2 with nothing
BATCH = make_batch((0, 0, "a b c", 1), (0, 1, "x a b", 0), (0, 2, "y", 0), (1, 3, "a", 0))


def known_settings_of(host, **changes):
    """An estimator's settings with those changes that it has a setting for."""
    fields = ESTIMATORS[host].settings.model_fields
    return settings_of(host, **{name: value for name, value in changes.items() if name in fields})


def test_bonus_is_alpha_times_credit_less_the_penalty_for_invalid_steps():
    batch = take(BATCH, np.arange(8), valid_N=[True, False, *[True] * 4, False, True])
    _, diagnostics = assign(batch, EqualityScorer(), SCPO)
    # the reference is a c now, so the failed a is credited and the failed b is not
    assert np.allclose(diagnostics.bonus_N, [0, -0.1, 0, 0, 0.5, 0, -0.1, 0])
    assert np.allclose(diagnostics.step_return_N, [0.9025, 0.95, 1, 0, 0, 0, 0, 0])
    assert diagnostics.bonus_N.dtype == np.float32


@pytest.mark.parametrize("written", ["step_return_N", "bonus_N", "reward_N"])
def test_an_estimator_that_writes_into_an_input_ends_there(written, monkeypatch):
    gigpo = ESTIMATORS["gigpo"]

    def careless(batch, step_return_N, bonus_N, settings):
        {"step_return_N": step_return_N, "bonus_N": bonus_N, "reward_N": batch.reward_N}[written][:] *= 3
        return gigpo.function(batch, step_return_N, bonus_N, settings)

    monkeypatch.setitem(ESTIMATORS, "gigpo", replace(gigpo, function=careless))
    with pytest.raises(ContractError, match=r"'gigpo' writes into one of its inputs, line .* read-only"):
        assign(BATCH, EqualityScorer(), SCPO)


def test_a_token_estimator_cannot_write_into_the_critics_values(monkeypatch):
    def careless(token_reward_NL, value_NL, mask_NL, settings):
        value_NL *= 2

    monkeypatch.setitem(ESTIMATORS, "gae", replace(ESTIMATORS["gae"], function=careless))
    with pytest.raises(ContractError, match=r"'gae' writes into one of its inputs, line .* read-only"):
        assign_tokens(BATCH, np.ones((8, 2), np.float32), np.ones((8, 2), bool), PPO)


def test_an_estimator_of_three_arguments_is_named(monkeypatch):
    gigpo = ESTIMATORS["gigpo"]
    monkeypatch.setitem(ESTIMATORS, "gigpo", replace(gigpo, function=lambda batch, step_return_N, settings: None))
    with pytest.raises(ContractError, match=r"'gigpo' cannot be called with the 4 arguments .* 3 positional") as caught:
        assign(BATCH, EqualityScorer(), SCPO)
    assert isinstance(caught.value.__cause__, TypeError)


def test_the_caller_may_write_into_what_it_gets():
    advantage_N, diagnostics = assign(BATCH, EqualityScorer(), SCPO)
    for array in (advantage_N, diagnostics.step_return_N, diagnostics.bonus_N, diagnostics.unshaped_advantage_N):
        array[:] = 2


@pytest.mark.parametrize("order", ["balanced", "length"])
def test_the_trainers_order_of_a_batch_in_time_order_is_warned_about(order):
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x", 0))
    config = method(settings_of("gigpo"), shaper_config(order=order))
    with pytest.warns(UserWarning, match=f"order='{order}' takes the order of the rows in the trainer's batch"):
        assign(batch, EqualityScorer(), config)


@pytest.mark.filterwarnings("error:order=")
def test_no_order_is_warned_about_where_it_is_the_batchs_or_time_is_meant():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x", 0))
    balanced = replace(batch, position_N=np.array([2, 0, 3, 1]))
    assign(balanced, EqualityScorer(), method(settings_of("gigpo"), shaper_config(order="balanced")))
    assign(batch, EqualityScorer(), method(settings_of("gigpo"), shaper_config(order="balanced", order_ranks=1)))
    assign(batch, EqualityScorer(), method(settings_of("gigpo"), shaper_config(order="chronological")))
    assign(batch, None, method(settings_of("gigpo")))


def test_hand_worked_advantages():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x", 0))
    config = method(settings_of("gigpo", normalisation="mean_norm", omega=2.0), shaper_config())
    advantage_N, diagnostics = assign(batch, EqualityScorer(), config)
    # anchor start: 0.95 against 0 + 0.5; anchor a: 1 against 0
    assert np.allclose(advantage_N, [0.5 + 2 * 0.225, 0.5 + 2 * 0.5, -0.5 - 2 * 0.225, -0.5 - 2 * 0.5])
    assert advantage_N.dtype == np.float32
    assert diagnostics.metrics["credit/shift"] == pytest.approx(0.5)  # from -0.95 to -0.45 in the credited row


def test_token_advantages_of_a_method_with_a_critic():
    batch = take(make_batch((0, 0, "a b", 1), (0, 1, "a", 0)), np.arange(3), valid_N=[True, False, True])
    mask_NL = np.array([[1, 1], [1, 0], [1, 1]], bool)
    advantage_NL, return_NL, diagnostics = assign_tokens(batch, np.full((3, 2), 0.5), mask_NL, PPO)
    assert np.allclose(return_NL, [[1, 1], [0.9, 0], [0, 0]])
    assert (advantage_NL[0] > 0).all()
    assert advantage_NL[1, 0] > 0 == advantage_NL[1, 1]
    assert (advantage_NL[2] < 0).all()
    of_rows = assign(batch, None, GIGPO)[1].metrics.keys()
    assert diagnostics.metrics.keys() == {name for name in of_rows if not name.startswith("advantage/")}
    assert set(diagnostics.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
def test_credit_in_a_shared_anchor_group_changes_every_hosts_advantage(host, mode):
    # failures 1 and 2 leave the anchor a together with the reference; only 1 goes on to b and is credited there
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a b", 0), (0, 2, "a x", 0))
    settings = known_settings_of(host, normalisation=mode, state_key="anchor")
    shaped_N, diagnostics = assign(batch, EqualityScorer(), method(settings, shaper_config(order="chronological")))
    plain_N, _ = assign(batch, None, method(settings, name="host"))
    assert diagnostics.shaped.credit_N[4] == 1
    # ECPO shrinks an action's mean return and scales the term by its trust in the state: 3 visits here
    assert shaped_N[4] > plain_N[4] + (0.03 if host == "ecpo" else 0.05)


@pytest.mark.parametrize("host", HOSTS)
def test_credit_added_to_advantages_moves_only_credited_rows_and_by_alpha(host):
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a b", 0), (0, 2, "a x", 0))
    settings = settings_of(host, state_key="anchor")
    config = shaper_config(order="chronological", added_to="advantages", alpha=2.0)
    shaped_N, diagnostics = assign(batch, EqualityScorer(), method(settings, config))
    plain_N, plain = assign(batch, None, method(settings, name="host"))
    assert diagnostics.shaped.credit_N.any()
    assert np.allclose(shaped_N - plain_N, 2.0 * diagnostics.shaped.credit_N, atol=1e-6)
    assert np.array_equal(diagnostics.unshaped_advantage_N, plain_N)
    for term in ("outcome_mean", "outcome_std"):
        assert diagnostics.metrics[f"advantage/{term}"] == pytest.approx(plain.metrics[f"advantage/{term}"], abs=1e-6)


# ECPO and PACE compare the actions of a state: where all its rows took the same one, credit of some of them cancels.
@given(seed=st.integers(0, 10_000), host=st.sampled_from([name for name in HOSTS if name not in ("ecpo", "pace")]))
def test_credit_reaches_every_host_in_anchor_groups_of_two_or_more(seed, host):
    batch = random_batch(seed)
    settings = known_settings_of(host, normalisation="mean_norm", std_floor=0.0, state_key="anchor")
    shaped_N, diagnostics = assign(batch, EqualityScorer(), method(settings, shaper_config()))
    plain_N, _ = assign(batch, None, method(settings, name="host"))
    credit_N, id_N = diagnostics.shaped.credit_N, anchor_groups(batch)
    for row in np.flatnonzero(credit_N):
        others_N = (id_N == id_N[row]) & (credit_N != credit_N[row])
        if others_N.any():  # equal credit on all rows of a group cancels
            assert shaped_N[id_N == id_N[row]].tolist() != plain_N[id_N == id_N[row]].tolist()


def test_the_advantages_without_credit_are_those_of_the_host():
    shaped_N, diagnostics = assign(BATCH, EqualityScorer(), SCPO)
    plain_N, _ = assign(BATCH, None, method(SCPO.estimator, name="host"))
    assert diagnostics.advantage_N.tolist() == shaped_N.tolist()
    assert diagnostics.unshaped_advantage_N.tolist() == plain_N.tolist() != shaped_N.tolist()


def test_an_empty_batch_gets_no_advantages():
    advantage_N, diagnostics = assign(make_batch(), EqualityScorer(), SCPO)
    assert advantage_N.shape == (0,)
    assert diagnostics.metrics["credit/descents"] == 0


# What is refused


@pytest.mark.parametrize("estimator", [settings_of(name) for name in ESTIMATORS if name not in HOSTS], ids=str)
def test_a_host_that_ignores_the_bonus_is_refused(estimator):
    with pytest.raises(
        ValueError, match=rf"'{estimator.name}' ignores step returns.* allowed hosts: gigpo, hgpo, g2po"
    ):
        method(estimator, shaper_config())


def test_an_unregistered_estimator_is_refused_with_the_known_ones(monkeypatch):
    monkeypatch.delitem(ESTIMATORS, "gigpo")
    with pytest.raises(
        ConfigError, match="estimator 'gigpo' is unknown; allowed: gae, rloo, grpo, empg, hcapo, hgpo, g2po"
    ):
        assign(BATCH, None, GIGPO)


def test_a_token_level_estimator_is_refused(monkeypatch):
    monkeypatch.setitem(ESTIMATORS, "gigpo", replace(ESTIMATORS["gigpo"], level="token"))
    with pytest.raises(ConfigError, match=r"'gigpo' works on tokens: call scpo\.credit\.assign\.assign_tokens"):
        assign(BATCH, None, GIGPO)


def test_a_row_level_estimator_has_no_token_advantages():
    with pytest.raises(ConfigError, match=r"'gigpo' works on rows: call scpo\.credit\.assign\.assign$"):
        assign_tokens(BATCH, np.zeros((8, 2)), np.ones((8, 2)), GIGPO)


def test_token_arrays_of_another_batch_are_refused():
    with pytest.raises(StepBatchError, match="mask_NL has 3 rows, the batch 8"):
        assign_tokens(BATCH, np.zeros((3, 2)), np.ones((3, 2)), PPO)


@pytest.mark.parametrize(
    ("requirement", "field"), [("entropy", "entropy_N"), ("hindsight_logprob", "hindsight_logprob_N")]
)
def test_a_field_that_the_estimator_requires_must_be_there(monkeypatch, requirement, field):
    monkeypatch.setitem(ESTIMATORS, "gigpo", replace(ESTIMATORS["gigpo"], requires=frozenset({requirement})))
    with pytest.raises(StepBatchError, match=f"'gigpo' requires {field}"):
        assign(BATCH, None, GIGPO)
    assign(take(BATCH, np.arange(8), **{field: np.zeros(8)}), None, GIGPO)


def test_a_shaper_needs_a_scorer():
    with pytest.raises(ConfigError, match="'scpo' has a shaper, which needs a scorer"):
        assign(BATCH, None, SCPO)


def test_a_soft_base_above_theta_is_allowed_with_a_warning():
    with pytest.warns(UserWarning, match=r"soft_base 0.7 exceeds theta 0.6"):
        resolved = resolve(method(settings_of("gigpo"), shaper_config(soft_base=0.7)))
    assert resolved is resolve(method(settings_of("gigpo")))


# Laws


@given(seed=st.integers(0, 10_000), copies=st.integers(0, 4), mode=st.sampled_from(["mean_std_norm", "mean_norm"]))
def test_scpo_differs_from_its_host_only_in_anchor_groups_that_hold_credit(seed, copies, mode):
    batch = random_batch(seed, copies=copies)
    host = settings_of("gigpo", normalisation=mode)
    shaped_N, diagnostics = assign(batch, EqualityScorer(), method(host, shaper_config()))
    plain_N, _ = assign(batch, None, method(host))
    touched = {
        (group, anchor)
        for group, anchor, value in zip(batch.group_N, batch.anchor_N, diagnostics.shaped.credit_N, strict=True)
        if value > 0
    }
    changed = np.flatnonzero(shaped_N != plain_N)
    assert all((batch.group_N[row], batch.anchor_N[row]) in touched for row in changed)
    without_step_part = method(settings_of("gigpo", normalisation=mode, omega=0.0), shaper_config())
    outcome_N, _ = assign(batch, EqualityScorer(), without_step_part)
    alone_N, _ = assign(batch, None, method(without_step_part.estimator))
    assert np.array_equal(outcome_N, alone_N)


@pytest.mark.parametrize("returns", [(0, 1), (0, 0)])
def test_a_success_that_returns_no_more_than_a_failure_is_warned_of_once_for_all_batches(returns):
    won, lost = returns
    success_N = [True, True, False, False]
    batch = make_batch((0, 0, "a b", won), (0, 1, "a x", lost), success_N=success_N)
    told = []
    for rows, scorer, config in ((batch, EqualityScorer(), SCPO), (take(batch, [2, 3, 0, 1]), None, GIGPO)):
        with pytest.warns(UserWarning, match="a success has no larger return than a failure of its group") as caught:
            advantage_N, _ = assign(rows, scorer, config)
        assert np.isfinite(advantage_N).all()
        told += [str(warning.message) for warning in caught]
    assert told == [told[0]] * 2  # Python shows equal texts of one place once


def test_shaped_rewards_whose_successes_return_more_are_not_warned_of():
    batch = make_batch(
        (0, 0, "a b", 0.2),
        (0, 1, "a x", 0.1),
        (1, 2, "a", 0.1),
        (1, 3, "a", 0),
        success_N=[True, True, False, False, True, False],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assign(batch, EqualityScorer(), SCPO)


@given(seed=st.integers(0, 10_000))
def test_permuting_rows_permutes_answers_and_does_not_change_metrics(seed):
    batch = random_batch(seed, copies=3)
    rows = np.random.default_rng(seed).permutation(len(batch))
    permuted = take(batch, rows, is_copy_N=batch.is_copy_N[rows])
    before_N, before = assign(batch, EqualityScorer(), SCPO)
    after_N, after = assign(permuted, EqualityScorer(), SCPO)
    assert np.array_equal(after_N, before_N[rows])
    assert after.metrics == pytest.approx(before.metrics)


def test_recorded_rollouts_give_credit_that_reaches_the_advantages():
    config = method(settings_of("gigpo"), shaper_config())
    shifts = []
    for step, batch, _ in recorded():
        advantage_N, diagnostics = assign(batch, EqualityScorer(), config, seed=(0, step))
        assert np.isfinite(advantage_N).all()
        assert diagnostics.metrics.get("credit/exact", 1) == 1
        shifts.append(diagnostics.metrics.get("credit/shift", 0))
    assert np.mean(shifts) > 0.05


@pytest.mark.filterwarnings("ignore:overflow")
def test_settings_that_overflow_are_refused_with_the_row_and_their_names():
    scaled = method(settings_of("gigpo"), shaper_config(order="chronological", alpha=1e300))
    with pytest.raises(
        StepBatchError, match=r"row \d+ .*its advantage is (inf|nan|-inf).*method\.shaper\.alpha=1e\+300"
    ):
        assign(BATCH, EqualityScorer(), scaled)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda n: None, "returned None"),
        (lambda n: np.zeros(n - 1), r"float64 with shape \(7,\)"),
        (lambda n: np.float32(1), r"shape \(\)"),  # these two would be broadcast
        (lambda n: np.zeros((n, 1), dtype=np.float32), r"shape \(8, 1\)"),
        (lambda n: ["0"] * n, "with shape"),
    ],
)
def test_what_an_estimator_returns_is_refused_unless_it_is_a_number_for_each_row(monkeypatch, given, told):
    wrong = replace(ESTIMATORS["gigpo"], function=lambda batch, *rest: given(len(batch)))
    monkeypatch.setitem(ESTIMATORS, "gigpo", wrong)
    with pytest.raises(StepBatchError, match=f"estimator 'gigpo' .*{told}.*one advantage for each row"):
        assign(BATCH, EqualityScorer(), GIGPO)


def test_float64_and_lists_of_an_estimator_become_float32(monkeypatch):
    wanted_N, _ = assign(BATCH, EqualityScorer(), SCPO)
    function = ESTIMATORS["gigpo"].function
    for change in (lambda array: array.astype(np.float64), list):
        changed = replace(ESTIMATORS["gigpo"], function=lambda *given, change=change: change(function(*given)))
        monkeypatch.setitem(ESTIMATORS, "gigpo", changed)
        advantage_N, _ = assign(BATCH, EqualityScorer(), SCPO)
        assert advantage_N.dtype == np.float32
        assert (advantage_N == wanted_N).all()


def test_nan_of_an_estimator_is_told_with_its_row_and_name(monkeypatch):
    def divides_by_0(batch, *rest):
        return np.where(np.arange(len(batch)) == 3, np.nan, 0)

    monkeypatch.setitem(ESTIMATORS, "gigpo", replace(ESTIMATORS["gigpo"], function=divides_by_0))
    with pytest.raises(StepBatchError, match=r"row 3 .*is nan\. Either estimator 'gigpo' divides by 0"):
        assign(BATCH, EqualityScorer(), GIGPO)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_matcher_whose_credit_is_no_number_is_named_and_not_the_estimator(monkeypatch, wrong):
    def mine(rule, m, order):
        yield Cell("failed", 0, 0)
        return MatchTrace((), (Credited(0, 0, 1.0, wrong),))

    monkeypatch.setitem(MATCHERS, "kmp", mine)
    with pytest.raises(ContractError, match=r"^matcher 'kmp' credited Credited\(.*credit=(nan|inf)\)"):
        assign(BATCH, EqualityScorer(), SCPO)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_control_whose_credit_is_no_number_is_named_and_not_the_estimator(monkeypatch, wrong):
    monkeypatch.setattr("scpo.shaping.shaper.allocate", lambda matched_l, *rest: np.full_like(matched_l, wrong))
    with pytest.raises(ContractError, match=r"row \d+ .*the shaper's credit is (nan|inf).*allocation=matched"):
        assign(BATCH, EqualityScorer(), SCPO)


class ConsumingScorer(EqualityScorer):
    """Empties the list that it is asked with."""

    def score(self, pairs):
        answers = super().score(list(pairs))
        pairs.clear()
        return answers


def test_a_scorer_that_consumes_its_list_changes_nothing():
    expected, _ = assign(BATCH, EqualityScorer(), SCPO)
    np.testing.assert_array_equal(assign(BATCH, ConsumingScorer(), SCPO)[0], expected)
