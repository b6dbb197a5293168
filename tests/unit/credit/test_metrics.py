"""The credit metrics of hand-worked batches, and the samples of steps."""

import json
import logging

import numpy as np
import pytest

from scpo.credit import metrics as credit
from scpo.credit.assign import assign
from scpo.credit.metrics import STAGES
from scpo.errors import ScorerUnavailable
from tests.support.step_batches import EqualityScorer, TableScorer, make_batch, method, settings_of, shaper_config, take


class GoneScorer:
    name = "gone"

    def score(self, pairs):
        raise ScorerUnavailable("gone")


SCPO = method(settings_of("gigpo"), shaper_config(order="chronological"))
GIGPO = method(settings_of("gigpo"), name="gigpo")
ALWAYS = {
    "credit/active_groups", "credit/descents", "credit/steps_all", "credit/aux_mean", "credit/aux_mean_failed",
    "scpo/pairs_dense", "scpo/pairs_asked", "scpo/pairs_scored", "scpo/pairs_speculated",
    "scpo/shaping_skipped", "group/without_win", "anchor/alone", "advantage/outcome_mean", "advantage/outcome_std",
}  # fmt: skip
STEP_TERM = {"advantage/step_mean", "advantage/step_std"}
EFFECTS = {"credit/effective", "credit/shift", "credit/shift_rms", "credit/turned_positive"}
RATIOS = {"credit/steps", "credit/exact", "credit/above_theta"} | EFFECTS

# failed trajectory 1 follows the reference with a and b (the second from a shared anchor), 2 with nothing
BATCH = make_batch((0, 0, "a b c", 1), (0, 1, "x a b", 0), (0, 2, "y", 0), (1, 3, "a", 0))


def test_every_diagnostic_of_a_hand_worked_batch():
    _, diagnostics = assign(BATCH, EqualityScorer(), SCPO)
    metrics = diagnostics.metrics
    assert set(metrics) == ALWAYS | STEP_TERM | RATIOS | {"credit/no_op_anchors"}
    assert metrics["group/without_win"] == 0.5
    assert metrics["anchor/alone"] == 3 / 8, "b, x and the second group's start; start three times, a twice"
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
    assert set(diagnostics.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}
    json.dumps(metrics | diagnostics.timings, allow_nan=False)


@pytest.mark.parametrize(("outcome", "shift"), [(10, 0.0), (0.1, np.sqrt(2))])
def test_of_two_normalised_rows_only_the_order_reaches_the_advantage(outcome, shift):
    batch = make_batch((0, 0, "a b", outcome), (0, 1, "a c", 0))  # anchor start: 0.95 * outcome against 0 + 0.5
    _, diagnostics = assign(batch, EqualityScorer(), SCPO)
    assert diagnostics.metrics["credit/effective"] == 1
    assert diagnostics.metrics["credit/shift"] == pytest.approx(shift, abs=1e-4)


def test_inexact_matches_lower_the_exact_share():
    scorer = TableScorer({("a || now a", "x || now x"): 0.9, ("b || now b", "a || now a"): 0.9})
    _, diagnostics = assign(BATCH, scorer, SCPO)
    assert diagnostics.metrics["credit/exact"] == 0


def test_copies_count_in_no_diagnostic():
    doubled = take(BATCH, [0, 1, 2, 3, 4, 5, 6, 7, 4, 4, 7])
    plain, copied = (assign(batch, EqualityScorer(), SCPO)[1].metrics for batch in (BATCH, doubled))
    through_statistics = {name for name in plain if name.startswith("advantage/")} | {
        "credit/shift",
        "credit/shift_rms",
    }
    assert plain.keys() == copied.keys()
    assert all(plain[name] == copied[name] for name in plain.keys() - through_statistics)


def test_a_ratio_without_a_denominator_is_left_out():
    batch = make_batch((0, 0, "a", 1), (0, 1, "x", 0))
    _, diagnostics = assign(batch, EqualityScorer(), SCPO)
    assert ({"credit/exact"} | EFFECTS).isdisjoint(diagnostics.metrics)
    assert diagnostics.metrics["credit/steps"] == 0
    _, diagnostics = assign(make_batch((0, 0, "a", 1)), EqualityScorer(), SCPO)
    without_failures = ALWAYS - {"credit/steps_all", "credit/aux_mean_failed"}
    assert set(diagnostics.metrics) == without_failures | STEP_TERM | {"credit/no_op_anchors"}


