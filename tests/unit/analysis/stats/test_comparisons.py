"""Comparisons by measures of whole runs: named ones by experiment, all rows against a reference, what is open."""

import math

import pytest

from analysis.sources.collect import collect
from analysis.stats.comparisons import HIGHER, LOWER, NOT_RUN, OPEN, against, distinct, primary
from analysis.stats.measures import LEVELS, MEASURES, by_seed, held_out, steps_to, success_at
from analysis.stats.paired import p_value
from tests.support.run_records import write_run
from tests.support.study_runs import rising, write_study, write_study_run

NOISE = (0.0, 0.01, -0.01)
MAIN = {"main_table": ("scpo", "gigpo", "grpo")}
CURVES = {
    "scpo": lambda seed: rising(0.9, 0.002 * NOISE[seed % 3]),
    "gigpo": lambda seed: rising(0.9, NOISE[seed % 3]),
    "grpo": lambda seed: rising(0.7, NOISE[seed % 3]),
    "chronological": lambda seed: rising(0.95, NOISE[(seed + 1) % 3]),
}


def study(tmp_path, experiments=MAIN, **settings):
    write_study(tmp_path, experiments, CURVES, **settings)
    return collect(tmp_path).at_scale("study")


def row(data, name):
    return next(row for row in data.sections[0].rows if row.name == name)


def test_held_out_success_is_over_the_games_of_all_panels(tmp_path):
    run = write_run(tmp_path, scale="paper", steps=10)["id"]
    lines = [
        '{"step": 0, "val/valid_seen/success_rate": 0.5, "val/valid_seen/episodes": 140, '
        '"val/valid_unseen/success_rate": 0.0, "val/valid_unseen/episodes": 60, "val/train_games/success_rate": 1.0}',
        '{"step": 5, "val/valid_seen/success_rate": 0.7}',  # the other panel was not played
        '{"step": 10, "val/valid_seen/success_rate": 0.5, "val/valid_seen/episodes": 140, '
        '"val/valid_unseen/success_rate": 1.0, "val/valid_unseen/episodes": 60}',
    ]
    (tmp_path / run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    series = held_out(collect(tmp_path), run)
    assert series.steps == (0, 10)
    assert series.values == pytest.approx((0.35, 0.65))


def test_measures_of_a_run_by_hand(tmp_path):
    run = write_study_run(tmp_path, "gigpo", 0, {0: 0.0, 10: 0.4, 20: 0.6, 30: 0.8, 40: 0.8})
    data = collect(tmp_path)
    values = {name: measure.of(data, run["id"]) for name, measure in MEASURES.items()}
    assert values["validation_area"] == pytest.approx((2 + 5 + 7 + 8) / 40)
    assert values["last_success"] == pytest.approx(0.8)
    assert values["training_area"] == pytest.approx((22 - 0.02) / 39)  # logged from step 1 on
    assert success_at(20).of(data, run["id"]) == pytest.approx(0.6)
    assert success_at(25).of(data, run["id"]) is None
    assert [steps_to(level).of(data, run["id"]) for level in LEVELS] == pytest.approx([15, 30])
    assert steps_to(0.9).of(data, run["id"]) is None


def test_named_comparisons_are_read_by_the_corrected_test(tmp_path):
    found = primary(study(tmp_path))
    assert list(found) == ["Main_table"]
    scpo, host = found["Main_table"]
    assert (scpo.name, scpo.pairs, scpo.reading) == ("SCPO − GiGPO", "3/3", OPEN)
    assert (host.name, host.pairs, host.reading) == ("GiGPO − GRPO", "3/3", HIGHER)
    assert host.difference.mean == pytest.approx(0.2 / 2)  # two straight lines, 0.9 and 0.7 at the end
    assert scpo.p == p_value(scpo.difference)  # the larger of two: Holm multiplies it by one
    assert scpo.seeds_needed is None
    assert scpo.resolved > 0


def test_each_experiment_is_a_family_of_its_own_the_main_one_first(tmp_path):
    both = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    found = primary(study(tmp_path, both))
    assert [len(family) for family in found.values()] == [2, 1]
    (order,) = found["Ablation"]
    assert order.p == p_value(order.difference)


def test_every_row_against_a_reference_is_sorted_and_corrected(tmp_path):
    both = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    data = study(tmp_path, both)
    found = against(data, data.sections[0], "gigpo", MEASURES["validation_area"])
    assert [one.first.name for one in found] == ["chronological", "scpo", "grpo"]
    assert found[-1].reading == LOWER
    assert found[-1].p == pytest.approx(3 * p_value(found[-1].difference))


def test_rows_that_are_the_same_runs_stand_once(tmp_path):
    data = study(tmp_path, {"main_table": ("scpo", "gigpo"), "ablation": ("scpo",)})
    assert [one.name for one in distinct(data.sections[0])] == ["scpo", "gigpo"]


def test_a_seed_that_is_not_finished_makes_no_pair_and_is_counted(tmp_path):
    write_study_run(tmp_path, "gigpo", 2, rising(0.1), state="RUNNING")
    data = study(tmp_path)
    scpo, _ = primary(data)["Main_table"]
    assert (scpo.pairs, scpo.difference.n) == ("2/3", 2)
    assert list(by_seed(data, row(data, "gigpo"), MEASURES["last_success"])) == [0, 1]


def test_a_named_comparison_keeps_to_the_seeds_of_its_experiment(tmp_path):
    write_study(tmp_path, {"ablation": ("scpo", "gigpo", "chronological")}, CURVES, seeds=(2, 3, 4, 5))
    data = study(tmp_path)
    pairs = {title: [one.pairs for one in family] for title, family in primary(data).items()}
    assert pairs == {"Main_table": ["3/3", "3/3"], "Ablation": ["4/4"]}
    assert len(row(data, "gigpo").finished) == 6  # all of them are there for the figures


def test_one_pair_is_not_a_comparison(tmp_path):
    scpo, _ = primary(study(tmp_path, seeds=(0,)))["Main_table"]
    assert scpo.reading == NOT_RUN
    assert math.isnan(scpo.p)


def test_an_experiment_without_named_comparisons_has_no_family(tmp_path):
    assert primary(study(tmp_path, primary={})) == {}
