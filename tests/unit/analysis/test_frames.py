"""Runs as data frames: what a line is, and that a comparison is the one that the tables print."""

import json
import math
import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import scpo
from analysis.__main__ import main
from analysis.sources.archive_writing import write_archive
from analysis.sources.collect import collect
from analysis.stats.measures import Measure, by_seed
from analysis.stats.seed_statistics import difference
from scpo.errors import ConfigError, RecordError
from scpo.installed import REPOSITORY
from scpo.records import archive_index
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from tests.support.damage import without_permission
from tests.support.run_records import write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, set_processors, write_study, write_study_run

CURVES = {"scpo": lambda seed: rising(0.8, 0.02 * seed), "gigpo": lambda seed: rising(0.7, 0.01 * (seed % 2))}


@pytest.fixture
def folder(tmp_path):
    write_study(tmp_path / "runs", {"main_table": ("scpo", "gigpo")}, CURVES)
    return tmp_path / "runs"


def test_one_line_for_each_logged_value(folder):
    runs = scpo.load_runs(folder)
    assert list(runs.columns[:7]) == ["run", "method", "seed", "row", "step", "metric", "value"]
    assert runs.groupby("row")["seed"].unique().map(list).to_dict() == {"gigpo": [0, 1, 2], "scpo": [0, 1, 2]}
    line = runs[(runs.row == "scpo") & (runs.seed == 1) & (runs.metric == "val/valid_seen/success_rate")]
    assert line.set_index("step")["value"].to_dict() == pytest.approx({0: 0, 10: 0.22, 20: 0.42, 30: 0.62, 40: 0.82})
    assert len(set(runs["setting"])) == 1


def test_an_archive_gives_the_same_lines_as_its_runs(folder, tmp_path):
    data = collect(folder)
    write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
    pd.testing.assert_frame_equal(scpo.load_runs(tmp_path / "archive"), scpo.load_runs(folder))


def test_two_results_of_one_run_are_among_what_was_left_out(folder, tmp_path):
    again = CURVES | {"scpo": lambda seed: rising(0.9)}
    ids = write_study(tmp_path / "again", {"main_table": ("scpo", "gigpo")}, again)
    with pytest.warns(UserWarning, match="two results of 3 runs"):
        runs = scpo.load_runs([folder, tmp_path / "again"])
    (line,) = runs.attrs["left_out"]
    assert line.startswith(f"copies in {tmp_path}/again: two results of 3 runs: taken from {folder}, not {tmp_path}/")
    assert all(run in line for run in ids["scpo"])


def test_a_row_keeps_its_name_on_seeds_that_another_experiment_does_not_have(tmp_path):
    curves = {row: lambda seed: rising(0.8) for row in ("scpo", "gigpo", "chronological")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo"), "ablation": ("scpo", "chronological")}, curves)
    write_study(tmp_path, {"more_seeds": ("scpo", "gigpo", "chronological")}, curves, seeds=(50, 51))
    runs = scpo.load_runs(tmp_path)
    assert runs.groupby("row")["seed"].unique().map(list).to_dict() == {
        "chronological": [0, 1, 2, 50, 51],
        "gigpo": [0, 1, 2, 50, 51],
        "scpo": [0, 1, 2, 50, 51],
    }
    fresh = runs[runs.seed >= 50]
    assert len(set(fresh["setting"])) == 1
    found = scpo.compare(fresh[fresh.row == "scpo"], fresh[fresh.row == "chronological"])
    assert list(found["seeds"]) == [[50, 51], [50, 51]]


def test_a_run_whose_row_is_another_configuration_in_the_tables_has_a_row_of_its_own(tmp_path):
    def row(*words):
        return [write_run(tmp_path, "scpo", seed, overrides=("method=scpo", *words)) for seed in (0, 1)]

    default = row()
    for name, override in (("first", "matcher=forward"), ("second", "theta=0.8")):
        write_experiment(tmp_path, {"scpo": default, "variant": row(f"method.shaper.{override}")}, name=name)
    runs = scpo.load_runs(tmp_path)
    seeds = runs.groupby("row")["seed"].unique().map(list).to_dict()
    assert seeds == {"scpo": [0, 1], "theta0.8": [0, 1], "variant": [0, 1]}
    assert (runs.groupby("row")["configuration"].nunique() == 1).all()


def test_a_row_keeps_its_setting_on_seeds_that_another_experiment_has_next_to_others(tmp_path):
    """SCPO's seeds 0 and 1 had the setting of the ablation, whose rows all have SCPO's learning rate."""
    curves = {
        row: lambda seed: rising(0.8) for row in ("scpo", "gigpo", "grpo", "chronological", "theta_0_4", "theta_0_8")
    }
    compared = ("gigpo", "grpo", "scpo")
    variants = ("scpo", "chronological", "theta_0_4", "theta_0_8")
    write_study(tmp_path, {"mine": compared, "ablation": variants}, curves, seeds=(0, 1), primary={})
    write_study(tmp_path, {"mine2": compared}, curves, seeds=(2, 3), primary={})
    runs = scpo.load_runs(tmp_path)
    usual = runs[runs.setting == runs[runs.row == "gigpo"].setting.iloc[0]]
    assert usual.groupby("row")["seed"].unique().map(list).to_dict() == {row: [0, 1, 2, 3] for row in compared}
    other = runs[runs.row == "theta_0_4"].setting.iloc[0]
    assert set(runs[runs.setting == other].row) == {"chronological", "theta_0_4", "theta_0_8"}


def test_a_row_keeps_a_seed_that_another_experiment_has_under_a_name_of_its_own(tmp_path):
    rows = {}
    for row in ("scpo", "gigpo"):
        rows[row] = [write_run(tmp_path, row, seed, overrides=(f"method={row}",)) for seed in (0, 1, 2)]
    write_experiment(tmp_path, rows, name="one_by_method")
    # Read first, for its name is first in the alphabet.
    write_experiment(tmp_path, {"gigpo_alfworld_s1": [rows["gigpo"][1]]}, name="gigpo_alfworld_s1")
    runs = scpo.load_runs(tmp_path)
    assert runs.groupby("row")["seed"].unique().map(list).to_dict() == {"gigpo": [0, 1, 2], "scpo": [0, 1, 2]}
    assert set(runs["differs"]) == {""}
    found = scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], "train/success_rate")
    assert list(found["pairs"]) == [3]