def test_the_two_terms_of_an_advantage_and_what_credit_changes_in_it():
    # group of two: returns 10 and 0; the failure's only step shares the anchor "start" with the success
    batch = make_batch((0, 0, "a", 10), (0, 1, "a", 0))
    host = settings_of("gigpo", normalisation="mean_norm")
    advantage_N, diagnostics = assign(batch, EqualityScorer(), method(host, shaper_config(alpha=12.0)))
    metrics = diagnostics.metrics
    assert advantage_N.tolist() == [5 - 1, -5 + 1], "q is 10 and 12: the credit lifts the failure over the success"
    assert (metrics["advantage/outcome_mean"], metrics["advantage/outcome_std"]) == (0, 5)
    assert (metrics["advantage/step_mean"], metrics["advantage/step_std"]) == (0, 1)
    assert metrics["credit/shift_rms"] == metrics["credit/shift"] == 6
    assert metrics["credit/turned_positive"] == 0
    added = method(host, shaper_config(alpha=12.0, added_to="advantages"))
    advantage_N, diagnostics = assign(batch, EqualityScorer(), added)
    assert advantage_N.tolist() == [10, -10 + 12]
    assert diagnostics.metrics["credit/turned_positive"] == 1
    assert diagnostics.metrics["credit/shift_rms"] == pytest.approx(12 / np.sqrt(2))
    assert diagnostics.metrics["advantage/outcome_std"] == 5


def test_rows_whose_anchor_is_a_no_op_are_counted():
    anchor_N = np.array(["start", "Nothing happens.", "b", "start", " Nothing happens.\n", "a", "start", "y"], object)
    batch = take(BATCH, [*range(8), 1], anchor_N=anchor_N[[*range(8), 1]])
    assert assign(batch, EqualityScorer(), SCPO)[1].metrics["credit/no_op_anchors"] == 2 / 8


def test_a_scorer_that_finds_everything_similar_is_reported(caplog, monkeypatch):
    monkeypatch.setattr(credit, "ABOVE_THETA_PAIRS", 1)
    with caplog.at_level(logging.WARNING, credit.__name__):
        assign(BATCH, TableScorer(default=1.0), SCPO)
    assert "hardly tells steps apart" in caplog.text


@pytest.mark.parametrize("estimator", [settings_of("gigpo"), settings_of("grpo")])
def test_a_method_without_a_shaper_has_amounts_of_zero_and_needs_no_scorer(estimator):
    advantage_N, diagnostics = assign(BATCH, None, method(estimator, name="base"))
    assert advantage_N.shape == (8,)
    assert set(diagnostics.metrics) == ALWAYS | (STEP_TERM if estimator.name == "gigpo" else set())
    assert diagnostics.metrics["credit/active_groups"] == 0.5
    assert {diagnostics.metrics[name] for name in ALWAYS if name.startswith("scpo/") or "aux" in name} == {0}
    assert set(diagnostics.timings) == {f"timing_s/scpo/{stage}" for stage in STAGES}
    assert diagnostics.shaped is None
    assert diagnostics.unshaped_advantage_N is None


def test_the_metrics_of_a_reference_buffer():
    config = method(settings_of("gigpo"), shaper_config(order="chronological", reference_buffer="last_success"))
    buffer = config.shaper.make_buffer()
    first = assign(BATCH, EqualityScorer(), config, seed=(0, 1), buffer=buffer)[1].metrics
    assert {key: value for key, value in first.items() if key.startswith("buffer/")} == {
        "buffer/all_failed": 1 / 2, "buffer/served": 0, "buffer/share": 0, "buffer/tasks": 0,
    }  # fmt: skip
    later = make_batch((0, 0, "a b", 0), (0, 1, "y", 0), (1, 2, "a b", 0), (2, 3, "c", 1), (2, 4, "c", 0))
    second = assign(later, EqualityScorer(), config, seed=(0, 3), buffer=buffer)[1].metrics
    assert {key: value for key, value in second.items() if key.startswith("buffer/")} == {
        "buffer/all_failed": 2 / 3, "buffer/served": 1 / 2, "buffer/age": 2, "buffer/steps": 2 / 2,
        "buffer/share": 2 / 3, "buffer/tasks": 1,
    }  # fmt: skip
    assert second["credit/steps"] == 1, "of active groups alone"
    assert second["credit/steps_all"] == 3 / 4
    assert len(buffer) == 2


def test_a_buffer_learns_although_the_scorer_is_gone():
    config = method(settings_of("gigpo"), shaper_config(reference_buffer="last_success"))
    buffer = config.shaper.make_buffer()
    assign(BATCH, GoneScorer(), config, seed=(0, 1), buffer=buffer)
    assert len(buffer) == 1
