from datetime import UTC, datetime, timedelta

import pytest

from scpo.errors import ConfigError
from scpo.records.health import examine, read_rules, stalled

BROKEN = {
    "no_active_groups": ("credit/active_groups", [0.5, *[0.0] * 10], 10),
    "moves_without_credit": ("update/without_advantage", [0.0, 2.0, 2.0, 1.0], 3),
    "invalid_actions_rise": ("train/invalid_rate", [0.4, 0.1, 0.35, 0.36, 0.37], 4),
    "entropy_collapsed": ("actor/entropy", [3.0, 0.05, 0.04, 0.03], 3),
    "advantages_out_of_scale": ("advantage/step_std", [1.0, 1e30], 1),
    "gradient_spike": ("actor/grad_norm", [*[0.1] * 10, 2.1], 10),
    "kl_spike": ("actor/kl_reference", [*[0.01] * 10, 0.3], 10),
    "scorer_tells_nothing_apart": ("credit/above_theta", [0.95] * 5, 4),
    "success_back_at_its_start": ("val/valid_seen/success_rate", [0.1, 0.5, None, 0.11], 3),
}
HEALTHY = {
    "no_active_groups": ("credit/active_groups", [*[0.0] * 9, 0.1, *[0.0] * 9]),
    "moves_without_credit": ("update/without_advantage", [2.0, 1.0, 0.0, 2.0]),
    "invalid_actions_rise": ("train/invalid_rate", [0.9, 0.1, 0.35, 0.36, 0.1, 0.25]),
    "entropy_collapsed": ("actor/entropy", [3.0, 0.1, 0.05, 0.04, 0.1]),
    "advantages_out_of_scale": ("advantage/outcome_mean", [-900.0, 900.0]),
    "gradient_spike": ("actor/grad_norm", [0.1, 2.1, *[0.1] * 9, 0.5]),
    "kl_spike": ("actor/kl_reference", [*[1e-5] * 10, 1e-3]),
    "scorer_tells_nothing_apart": ("credit/above_theta", [0.2] * 9),
    "success_back_at_its_start": ("val/valid_seen/success_rate", [0.1, 0.19, 0.05]),
}


def log(metric, values):
    return [{"step": step, metric: value} for step, value in enumerate(values)]


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_reports_the_step_at_which_it_first_fired(rule):
    metric, values, step = BROKEN[rule]
    [remark] = examine(log(metric, values))
    assert (remark.rule, remark.level, remark.step) == (rule, "warn", step)
    assert metric in remark.text


@pytest.mark.parametrize("rule", HEALTHY)
def test_each_rule_ignores_values_near_its_bound(rule):
    assert examine(log(*HEALTHY[rule])) == []


def test_every_shipped_rule_has_both_tests():
    assert BROKEN.keys() == HEALTHY.keys() == read_rules().keys() - {"stalled"}


def test_a_family_of_tasks_is_no_panel():
    assert examine(log("val/valid_seen/pick/success_rate", [0.1, 0.5, 0.1])) == []


def test_a_run_that_is_silent_for_much_longer_than_a_step_is_stalled():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [{"step": step, "at": (start + timedelta(seconds=60 * step)).isoformat()} for step in range(4)]
    assert stalled(times, start + timedelta(minutes=20)) == []
    [remark] = stalled(times, start + timedelta(minutes=3 + 21))
    assert "silent for 1260 s, a step takes 60 s" in str(remark)
    assert stalled(times[:2], start + timedelta(days=1)) == []


def test_a_wrong_rule_is_named_with_its_file(tmp_path):
    path = tmp_path / "health.yaml"
    path.write_text("mine: {kind: outside, metric: a, steps: 0, level: warn}")
    with pytest.raises(ConfigError, match=r"health.yaml: mine.outside.steps: got 0"):
        read_rules(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"caf\xe9: {kind: stalled}", "mine.yaml is not UTF-8 text: .* position 3"),
        (b"late: {kind: stalled, kind: rises}", "mine.yaml, line 1, column 23: no YAML: found duplicate key kind"),
    ],
)
def test_a_file_of_rules_that_cannot_be_read_is_one_line_with_its_name(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=said):
        read_rules(path)