@pytest.mark.parametrize("name", ["first", "second"])
def test_seeds_that_are_text_are_refused_by_the_side_that_has_them(tmp_path, name):
    write_experiment(tmp_path, {row: methods_own_runs(tmp_path, row, (0, 1)) for row in ("scpo", "gigpo")})
    runs = scpo.load_runs(tmp_path)
    sides = {"first": runs[runs.row == "scpo"], "second": runs[runs.row == "gigpo"]}
    sides[name] = sides[name].assign(seed=sides[name].seed.astype(str))
    with pytest.raises(ConfigError, match=rf"^{name} has the seed '0', a str; .*assign\(seed={name}\.seed\.astype"):
        scpo.compare(sides["first"], sides["second"], "train/success_rate")


def methods_own_runs(folder, method, seeds):
    return [write_run(folder, method, seed, overrides=(f"method={method}",)) for seed in seeds]


def test_a_comparison_warns_of_seeds_that_ran_under_several_versions_of_the_code(tmp_path):
    rows = {row: methods_own_runs(tmp_path, row, (0, 1)) for row in ("scpo", "gigpo")}
    write_experiment(tmp_path, rows)
    files = code_files()
    for number, run in enumerate((*rows["scpo"], *rows["gigpo"])):
        changed = {"scpo/advantages/gigpo.py": "another"} if number == 1 else {}
        write_json(tmp_path / run["id"] / "code.json", {"files": files | changed})
    runs = scpo.load_runs(tmp_path)
    mixed = "its seeds ran under several versions of scpo/advantages/gigpo.py"
    assert set(runs[runs.row == "scpo"].differs) == {mixed}
    with pytest.warns(UserWarning, match="^the seeds of the first ran under several versions of scpo/adv") as warned:
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], "train/success_rate")
    assert len(warned) == 1


def test_a_comparison_warns_of_other_weights_under_one_path(tmp_path):
    rows = {row: methods_own_runs(tmp_path, row, (0, 1)) for row in ("scpo", "gigpo")}
    write_experiment(tmp_path, rows)
    for number, run in enumerate((*rows["scpo"], *rows["gigpo"])):
        weights = {"model.path=/data/mine": str(number // 2)}
        write_json(tmp_path / run["id"] / "provenance.json", {"attempts": {"1": {"cpu": "a", "weights": weights}}})
    runs = scpo.load_runs(tmp_path)
    with pytest.warns(UserWarning, match="^the two ran under several versions of the weights of model.path=/data/mine"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], "train/success_rate")


@pytest.mark.filterwarnings("error")
def test_a_comparison_does_not_warn_of_the_code_of_runs_that_it_does_not_pair(tmp_path):
    rows = {row: methods_own_runs(tmp_path, row, range(4)) for row in ("scpo", "gigpo")}
    write_experiment(tmp_path, {row: runs[:2] for row, runs in rows.items()}, name="main_table")
    write_experiment(tmp_path, rows, name="more_seeds")
    files = code_files()
    for runs_of_row in rows.values():
        for seed, run in enumerate(runs_of_row):
            changed = {"scpo/advantages/gigpo.py": "another"} if seed == 3 else {}
            write_json(tmp_path / run["id"] / "code.json", {"files": files | changed})
    runs = scpo.load_runs(tmp_path)
    # One note for all seeds of a row of one setting, whichever experiment has them.
    assert set(runs.differs) == {"its seeds ran under several versions of scpo/advantages/gigpo.py"}
    own, others = (runs[runs.row == row] for row in ("scpo", "gigpo"))
    found = scpo.compare(own[own.seed < 3], others, "train/success_rate")
    assert list(found["pairs"]) == [3]
    with pytest.warns(UserWarning, match=r"^the seeds of the first ran .*; the seeds of the second ran under several"):
        scpo.compare(own, others, "train/success_rate")


def test_a_comparison_warns_of_rows_that_ran_under_different_code(tmp_path):
    rows = {row: [write_run(tmp_path, row, seed) for seed in (0, 1)] for row in ("scpo", "chronological")}
    write_experiment(tmp_path, rows)
    files = code_files()
    for row, changed in (("scpo", {"scpo/advantages/gigpo.py": "another"}), ("chronological", {})):
        for run in rows[row]:
            write_json(tmp_path / run["id"] / "code.json", {"files": files | changed})
    runs = scpo.load_runs(tmp_path)
    assert set(runs.differs) == {"", "method.shaper.order=chronological (scpo: balanced)"}
    with pytest.warns(UserWarning, match=r"^the two ran under several versions of scpo/advantages/gigpo\.py$"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "chronological"])


