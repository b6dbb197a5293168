import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recorded import recorded
from scpo.advantages.anchors import anchor_groups
from scpo.advantages.registry import ESTIMATORS
from scpo.credit import metrics as credit
from scpo.credit.assign import assign, assign_tokens, resolve
from scpo.credit.metrics import STAGES
from scpo.errors import ConfigError, StepBatchError
from scpo.schema import HOSTS, IndependentSampling
from tests.support.step_batches import (
    EqualityScorer,
    TableScorer,
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
ALWAYS = {
    "credit/active_groups", "credit/descents", "credit/steps_all", "credit/aux_mean", "credit/aux_mean_failed",
    "scpo/pairs_dense", "scpo/pairs_asked", "scpo/pairs_scored", "scpo/pairs_speculated",
    "scpo/shaping_skipped",
}  # fmt: skip
RATIOS = {"credit/steps", "credit/effective", "credit/shift", "credit/exact", "credit/above_theta"}

# failed trajectory 1 follows the reference with a and b (the second from a shared anchor), 2 with nothing
BATCH = make_batch((0, 0, "a b c", 1), (0, 1, "x a b", 0), (0, 2, "y", 0), (1, 3, "a", 0))


def test_bonus_is_alpha_times_credit_less_the_penalty_for_invalid_steps():
    batch = take(BATCH, np.arange(8), valid_N=[True, False, *[True] * 4, False, True])
    _, told = assign(batch, EqualityScorer(), SCPO)
    # the reference is a c now, so the failed a is credited and the failed b is not
    assert np.allclose(told.bonus_N, [0, -0.1, 0, 0, 0.5, 0, -0.1, 0])
    assert np.allclose(told.step_return_N, [0.9025, 0.95, 1, 0, 0, 0, 0, 0])
    assert told.bonus_N.dtype == np.float32


def test_hand_worked_advantages():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x", 0))
    config = method(settings_of("gigpo", normalisation="mean_norm", omega=2.0), shaper_config())
    advantage_N, told = assign(batch, EqualityScorer(), config)
    # anchor start: 0.95 against 0 + 0.5; anchor a: 1 against 0
    assert np.allclose(advantage_N, [0.5 + 2 * 0.225, 0.5 + 2 * 0.5, -0.5 - 2 * 0.225, -0.5 - 2 * 0.5])
    assert advantage_N.dtype == np.float32
    assert told.metrics["credit/shift"] == pytest.approx(0.5)  # from -0.95 to -0.45 in the credited row


def test_every_diagnostic_of_a_hand_worked_batch():
    _, told = assign(BATCH, EqualityScorer(), SCPO)
    metrics = told.metrics
    assert set(metrics) == ALWAYS | RATIOS | {"credit/no_op_anchors"}
    assert metrics["credit/active_groups"] == 0.5
    assert metrics["credit/steps"] == 2 / 2
    assert metrics["credit/steps_all"] == 2 / 3
    assert metrics["credit/aux_mean"] == pytest.approx(0.5 * 2 / 8)
    assert metrics["credit/aux_mean_failed"] == pytest.approx(0.5 * 2 / 5)
    assert metrics["credit/exact"] == 1
    assert metrics["credit/effective"] == 0.5  # the anchor x is visited once, the anchor a twice
    assert metrics["credit/descents"] == 0
    assert metrics["scpo/pairs_dense"] == 3 * 3 + 3 * 1 + 3
    assert metrics["scpo/pairs_asked"] == 4  # a~x, a~a, b~b; a~y
    assert metrics["scpo/pairs_scored"] == 4
    assert metrics["credit/above_theta"] == 2 / 4
    assert metrics["scpo/pairs_speculated"] == metrics["scpo/shaping_skipped"] == 0
    assert set(told.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}
    json.dumps(metrics | told.timings, allow_nan=False)


@pytest.mark.parametrize(("outcome", "shift"), [(10, 0.0), (0.1, np.sqrt(2))])
def test_of_two_normalised_rows_only_the_order_reaches_the_advantage_whatever_counts_as_effective(outcome, shift):
    batch = make_batch((0, 0, "a b", outcome), (0, 1, "a c", 0))  # anchor start: 0.95 * outcome against 0 + 0.5
    _, told = assign(batch, EqualityScorer(), SCPO)
    assert told.metrics["credit/effective"] == 1
    assert told.metrics["credit/shift"] == pytest.approx(shift, abs=1e-4)


def test_inexact_matches_lower_the_exact_share():
    scorer = TableScorer({("a || now a", "x || now x"): 0.9, ("b || now b", "a || now a"): 0.9})
    _, told = assign(BATCH, scorer, SCPO)
    assert told.metrics["credit/exact"] == 0


def test_copies_count_in_no_diagnostic():
    doubled = take(BATCH, [0, 1, 2, 3, 4, 5, 6, 7, 4, 4, 7])
    plain, copied = (assign(batch, EqualityScorer(), SCPO)[1].metrics for batch in (BATCH, doubled))
    assert {k: v for k, v in plain.items() if k != "credit/shift"} == {
        k: v for k, v in copied.items() if k != "credit/shift"
    }


def test_a_ratio_without_a_denominator_is_left_out():
    batch = make_batch((0, 0, "a", 1), (0, 1, "x", 0))
    _, told = assign(batch, EqualityScorer(), SCPO)
    assert {"credit/exact", "credit/effective", "credit/shift"}.isdisjoint(told.metrics)
    assert told.metrics["credit/steps"] == 0
    _, told = assign(make_batch((0, 0, "a", 1)), EqualityScorer(), SCPO)
    assert set(told.metrics) == ALWAYS - {"credit/steps_all", "credit/aux_mean_failed"} | {"credit/no_op_anchors"}


def test_rows_that_stand_on_a_no_op_are_told():
    anchor_N = np.array(["start", "Nothing happens.", "b", "start", " Nothing happens.\n", "a", "start", "y"], object)
    batch = take(BATCH, [*range(8), 1], anchor_N=anchor_N[[*range(8), 1]])
    assert assign(batch, EqualityScorer(), SCPO)[1].metrics["credit/no_op_anchors"] == 2 / 8


@pytest.mark.parametrize("estimator", [settings_of("gigpo"), settings_of("grpo")])
def test_a_method_without_a_shaper_has_amounts_of_zero_and_needs_no_scorer(estimator):
    advantage_N, told = assign(BATCH, None, method(estimator, name="base"))
    assert advantage_N.shape == (8,)
    assert set(told.metrics) == ALWAYS
    assert told.metrics["credit/active_groups"] == 0.5
    assert {told.metrics[name] for name in ALWAYS if name.startswith("scpo/") or "aux" in name} == {0}
    assert set(told.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}
    assert told.steps(BATCH) == []
    assert told.unshaped_advantage_N is None


def test_token_advantages_of_a_method_with_a_critic():
    batch = take(make_batch((0, 0, "a b", 1), (0, 1, "a", 0)), np.arange(3), valid_N=[True, False, True])
    mask_NL = np.array([[1, 1], [1, 0], [1, 1]], bool)
    advantage_NL, return_NL, told = assign_tokens(batch, np.full((3, 2), 0.5), mask_NL, PPO)
    assert np.allclose(return_NL, [[1, 1], [0.9, 0], [0, 0]])
    assert (advantage_NL[0] > 0).all()
    assert advantage_NL[1, 0] > 0 == advantage_NL[1, 1]
    assert (advantage_NL[2] < 0).all()
    assert set(told.metrics) == ALWAYS
    assert set(told.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
def test_credit_in_a_shared_anchor_group_changes_every_hosts_advantage(host, mode):
    # failures 1 and 2 leave the anchor a together with the reference; only 1 goes on to b and is credited there
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a b", 0), (0, 2, "a x", 0))
    settings = settings_of(host, normalisation=mode)
    shaped_N, told = assign(batch, EqualityScorer(), method(settings, shaper_config(order="chronological")))
    plain_N, _ = assign(batch, None, method(settings, name="host"))
    assert told.shaped.credit_N[4] == 1
    assert shaped_N[4] > plain_N[4] + 0.05


@given(seed=st.integers(0, 10_000), host=st.sampled_from(HOSTS))
def test_credit_reaches_every_host_in_anchor_groups_of_two_or_more(seed, host):
    batch = random_batch(seed)
    settings = settings_of(host, normalisation="mean_norm", std_floor=0.0)
    shaped_N, told = assign(batch, EqualityScorer(), method(settings, shaper_config()))
    plain_N, _ = assign(batch, None, method(settings, name="host"))
    credit_N, id_N = told.shaped.credit_N, anchor_groups(batch)
    for row in np.flatnonzero(credit_N):
        others_N = (id_N == id_N[row]) & (credit_N != credit_N[row])
        if others_N.any():  # equal credit on all rows of a group cancels
            assert shaped_N[id_N == id_N[row]].tolist() != plain_N[id_N == id_N[row]].tolist()


def test_step_records_are_json_ready():
    _, told = assign(BATCH, EqualityScorer(), SCPO)
    records = json.loads(json.dumps(told.steps(BATCH)))
    assert len(records) == 8
    assert records[4] == {
        "group": 0, "trajectory": 1, "step": 1, "text": "a || now a", "success": False, "credit": 1.0
    }  # fmt: skip


def test_the_advantages_without_credit_are_those_of_the_host():
    shaped_N, told = assign(BATCH, EqualityScorer(), SCPO)
    plain_N, _ = assign(BATCH, None, method(SCPO.estimator, name="host"))
    assert told.advantage_N.tolist() == shaped_N.tolist()
    assert told.unshaped_advantage_N.tolist() == plain_N.tolist() != shaped_N.tolist()


def test_an_empty_batch_gets_no_advantages():
    advantage_N, told = assign(make_batch(), EqualityScorer(), SCPO)
    assert advantage_N.shape == (0,)
    assert told.metrics["credit/descents"] == 0


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
        resolve(method(settings_of("gigpo"), shaper_config(soft_base=0.7)))


def test_a_scorer_that_finds_everything_similar_is_reported(caplog, monkeypatch):
    monkeypatch.setattr(credit, "ABOVE_THETA_PAIRS", 1)
    with caplog.at_level(logging.WARNING, credit.__name__):
        assign(BATCH, TableScorer(default=1.0), SCPO)
    assert "hardly tells steps apart" in caplog.text


# Laws


@given(seed=st.integers(0, 10_000), copies=st.integers(0, 4), mode=st.sampled_from(["mean_std_norm", "mean_norm"]))
def test_scpo_differs_from_its_host_only_in_anchor_groups_that_hold_credit(seed, copies, mode):
    batch = random_batch(seed, copies=copies)
    host = settings_of("gigpo", normalisation=mode)
    shaped_N, told = assign(batch, EqualityScorer(), method(host, shaper_config()))
    plain_N, _ = assign(batch, None, method(host))
    touched = {
        (group, anchor)
        for group, anchor, value in zip(batch.group_N, batch.anchor_N, told.shaped.credit_N, strict=True)
        if value > 0
    }
    changed = np.flatnonzero(shaped_N != plain_N)
    assert all((batch.group_N[row], batch.anchor_N[row]) in touched for row in changed)
    without_step_part = method(settings_of("gigpo", normalisation=mode, omega=0.0), shaper_config())
    outcome_N, _ = assign(batch, EqualityScorer(), without_step_part)
    alone_N, _ = assign(batch, None, method(without_step_part.estimator))
    assert np.array_equal(outcome_N, alone_N)


@given(seed=st.integers(0, 10_000))
def test_permuting_rows_permutes_answers_and_leaves_metrics_alone(seed):
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
        advantage_N, told = assign(batch, EqualityScorer(), config, seed=(0, step))
        assert np.isfinite(advantage_N).all()
        assert told.metrics.get("credit/exact", 1) == 1
        shifts.append(told.metrics.get("credit/shift", 0))
    assert np.mean(shifts) > 0.05
