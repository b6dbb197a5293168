"""Measures of a run, by hand."""

import pytest

from analysis.sources.collect import collect
from analysis.sources.rows import Row, RowRun
from analysis.sources.series import Series
from analysis.stats.measures import (
    BETTER,
    FASTER,
    LEVELS,
    MEASURES,
    held_out,
    judged,
    logged_steps,
    reaches,
    steps_to,
    success_at,
)
from tests.support.run_records import log_lines, write_run
from tests.support.study_runs import write_study_run

CURVE = {0: 0.0, 10: 0.4, 20: 0.6, 30: 0.8, 40: 0.8}


def test_held_out_success_is_over_the_games_of_all_panels(tmp_path):
    run = write_run(tmp_path, scale="paper", steps=10)["id"]
    episodes = {"val/valid_seen/episodes": 140, "val/valid_unseen/episodes": 60}
    rates = [
        {"step": step, "val/valid_seen/success_rate": first, "val/valid_unseen/success_rate": second}
        for step, first, second in ((0, 0.5, 0.0), (5, 0.7, 0.7), (10, 0.5, 1.0))
    ]
    log_lines(tmp_path / run, [line | episodes | {"val/train_games/success_rate": 1.0} for line in rates])
    data = collect(tmp_path)
    data.by_metric[run]["val/valid_unseen/success_rate"] = Series((0, 10), (0.0, 1.0))  # it was not played at step 5
    series = held_out(data, run)
    assert series.steps == (0, 10)
    assert series.values == pytest.approx((0.35, 0.65))


def test_measures_of_a_run_by_hand(tmp_path):
    run = write_study_run(tmp_path, "gigpo", 0, CURVE)["id"]
    data = collect(tmp_path)
    values = {name: measure.of(data, run) for name, measure in MEASURES.items()}
    assert values["validation_area"] == pytest.approx((2 + 5 + 7 + 8) / 40)
    assert values["last_success"] == BETTER.of(data, run) == pytest.approx(0.8)
    assert values["training_area"] == pytest.approx((22 - 0.02) / 39)  # logged from step 1 on
    assert success_at(20).of(data, run) == pytest.approx(0.6)
    assert success_at(25).of(data, run) is None
    assert [steps_to(level).of(data, run) for level in LEVELS] == pytest.approx([15, 30])


def test_a_run_that_never_reaches_a_level_counts_with_its_last_step(tmp_path):
    run = write_study_run(tmp_path, "gigpo", 0, CURVE)["id"]
    data = collect(tmp_path)
    assert steps_to(0.9).of(data, run) == 40
    assert not reaches(data, run, 0.9)
    assert reaches(data, run, 0.5)


def test_a_run_without_a_curve_has_no_steps(tmp_path):
    run = write_study_run(tmp_path, "gigpo", 0, CURVE)["id"]
    data = collect(tmp_path)
    for name, series in data.by_metric[run].items():
        data.by_metric[run][name] = series.between(0, 0)
    assert FASTER.of(data, run) is None


def test_a_mini_run_is_judged_on_the_games_that_it_trains_on(tmp_path):
    run = write_run(tmp_path)["id"]
    data = collect(tmp_path)
    trained = data.series(run, "val/train_games/success_rate")
    assert judged(data, run).values == pytest.approx(trained.values)


def test_few_training_steps_are_listed_and_many_counted():
    class Logs:
        def series(self, run, metric):
            return {"a": Series((20,), (0.1,)), "b": Series((20, 40), (0.1, 0.2))}.get(
                run, Series(range(1, 41), [0] * 40)
            )

    def row(*runs):
        return Row("scpo", "SCPO", tuple(RowRun(run, seed, "DONE") for seed, run in enumerate(runs)))

    assert logged_steps(Logs(), [row("a")], ("m",)) == "training step 20"
    assert logged_steps(Logs(), [row("a"), row("b")], ("m",)) == "training steps 20, 40"
    assert logged_steps(Logs(), [row("c")], ("m",)) == "40 training steps from 1 to 40"
    assert logged_steps(Logs(), [], ("m",)) == ""