def test_a_comparison_warns_of_pairs_that_ran_on_two_types_of_processor(folder):
    set_processors(folder, "gigpo", ("another", "a processor", "another"))
    runs = scpo.load_runs(folder)
    with pytest.warns(UserWarning, match="^the two ran seeds 0, 2 on several types of processor, between which sums"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"])


def test_metrics_are_chosen_by_a_pattern(folder):
    runs = scpo.load_runs(folder, metrics="val/*/success_rate")
    assert set(runs["metric"]) == {"val/valid_seen/success_rate", "val/valid_unseen/success_rate"}


def test_a_comparison_is_the_one_of_the_tables(folder):
    runs = scpo.load_runs(folder)
    with pytest.warns(UserWarning, match=r"more than the method: trainer.optimizer.learning_rate"):  # a rate a method
        found = scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"])
    data = collect(folder)
    last = Measure("last", lambda data, run: data.series(run, "val/valid_seen/success_rate").last)
    rows = (data.sections[0].row(name) for name in ("scpo", "gigpo"))
    expected = difference(*(by_seed(data, row, last) for row in rows))
    line = found.loc["val/valid_seen/success_rate"]
    assert line["difference"] == expected.mean
    assert (line["low"], line["high"]) == expected.interval()
    assert line["difference"] == pytest.approx(line["first"] - line["second"])
    assert (line["pairs"], line["seeds"]) == (3, [0, 1, 2])
    assert list(found["p_holm"]) == pytest.approx([min(1, 2 * p) for p in found["p"]])


@pytest.mark.parametrize(("at", "value"), [(10, 0.22), ("last", 0.82), ("best", 0.82), ("mean", 0.416)])
def test_a_comparison_reads_the_curve_where_it_is_told(folder, at, value):
    runs = scpo.load_runs(folder)
    one_seed = runs[runs.seed == 1]
    sides = (one_seed[one_seed.row == row] for row in ("scpo", "gigpo"))
    found = scpo.compare(*sides, "val/valid_seen/success_rate", at=at)
    assert found["first"].item() == pytest.approx(value)
    assert math.isnan(found["low"].item())  # one pair has no interval


def test_seeds_that_one_side_lacks_make_no_pair(folder):
    runs = scpo.load_runs(folder)
    found = scpo.compare(runs[(runs.row == "scpo") & (runs.seed < 2)], runs[runs.row == "gigpo"])
    assert set(found["pairs"]) == {2}
    gigpo = runs[(runs.row == "gigpo") & (runs.seed < 2) & (runs.step == 40)]
    assert found["second"]["val/valid_seen/success_rate"] == pytest.approx(
        gigpo[gigpo.metric == "val/valid_seen/success_rate"]["value"].mean()
    )


def test_unfinished_and_damaged_runs_are_left_out_with_a_warning(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1))
    unfinished = write_run(tmp_path, seed=2, state="FAILED")["id"]
    with pytest.warns(UserWarning, match=r"left out, for 1 reason \(attrs") as warned:
        runs = scpo.load_runs(tmp_path)
    assert len(warned) == 1
    assert set(runs["run"]) == {run for of_row in ids.values() for run in of_row}
    assert runs.attrs["left_out"] == [f"{unfinished}: not finished (FAILED)"]
    assert unfinished in set(scpo.load_runs(tmp_path, finished=False)["run"])


@pytest.mark.parametrize("finished", [True, False])
def test_damaged_runs_are_named_whether_or_not_unfinished_ones_are_kept(tmp_path, finished):
    write_ablation(tmp_path, seeds=(0, 1))
    damaged = write_run(tmp_path, seed=2)["id"]
    (tmp_path / damaged / "metrics.jsonl").write_text("{]\n")
    with pytest.warns(UserWarning, match="left out, for 1 reason"):
        runs = scpo.load_runs(tmp_path, finished=finished)
    (reason,) = runs.attrs["left_out"]
    assert reason.startswith(f"{damaged}: ")
    assert "metrics.jsonl" in reason


