"""Measures of a run, by hand."""

import pytest

from analysis.sources.collect import collect
from analysis.stats.measures import (
    BETTER,
    FASTER,
    LEVELS,
    MEASURES,
    held_out,
    judged,
    reaches,
    steps_to,
    success_at,
)
from tests.support.run_records import write_run
from tests.support.study_runs import write_study_run

CURVE = {0: 0.0, 10: 0.4, 20: 0.6, 30: 0.8, 40: 0.8}


def test_held_out_success_is_over_the_games_of_all_panels(tmp_path):
    run = write_run(tmp_path, scale="paper", steps=10)["id"]
    lines = [
        '{"step": 0, "val/valid_seen/success_rate": 0.5, "val/valid_seen/episodes": 140, '
        '"val/valid_unseen/success_rate": 0.0, "val/valid_unseen/episodes": 60, '
        '"val/train_games/success_rate": 1.0}',
        '{"step": 5, "val/valid_seen/success_rate": 0.7}',  # the other panel was not played
        '{"step": 10, "val/valid_seen/success_rate": 0.5, "val/valid_seen/episodes": 140, '
        '"val/valid_unseen/success_rate": 1.0, "val/valid_unseen/episodes": 60}',
    ]
    (tmp_path / run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    series = held_out(collect(tmp_path), run)
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
    run = write_study_run(tmp_path, "gigpo", 0, {0: 0.8})["id"]
    assert FASTER.of(collect(tmp_path), run) is None


def test_a_mini_run_is_judged_on_the_games_that_it_trains_on(tmp_path):
    run = write_run(tmp_path)["id"]
    data = collect(tmp_path)
    trained = data.series(run, "val/train_games/success_rate")
    assert judged(data, run).values == pytest.approx(trained.values)