def test_runs_of_several_settings_are_not_averaged(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="longer")
    runs = scpo.load_runs(tmp_path)
    with pytest.raises(ConfigError, match=r"first has 2 runs of 1 seeds .* one run a seed"):
        scpo.compare(runs, runs)
    short, long = (runs[runs.setting == setting] for setting in runs["setting"].unique())
    said = r"different settings: trainer.steps=(40|80) \(the others: (80|40)\)"
    with pytest.warns(UserWarning, match=said):
        scpo.compare(short, long, "train/success_rate", at=20)


@pytest.fixture
def two_alphas(tmp_path):
    """Runs in no experiment: SCPO with alpha=2 on seeds 0 and 1, alpha=0.1 on 2 and 3; GiGPO."""
    for seed in range(4):
        write_run(tmp_path, seed=seed, overrides=(f"method.shaper.alpha={2.0 if seed < 2 else 0.1}",))
        write_run(tmp_path, "gigpo", seed, overrides=("method=gigpo",))
    return tmp_path


def test_configurations_of_runs_in_no_experiment_are_told_apart(two_alphas):
    runs = scpo.load_runs(two_alphas)
    known = runs[runs.method == "scpo"].groupby(["row", "differs", "configuration"])["seed"].unique()
    assert {key[:2]: list(seeds) for key, seeds in known.items()} == {
        ("scpo_alpha_0.1", "alpha=0.1"): [2, 3],
        ("scpo_alpha_2.0", "alpha=2.0"): [0, 1],
    }
    assert set(runs["configuration"]) == set(runs.attrs["configurations"])


def test_a_side_of_several_configurations_is_warned_about(two_alphas):
    runs = scpo.load_runs(two_alphas)
    with pytest.warns(UserWarning, match=r"runs of the first differ in more than the seed: alpha=\S+; alpha="):
        scpo.compare(runs[runs.method == "scpo"], runs[runs.method == "gigpo"])


def test_equal_rows_of_two_folders_are_compared_with_a_warning_of_what_differs(tmp_path):
    for alpha in (2.0, 0.1):
        write_run(tmp_path / str(alpha), overrides=(f"method.shaper.alpha={alpha}",))
    first, second = (scpo.load_runs(tmp_path / str(alpha)) for alpha in (2.0, 0.1))
    with pytest.warns(UserWarning, match=r"more than the method: method\.shaper\.alpha=2\.0 \(the others: 0\.1\)"):
        scpo.compare(first, second)


def test_a_comparison_of_one_method_names_its_settings_that_differ_and_none_that_are_equal(tmp_path):
    rows = ("scpo", "chronological", "gigpo")
    write_study(tmp_path, {"ablation": rows}, {row: lambda seed: rising(0.8, 0.01 * seed) for row in rows})
    runs = scpo.load_runs(tmp_path)
    order = "method.shaper.order=chronological"
    rate = "trainer.optimizer.learning_rate=0.004 (the others: 0.002)"
    differs = runs.groupby("row")["differs"].unique().map(list).to_dict()
    assert differs["chronological"][0].endswith(f"{order} (scpo: balanced)")
    assert "method." not in differs["scpo"][0]

    chronological, usual, host = (runs[runs.row == row] for row in ("chronological", "scpo", "gigpo"))
    said = f"^the two differ in more than the method: {re.escape(order)} .the others: balanced.$"
    with pytest.warns(UserWarning, match=said):
        scpo.compare(chronological, usual)
    # Settings of two methods are the methods'.
    with pytest.warns(UserWarning, match=f"more than the method: {re.escape(rate)}$"):
        scpo.compare(chronological, host)


def test_runs_that_differ_in_the_seed_alone_have_one_configuration(tmp_path):
    curves = {row: lambda seed: rising(0.8) for row in ("scpo", "gigpo")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    write_study(tmp_path, {"more_seeds": ("scpo",)}, curves, seeds=(50, 51))
    runs = scpo.load_runs(tmp_path)
    assert runs[runs.row == "scpo"].configuration.nunique() == 1
    assert runs.configuration.nunique() == 2


@pytest.mark.parametrize(
    ("at", "steps"),
    [("last", "20 and 40"), *((at, "0 to 20 at 3 steps and 0 to 40 at 5 steps") for at in ("best", "area"))],
)
def test_a_pair_whose_curves_end_at_different_steps_is_warned_about(folder, at, steps):
    runs = scpo.load_runs(folder)
    first = runs[(runs.row == "scpo") & ((runs.seed != 1) | (runs.step <= 20))]
    with pytest.warns(UserWarning, match=rf"of first and second: {steps} \(seeds 1\)"):
        scpo.compare(first, runs[runs.row == "gigpo"], at=at)


@pytest.mark.parametrize("lost", ["line", "number"])
def test_an_area_over_a_validation_that_is_missing_is_warned_about(folder, lost):
    runs = scpo.load_runs(folder)
    hole = (runs.row == "scpo") & (runs.seed == 1) & (runs.step == 20) & runs.metric.str.startswith("val/")
    if lost == "line":
        runs = runs[~hole]
    else:
        runs.loc[hole, "value"] = float("nan")
    with pytest.warns(UserWarning, match=r"0 to 40 at 4 steps and 0 to 40 at 5 steps \(seeds 1\)"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], at="area")


@pytest.mark.filterwarnings("ignore:the two differ")
def test_the_best_of_more_validations_is_warned_about(folder):
    runs = scpo.load_runs(folder)
    fewer, second = runs[(runs.row == "scpo") & (runs.step % 20 == 0)], runs[runs.row == "gigpo"]
    said = (
        "^at='best' compares val/valid_seen/success_rate of different training steps, of first and second: 0 to 40 at "
        r"3 steps and 0 to 40 at 5 steps \(seeds 0, 1, 2\); the best of more values is higher by chance; at=40 compares"
    )
    with pytest.warns(UserWarning, match=said):
        scpo.compare(fewer, second, at="best")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="at=")
        # The same validations; and the last one, which is of step 40 on both sides.
        scpo.compare(fewer, second[second.step % 20 == 0], at="best")
        scpo.compare(fewer, second, at="last")


@pytest.mark.filterwarnings("ignore:the two differ")
@pytest.mark.parametrize(("at", "where"), [(30, "at step 30"), ("area", "for at='area'")])
def test_a_pair_that_is_left_out_because_a_side_has_no_value_is_warned_about(folder, at, where):
    runs = scpo.load_runs(folder)
    kept = 20 if at == 30 else 0
    first = runs[(runs.row == "scpo") & ((runs.seed != 1) | (runs.step <= kept))]
    panels = "val/valid_seen/success_rate, val/valid_unseen/success_rate"
    said = rf"^pairs were left out, for a side has no value {where}: {panels} \(the first lacks it on seeds 1\)$"
    with pytest.warns(UserWarning, match=said) as warned:
        found = scpo.compare(first, runs[runs.row == "gigpo"], at=at)
    assert set(found["pairs"]) == {2}
    assert len([warning for warning in warned if "pairs were left out" in str(warning.message)]) == 1


@pytest.mark.filterwarnings("ignore:the two differ")
def test_the_step_that_a_warning_of_unlike_steps_advises_pairs_every_seed(folder):
    runs = scpo.load_runs(folder)
    first = runs[(runs.row == "scpo") & ((runs.seed != 1) | (runs.step <= 20))]
    second = runs[(runs.row == "gigpo") & ((runs.seed != 2) | (runs.step <= 10))]
    with pytest.warns(UserWarning, match=r"\(seeds 2\); at=10 compares the last step that all have$"):
        scpo.compare(first, second, at="last")
    assert set(scpo.compare(first, second, at=10)["pairs"]) == {3}


@pytest.mark.filterwarnings("error:at=")
@pytest.mark.filterwarnings("error:pairs were")
@pytest.mark.filterwarnings("ignore:the two differ")
@pytest.mark.parametrize("number", [int, np.int64, float])
def test_a_step_is_compared_without_a_warning_of_where_curves_end(folder, number):
    runs = scpo.load_runs(folder)
    assert len(scpo.compare(runs[(runs.row == "scpo") & (runs.step <= 20)], runs[runs.row == "gigpo"], at=number(20)))


@pytest.mark.parametrize("at", [None, 20.5, math.nan, True])
def test_what_is_no_training_step_is_refused(folder, at):
    runs = scpo.load_runs(folder)
    with pytest.raises(ConfigError, match=f"^at={at} is unknown; allowed are last, .* or a training step$"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], at=at)


@pytest.mark.filterwarnings("error")
def test_the_same_runs_on_both_sides_are_warned_about(folder):
    runs = scpo.load_runs(folder)
    with pytest.warns(UserWarning, match=r"^3 runs on both sides, as .*scpo.*: a run minus itself is 0\. Select two"):
        found = scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "scpo"])
    assert set(found["p"]) == {1}


@pytest.mark.filterwarnings("ignore:the two differ")
def test_a_difference_without_a_spread_says_why_it_has_no_p(tmp_path):
    # In binary fractions, so that no pair differs in the last bit.
    curves = {row: lambda seed, end=end: rising(end) for row, end in (("scpo", 0.75), ("gigpo", 0.5))}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    runs = scpo.load_runs(tmp_path)
    with pytest.warns(
        UserWarning,
        match=r"^no spread in val/valid_seen/success_rate, val/valid_unseen/success_rate: all .* is NaN, because",
    ):
        found = scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"])
    assert found["p"].isna().all()
    with pytest.warns(UserWarning, match=r"^no spread in val/valid_seen/success_rate: all .* is no certainty$"):
        found = scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], "val/valid_seen/success_rate", at=0)
    assert list(found["p"]) == [1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda runs: scpo.compare(runs[runs.seed == 0], runs[runs.seed == 1]), "several|one run a seed"),
        (lambda runs: scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], at="end"), "allowed are last"),
        (lambda runs: scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], "loss"), "metric loss"),
        (lambda runs: scpo.compare(runs[["run"]], runs), "no column method"),
        (
            lambda runs: scpo.compare(runs[(runs.row == "scpo") & (runs.seed == 0)],
                                      runs[(runs.row == "gigpo") & (runs.seed == 1)]),
            "the first has seeds 0, the second 1",
        ),
    ],
)  # fmt: skip
def test_a_comparison_that_cannot_be_made_says_why(folder, call, said):
    with pytest.raises(ConfigError, match=said):
        call(scpo.load_runs(folder))


@pytest.mark.filterwarnings("ignore:the two differ")
def test_a_comparison_of_nothing_or_at_a_step_without_validation_says_why(folder):
    runs = scpo.load_runs(folder)
    scpo_lines, others = runs[runs.row == "scpo"], runs[runs.row == "gigpo"]
    with pytest.raises(ConfigError, match="first has no lines, so its selection matched no run"):
        scpo.compare(runs[runs.row == "scop"], others)
    with pytest.raises(ConfigError, match="was not logged at step 7; steps: 0, 10, 20, 30, 40"):
        scpo.compare(scpo_lines, others, at=7)


def test_a_source_that_is_none_is_refused(tmp_path):
    with pytest.raises(RecordError, match='a W&B project is "wandb:team/project"'):
        scpo.load_runs("team/project")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="no runs were found in"):
        scpo.load_runs(tmp_path / "empty")


def test_a_folder_near_the_runs_is_answered_with_theirs(folder, tmp_path, monkeypatch, capsys):
    data = collect(folder)
    write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "docs" / "study")
    (tmp_path / "docs" / "study" / "first-edition").mkdir()
    monkeypatch.chdir(tmp_path)
    run = f"runs/{data.runs['id'][0]}"
    for source, meant in {
        "docs": "docs/study",
        "docs/study/runs.parquet": "docs/study",
        "docs/stduy": "docs/study",
        "runz": "runs",
        run: "runs",
        f"{run}/metrics.jsonl": "runs",
        ".": "runs",
    }.items():
        with pytest.raises(RecordError, match=rf"; did you mean {meant}\?$"):
            scpo.load_runs(source)
        assert main(["figures", "--runs-dir", source]) == 1
        assert capsys.readouterr().out.replace("\n", "").endswith(f"; did you mean {meant}?")


def test_a_file_and_half_an_address_of_a_project_are_told_apart_from_missing_folders(tmp_path):
    (tmp_path / "runs.csv").write_text("")
    with pytest.raises(RecordError, match="is a file; name a folder of run folders or an archive"):
        scpo.load_runs(tmp_path / "runs.csv")
    with pytest.raises(RecordError, match="wandb:team names no W&B project"):
        scpo.load_runs("wandb:team")


def test_an_offline_folder_of_wandb_is_answered_with_what_to_do(tmp_path):
    offline = tmp_path / "offline-run-20250101_000000-gigpo1"
    offline.mkdir()
    (offline / "run-gigpo1.wandb").write_bytes(b":W&B")
    said = r"no runs were found in .*Upload it \(`wandb sync`.*in scpo\.load_runs as \"wandb:<entity>/<project>\"$"
    with pytest.raises(RecordError, match=said):
        scpo.load_runs(tmp_path)


def test_an_offline_folder_of_wandb_itself_is_answered_with_its_upload_and_not_with_a_restore(tmp_path):
    """It has folders of its own, which are no run folders."""
    offline = tmp_path / "runs" / "wandb" / "offline-run-20250101_000000-gigpo1"
    (offline / "files").mkdir(parents=True)
    (offline / "run-gigpo1.wandb").write_bytes(b":W&B")
    write_run(tmp_path / "runs")
    with pytest.raises(RecordError, match=r"Upload it \(`wandb sync`") as refused:
        scpo.load_runs(offline)
    assert not re.search("[Rr]estore|[Mm]ove|did you mean", str(refused.value))


@pytest.mark.parametrize("source", [None, 3, b"runs", [None], [], {"runs": 1}, pd.DataFrame({"runs": [1]})])
def test_a_source_of_another_type_is_refused_with_an_example(source):
    with pytest.raises(ConfigError, match=r"load_runs\(source\): got .*e\.g\. load_runs\(\"runs\"\)"):
        scpo.load_runs(source)


@pytest.mark.parametrize("metrics", [3, b"val/*", [3], [None], [], {"val/*": 1}])
def test_metrics_of_another_type_are_refused_with_an_example(folder, metrics):
    runs = scpo.load_runs(folder)
    shown = re.escape(repr(metrics[0] if isinstance(metrics, list) and metrics else metrics))
    needed = f'got {shown}; give the name of a metric, .* or a list of names, e.g. "val/\\*"$'
    with pytest.raises(ConfigError, match=rf"^load_runs\(metrics\): {needed}"):
        scpo.load_runs(folder, metrics=metrics)
    with pytest.raises(ConfigError, match=rf"^compare\(metric\): {needed}"):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"], metrics)


@pytest.mark.parametrize("name", ["finished", "refresh"])
def test_a_switch_of_another_type_is_refused(folder, name):
    with pytest.raises(ConfigError, match=rf"^load_runs\({name}\): got 'no'; give True or False$"):
        scpo.load_runs(folder, **{name: "no"})


def test_a_long_argument_is_cut_off_in_its_error(folder):
    runs = scpo.load_runs(folder)
    with pytest.raises(ConfigError, match=r"^first is \[\{'run': .{80,100}\.\.\.; pass the lines of one row, e\.g\."):
        scpo.compare(runs.to_dict("records"), runs)


@pytest.mark.parametrize(("column", "kind"), [("step", "int"), ("value", "float")])
@pytest.mark.filterwarnings("ignore:the two differ")
def test_numbers_that_are_text_are_refused_with_how_to_convert_them(folder, column, kind):
    runs = scpo.load_runs(folder)
    first, second = runs[runs.row == "scpo"], runs[runs.row == "gigpo"]
    text = second.assign(**{column: second[column].astype(str)})
    said = rf"^second has the {column} '\S+', a str; .*: second\.assign\({column}=second\.{column}\.astype\({kind}\)\)$"
    with pytest.raises(ConfigError, match=said):
        scpo.compare(first, text)
    again = text.assign(**{column: text[column].astype(kind)})
    pd.testing.assert_frame_equal(scpo.compare(first, again), scpo.compare(first, second))


@pytest.mark.filterwarnings("ignore:the two differ")
def test_frames_that_were_read_from_a_file_give_the_same_comparison(folder, tmp_path):
    runs = scpo.load_runs(folder)
    runs.to_csv(tmp_path / "runs.csv", index=False)
    read = pd.read_csv(tmp_path / "runs.csv")
    # A missing value may also be that of another type of pandas.
    for again in (read, read.convert_dtypes(), read.astype({"value": object}), read.astype({"differs": "category"})):
        found, expected = (
            scpo.compare(table[table.row == "scpo"], table[table.row == "gigpo"], at="area") for table in (again, runs)
        )
        pd.testing.assert_frame_equal(found, expected)


def test_a_metric_that_no_run_has_gives_a_warning_with_the_nearest_names(folder):
    with pytest.warns(UserWarning, match=r"no run has a metric val/success.*val/valid_seen/success_rate"):
        assert scpo.load_runs(folder, metrics="val/success").empty


def test_the_numbers_are_floats_and_the_seeds_whole(folder):
    runs = scpo.load_runs(folder)
    assert runs["value"].dtype == np.float64
    assert runs["seed"].dtype.kind == runs["step"].dtype.kind == "i"


def test_names_of_rows_are_answered_with_what_to_pass():
    with pytest.raises(ConfigError, match=r"first is 'scpo'; pass the lines of one row, e.g. runs\[runs.row"):
        scpo.compare("scpo", "gigpo")


@pytest.mark.parametrize("content", [None, b"", b"PAR1 cut short"])
def test_an_archive_that_lost_its_metrics_is_refused_with_the_reason(tmp_path, content):
    for name in (archive_index.RUNS, archive_index.INDEX):
        shutil.copy(REPOSITORY / "docs/study" / name, tmp_path)
    if content is not None:
        (tmp_path / archive_index.METRICS).write_bytes(content)
    with pytest.raises(RecordError, match=r"all runs are damaged: .*metrics\.parquet: is "):
        scpo.load_runs(tmp_path, metrics="val/*/success_rate")


def test_an_index_without_its_checksum_leaves_nothing_out(folder, tmp_path):
    data = collect(folder)
    write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
    index = tmp_path / "archive" / archive_index.INDEX
    content = json.loads(index.read_text())
    del content["checksum"]
    index.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"^nothing was left out, but .*experiments.json: it has no"):
        runs = scpo.load_runs(tmp_path / "archive")
    assert not runs.attrs["left_out"]
    assert runs["run"].nunique() == len(data.by_id)


@pytest.mark.filterwarnings("ignore:the two differ")
def test_a_comparison_takes_patterns_of_metrics(folder):
    runs = scpo.load_runs(folder)
    sides = runs[runs.row == "scpo"], runs[runs.row == "gigpo"]
    table = scpo.compare(*sides, ["train/success_rate", "val/*/success_rate"])
    assert list(table.index) == [
        "train/success_rate",
        "val/valid_seen/success_rate",
        "val/valid_unseen/success_rate",
    ]
    assert len(scpo.compare(*sides, "val/*")) > 2
    with pytest.raises(ConfigError, match=r"do not both have the metric loss/\*; common are .*train/success_rate"):
        scpo.compare(*sides, "loss/*")


def test_an_archive_that_lost_its_index_is_told_so_and_not_pointed_to_another(folder, tmp_path, capsys):
    data = collect(folder)
    for name in ("study", "study/first-edition"):
        write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / name)
    (tmp_path / "study" / archive_index.INDEX).unlink()
    with pytest.raises(RecordError, match=r"no experiments\.json to check them by.*restore the file$"):
        scpo.load_runs(tmp_path / "study")
    assert main(["figures", "--runs-dir", str(tmp_path / "study")]) == 1
    assert capsys.readouterr().out.replace("\n", "").endswith("restore the file")


@pytest.mark.parametrize("source", ["wandb:team/project", "https://wandb.ai/team/project", "team/project"])
def test_a_project_may_be_given_by_its_address(source, monkeypatch, capsys):
    def collect_of(folders, projects, settings):
        raise RecordError(f"asked for {folders} {projects}")

    monkeypatch.setattr("analysis.__main__.collect", collect_of)
    assert main(["figures", "--wandb", source]) == 1
    assert "asked for [] ['team/project']" in capsys.readouterr().out


def test_half_an_address_of_a_project_is_answered_with_the_form(tmp_path, capsys):
    assert main(["figures", "--wandb", "wandb:team", "--cache", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "'wandb:team' is not a W&B project: expected entity/project, e.g. my-team/scpo" in said


def test_sides_without_a_common_seed_are_compared_by_their_own_settings(tmp_path):
    """The column ``differs`` is relative to each side's own table: it named a rate that both sides share."""
    write_study(tmp_path / "a", {"main_table": ("scpo", "gigpo")}, CURVES, seeds=(0, 1))
    write_study(tmp_path / "b", {"main_table": ("gigpo",)}, CURVES, seeds=(2, 3), overrides=("trainer.groups=2",))
    first, second = scpo.load_runs(tmp_path / "a"), scpo.load_runs(tmp_path / "b")
    only = "^the two differ in more than the method: different settings: trainer.groups=16 .the others: 2.$"
    with pytest.warns(UserWarning, match=only), pytest.raises(ConfigError, match="no seed has both"):
        scpo.compare(first[first.row == "gigpo"], second[second.row == "gigpo"])


def test_an_experiments_row_and_a_run_with_another_alpha_are_told_apart_by_it(tmp_path):
    """The warning blamed other games: settings of a method are not among the keys that it compared."""
    write_study(tmp_path, {"one_by_method": ("scpo", "gigpo")}, CURVES, seeds=(0,))
    write_study_run(tmp_path, "scpo", 0, CURVES["scpo"](1), overrides=("method.shaper.alpha=5.0",))
    runs = scpo.load_runs(tmp_path)
    mine = runs[runs.row.str.contains("alpha")].assign(setting="of another table")
    with pytest.warns(UserWarning, match=r"^the two differ in more than the method: different settings: .*alpha=5\.0"):
        scpo.compare(mine, runs[runs.row == "scpo"], at="area")


def test_runs_of_another_user_are_named_and_neither_damaged_nor_absent(tmp_path, capsys):
    first, second = write_ablation(tmp_path, rows=("scpo",), seeds=(0, 1))["scpo"]
    with without_permission(tmp_path / second), pytest.warns(UserWarning, match=f"{second}: cannot read .* denied"):
        table = scpo.load_runs(tmp_path)
    assert list(table["run"].unique()) == [first]
    with without_permission(tmp_path / second):
        assert main(["figures", "tab_ablation", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"left out {second}: cannot read" in said
    assert f"{second} is UNREADABLE" in said
    assert "damaged" not in said
    with without_permission(tmp_path), pytest.raises(RecordError, match=f"cannot read {tmp_path}: permission denied"):
        scpo.load_runs(tmp_path)


@pytest.mark.filterwarnings("ignore:the two differ")
def test_frames_of_a_folder_and_its_archive_are_compared_as_one_of_them(folder, tmp_path):
    data = collect(folder)
    write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
    runs, archived = scpo.load_runs(folder), scpo.load_runs(tmp_path / "archive")
    tables = []
    for source in (runs, scpo.load_runs([folder, tmp_path / "archive"]), pd.concat([runs, archived])):
        tables.append(scpo.compare(source[source.row == "scpo"], source[source.row == "gigpo"], at="area"))
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])


@pytest.mark.filterwarnings("ignore:the two differ")
@pytest.mark.parametrize("name", ["first", "second"])
def test_two_values_of_one_step_are_refused_with_both_and_what_to_do(folder, name):
    panel = "val/valid_seen/success_rate"
    runs = scpo.load_runs(folder)
    sides = {"first": runs[runs.row == "scpo"], "second": runs[runs.row == "gigpo"]}
    own = sides[name]
    line = own[(own.seed == 1) & (own.step == 20) & (own.metric == panel)]
    sides[name] = pd.concat([own, line.assign(value=0.5), line.assign(value=math.nan)])
    said = f"^{name} has two values of {panel} at step 20 of run {line.run.item()}: {line.value.item()} and 0.5. Load"
    with pytest.raises(ConfigError, match=said) as refused:
        scpo.compare(sides["first"], sides["second"])
    # Another metric of the run has one value for each step.
    assert len(scpo.compare(sides["first"], sides["second"], "val/valid_unseen/success_rate"))
    assert str(refused.value).endswith(f": {name}.drop_duplicates(['run', 'metric', 'step'])")
    pd.testing.assert_frame_equal(sides[name].drop_duplicates(["run", "metric", "step"]), own)
