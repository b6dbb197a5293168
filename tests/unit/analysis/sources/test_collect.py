import json
import re
import shlex
import shutil
import socket

import hydra
import numpy as np
import pandas as pd
import pytest
from hydra.core.global_hydra import GlobalHydra

from analysis.show import experiment_table
from analysis.sources import unrecorded
from analysis.sources.archive_writing import write_archive
from analysis.sources.collect import collect
from analysis.sources.collected import write_parquet
from analysis.sources.settings import setting_differences
from scpo.records import RunFolder, State
from scpo.records.files import file_sum, locked, read_json
from scpo.records.status import StopRequest
from scpo.schema.composed import _composed, composed
from scpo.schema.scorer_defaults import scorer_defaults
from tests.support.damage import flip_a_bit, keep_lines, zero
from tests.support.log_changes import LOG_CHANGES, change_log
from tests.support.run_records import (
    log_lines,
    write_ablation,
    write_experiment,
    write_json,
    write_probe,
    write_run,
)

SLUGS = ("gigpo", "scpo-no_monotonicity")  # of other runs' ids


def test_runs_become_long_tables(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1))
    data = collect(tmp_path)
    assert list(data.metrics.columns) == ["run", "step", "metric", "value"]
    run = data.runs.set_index("id").loc[ids["scpo"][1]]
    assert (run.scale, run.env, run.method, run.seed, run.state, run.last_step) == (
        "mini",
        "alfworld",
        "scpo",
        1,
        "DONE",
        40,
    )
    assert list(run.rows) == ["scpo"]
    assert run.commit == "0123456789abcdef"
    assert len(run.panel_hashes) == 5


def test_series_are_the_logged_values(tmp_path):
    run = write_ablation(tmp_path, seeds=(0,))["scpo"][0]
    lines = [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
    series = collect(tmp_path).series(run, "val/valid_seen/success_rate")
    assert series.steps == (0, 10, 20, 30, 40)
    assert series.values[0] == lines[0]["val/valid_seen/success_rate"]


def test_timing_is_collected_too(tmp_path):
    run = write_ablation(tmp_path, seeds=(0,))["scpo"][0]
    assert collect(tmp_path).series(run, "timing_s/step").at(40) == 2.4


def test_a_torn_last_line_is_skipped(tmp_path):
    run = write_ablation(tmp_path, seeds=(0,))["scpo"][0]
    path = tmp_path / run / "metrics.jsonl"
    write_json(tmp_path / run / "status.json", {"state": "RUNNING", "step": 39, "steps": 40})
    path.write_text(path.read_text()[:-30])
    assert collect(tmp_path).series(run, "val/valid_seen/success_rate").steps == (0, 10, 20, 30)


def test_what_a_killed_attempt_logged_is_left_out_until_the_run_has_trained_it_again(tmp_path):
    run = write_run(tmp_path, state="RUNNING")["id"]
    RunFolder(tmp_path / run).update_status(step=20)
    data = collect(tmp_path)
    assert data.series(run, "val/valid_seen/success_rate").steps == (0, 10, 20)
    assert data.series(run, "timing_s/step").steps[-1] == 20


def test_a_run_of_this_machine_whose_process_was_killed_is_lost_as_in_status(tmp_path):
    killed, elsewhere, queued, alive, cancelled = (
        RunFolder(tmp_path / write_run(tmp_path, seed=seed, state="RUNNING")["id"]) for seed in range(5)
    )
    for folder in (killed, queued, alive, cancelled):
        folder.update_status(pid=1, host=socket.gethostname())
    cancelled.request_stop(StopRequest(state=State.CANCELLED, reason="cancelled"))
    elsewhere.update_status(pid=1, host="another", boot="another")
    write_json(queued.path / "job.json", {})
    with locked(alive.lock):
        states = collect(tmp_path).runs.set_index("id").state
    assert dict(states) == {
        killed.run_id: "LOST", elsewhere.run_id: "RUNNING", queued.run_id: "RUNNING", alive.run_id: "RUNNING",
        cancelled.run_id: "CANCELLED",
    }  # fmt: skip


def lose_the_end(folder):
    keep_lines(folder / "metrics.jsonl", 35)


def change_a_digit(folder):
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace('"step": 30, ', '"step": 30 ,'))


DAMAGES = {
    "a cut log": (lose_the_end, r"status\.json says DONE, but .*metrics\.jsonl ends at step 34 of 40"),
    "a lost log": (
        lambda folder: (folder / "metrics.jsonl").unlink(),
        r"metrics\.jsonl is missing, and .*status\.json says step 40\. Restore",
    ),
    "a damaged line": (lambda folder: zero(folder / "metrics.jsonl", 900, 50), r"metrics\.jsonl, line \d+ is damaged"),
    "an edited line": (change_a_digit, r"metrics\.jsonl does not hold what the run has written"),
    "another time": (lambda folder: flip_a_bit(folder / "timing.jsonl", 30), r"timing\.jsonl"),
    "lost panels": (lambda folder: (folder / "panels.json").unlink(), r"panels\.json cannot be read"),
    "another panel": (
        lambda folder: flip_a_bit(folder / "panels.json", 40),
        r"panels\.json is damaged",
    ),
    "no status": (lambda folder: (folder / "status.json").unlink(), r"status\.json: No such file"),
    "an edited status": (lambda folder: flip_a_bit(folder / "status.json", 14), r"status\.json is damaged"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_leaves_every_mean_and_is_named_with_its_file(tmp_path, damage, message):
    runs = [write_run(tmp_path, seed=seed, sums=True) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": runs})
    assert not collect(tmp_path).problems
    damage(tmp_path / runs[0]["id"])
    data = collect(tmp_path)
    (row,) = data.sections[0].rows
    assert (row.finished, row.missing[0].state) == ((runs[1]["id"],), "DAMAGED")
    assert data.metric_names(runs[0]["id"]) == ()
    ((path, reason),) = ((one.path, one.reason) for one in data.problems)
    assert path == runs[0]["id"]
    assert re.search(message, reason), reason
    assert re.search("[Dd]elete|[Mm]ove|[Rr]estore", reason)


@pytest.mark.parametrize("how", LOG_CHANGES)
@pytest.mark.parametrize("step", [0, 20, 40])
def test_a_changed_log_with_a_right_checksum_leaves_every_mean_and_is_named(tmp_path, how, step):
    runs = [write_run(tmp_path, seed=seed, sums=True) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": runs})
    change_log(RunFolder(tmp_path / runs[0]["id"]), how, step)
    data = collect(tmp_path)
    (row,) = data.sections[0].rows
    assert (row.finished, row.missing[0].state) == ((runs[1]["id"],), "DAMAGED")
    assert data.metric_names(runs[0]["id"]) == ()
    ((path, reason),) = ((one.path, one.reason) for one in data.problems)
    assert (path, "metrics.jsonl" in reason or "success_rate" in reason) == (runs[0]["id"], True)
    shown = experiment_table(tmp_path, "ablation_monotonicity")
    assert f"left out: {runs[0]['id']}" in shown
    assert "1/2" in shown


def test_runs_whose_experiments_record_was_deleted_are_named(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0,))
    (tmp_path / "experiments" / "ablation_monotonicity.json").unlink()
    (problem,) = collect(tmp_path).problems
    assert problem.path == "single runs"
    assert "2 runs in no experiment" in problem.reason
    assert all(run in problem.reason for (run,) in ids.values())


def test_runs_of_train_py_alone_are_no_problem(tmp_path):
    write_run(tmp_path)
    assert collect(tmp_path).problems == ()


def test_a_finished_run_at_another_step_than_its_last_is_named(tmp_path):
    run = write_run(tmp_path, sums=True)
    RunFolder(tmp_path / run["id"]).update_status(step=0)
    (problem,) = collect(tmp_path).problems
    assert (problem.path, "says DONE at step 0 of 40" in problem.reason) == (run["id"], True)


def test_a_finished_run_without_its_record_of_attempts_is_named(tmp_path):
    run = write_run(tmp_path, sums=True)
    RunFolder(tmp_path / run["id"]).update_status(attempt=1)
    (problem,) = collect(tmp_path).problems
    assert (problem.path, "provenance.json is lost" in problem.reason) == (run["id"], True)


def test_a_damaged_config_is_named_and_the_run_beside_it_is_there(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": runs})
    flip_a_bit(tmp_path / runs[0]["id"] / "config.yaml", 200)
    data = collect(tmp_path)
    assert list(data.by_id) == [runs[1]["id"]]
    assert "config.yaml" in data.problems[0].reason


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    run = write_ablation(tmp_path, seeds=(0,))["scpo"][0]
    lines = [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
    log_lines(tmp_path / run, [*lines, {"step": 41, "note": "text", "credit/effective": None}])
    data = collect(tmp_path)
    assert data.series(run, "note").steps == ()
    assert data.series(run, "credit/effective").steps[-1] == 40


def test_foreign_folders_are_reported_and_left_out(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    (tmp_path / "holiday").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").write_text("learning_rate: 1\n")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.yaml").write_text("scale: [mini\n")
    data = collect(tmp_path)
    assert [problem.path for problem in data.problems] == ["holiday", "other", "torn"]
    assert "other/config.yaml is cut short" in data.problems[1].reason
    assert len(data.runs) == 2


def test_a_broken_experiment_record_is_reported(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    (tmp_path / "experiments" / "broken.json").write_text('{"experiment": ')
    assert [problem.path for problem in collect(tmp_path).problems] == ["experiments/broken.json"]


def test_a_folder_without_runs_is_no_error(tmp_path):
    data = collect(tmp_path / "absent")
    assert (len(data.runs), len(data.metrics), data.sections, data.scales) == (0, 0, (), ())


def test_a_run_that_never_started_is_missing(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": [*runs, runs[0] | {"id": "not-there", "seed": 2}]})
    (row,) = collect(tmp_path).sections[0].rows
    assert row.count == "2/3"
    assert [(run.seed, run.state) for run in row.missing] == [(2, "PENDING")]


def test_an_unfinished_run_is_missing(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, seed=0), write_run(tmp_path, seed=1, state="FAILED")]})
    assert collect(tmp_path).sections[0].rows[0].count == "1/2"


def test_a_run_with_a_cut_status_is_damaged(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / run["id"] / "status.json").write_text("{")
    write_experiment(tmp_path, {"scpo": [run]})
    assert collect(tmp_path).sections[0].rows[0].missing[0].state == "DAMAGED"


def test_experiments_that_share_runs_are_merged(tmp_path):
    rows = {row: [write_run(tmp_path, row)] for row in ("scpo", "chronological", "no_monotonicity")}
    write_experiment(tmp_path, {row: rows[row] for row in ("scpo", "no_monotonicity")})
    write_experiment(tmp_path, {row: rows[row] for row in ("scpo", "chronological")}, name="ablation_order")
    (section,) = collect(tmp_path).sections
    assert {row.name: row.count for row in section.rows} == dict.fromkeys(rows, "1/1")
    assert section.commands == ()


def test_missing_runs_are_asked_for_with_the_words_of_their_own_experiment(tmp_path):
    done, running = write_run(tmp_path), write_run(tmp_path, "chronological", 4, state="RUNNING")
    write_experiment(tmp_path, {"scpo": [done]})
    changed = ["trainer.steps=20", "env.catalogue='my own'"]
    write_experiment(tmp_path, {"scpo": [done], "chronological": [running]}, name="ablation_order", overrides=changed)
    (section,) = collect(tmp_path).sections
    (command,) = section.commands
    words = ["+experiment=ablation_order", *changed, "seeds=[4]"]
    assert command == f"python sweep.py {shlex.join(words)}"


def test_scales_never_share_a_section(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    paper = {"scpo": [write_run(tmp_path, scale="paper", steps=150)]}
    write_experiment(tmp_path, paper, name="ablation", scale="paper")
    data = collect(tmp_path)
    assert data.scales == ("mini", "paper")
    assert [section.scale for section in data.at_scale("paper").sections] == ["paper"]
    assert data.at_scale("paper").sections[0].experiments == ("ablation",)


def test_a_run_of_another_scale_is_left_out_and_named(tmp_path):
    mini, paper = write_run(tmp_path), write_run(tmp_path, "chronological", scale="paper")
    write_experiment(tmp_path, {"scpo": [mini], "chronological": [paper]})
    data = collect(tmp_path)
    assert [row.name for section in data.sections for row in section.rows] == ["scpo"]
    assert [problem.path for problem in data.problems] == [paper["id"]]


@pytest.mark.parametrize(("what", "value"), [("seed", 7), ("env", "webshop"), ("model", "choice")])
def test_a_run_that_is_not_what_the_experiments_record_says_is_left_out_and_named(tmp_path, what, value):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": [runs[0], runs[1] | {what: value}]})
    data = collect(tmp_path)
    assert [row.finished for section in data.sections for row in section.rows] == [(runs[0]["id"],)]
    (problem,) = data.problems
    assert problem.path == runs[1]["id"]
    assert f"the record of ablation_monotonicity has it as {value}" in problem.reason


@pytest.mark.parametrize("change", [{"cpu": ["x"]}, {"dirty": "no"}, {"torch_capability": {}}])
def test_a_run_with_an_attempt_of_other_types_is_damaged(tmp_path, change):
    run = write_run(tmp_path)
    write_json(tmp_path / run["id"] / "provenance.json", {"attempts": {"1": {"cpu": "a processor"} | change}})
    data = collect(tmp_path)
    assert (data.by_id[run["id"]].state, data.by_metric) == ("DAMAGED", {})
    assert "provenance.json is not a record of attempts" in data.problems[0].reason


def test_a_sample_that_was_put_into_a_run_which_wrote_none_is_left_out(tmp_path):
    run = write_run(tmp_path, sums=True)
    write_probe(tmp_path / run["id"], 20)
    data = collect(tmp_path)
    assert data.diagnostics(run["id"], "probe_*") == ()
    assert "is no file that the run wrote" in data.sample_problems[0].reason


def test_runs_of_other_settings_get_their_own_section(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=40)]})
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="ablation_order")
    assert len(collect(tmp_path).sections) == 2


def test_the_main_table_comes_before_a_tuning_with_more_rows(tmp_path):
    rates = {f"rate_{steps}": [write_run(tmp_path, steps=steps)] for steps in (50, 60, 70)}
    write_experiment(tmp_path, rates, name="learning_rates")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=40)]}, name="main_table")
    first, *others = collect(tmp_path).sections
    assert (first.experiments, first.differs) == (("main_table",), "")
    (tuning,) = others
    assert tuning.differs == "trainer.steps as marked"
    marks = [row.differs for row in tuning.rows]
    assert marks == [f"trainer.steps={steps} (the others: 40)" for steps in (50, 60, 70)]


def with_scorer(runs_dir, row, seed, scorer):
    return write_run(runs_dir, row, seed, overrides=(f"scorer={scorer}",))


def test_a_row_that_varies_the_scorer_stands_beside_the_default(tmp_path):
    default = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    exact = [with_scorer(tmp_path, "exact_scorer", seed, "exact") for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": default, "exact_scorer": exact}, name="controls")
    (section,) = collect(tmp_path).sections
    assert [(row.name, row.count) for row in section.rows] == [("scpo", "2/2"), ("exact_scorer", "2/2")]


def test_a_comparison_under_each_of_two_scorers_stays_apart(tmp_path):
    rows = {
        row: [write_run(tmp_path, row), with_scorer(tmp_path, row, 1, "exact")] for row in ("scpo", "chronological")
    }
    rows["gigpo"] = [with_scorer(tmp_path, "gigpo", 0, "exact")]
    write_experiment(tmp_path, rows)
    sections = collect(tmp_path).sections
    assert sorted(len(section.rows) for section in sections) == [2, 3]
    assert not collect(tmp_path).problems


def test_runs_on_another_panel_get_their_own_section(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    path = tmp_path / runs[1]["id"] / "panels.json"
    write_json(path, read_json(path) | {"valid_seen": {"sha256": "changed", "tasks": []}})
    write_experiment(tmp_path, {"scpo": runs})
    data = collect(tmp_path)
    assert (len(data.sections), data.problems) == (2, ())


@pytest.mark.parametrize("change", [lambda panels: panels.pop("valid_unseen"), lambda panels: panels.clear()])
def test_a_finished_run_with_other_panels_than_its_configuration_asks_for_is_damaged(tmp_path, change):
    run = write_run(tmp_path)
    write_experiment(tmp_path, {"scpo": [run]})
    path = tmp_path / run["id"] / "panels.json"
    panels = read_json(path)
    change(panels)
    write_json(path, panels)
    data = collect(tmp_path)
    assert (data.by_id[run["id"]].state, data.by_metric) == ("DAMAGED", {})
    assert "config.yaml asks for probe, train, train_games, valid_seen, valid_unseen" in data.problems[0].reason


def test_the_files_that_were_read_are_noted(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0,))
    data = collect(tmp_path).at_scale("mini")
    assert data.used == set()
    data.series(ids["scpo"][0], "train/success_rate")
    assert data.used == {(ids["scpo"][0], "metrics.jsonl"), (ids["scpo"][0], "timing.jsonl")}


def test_parquet_holds_what_was_collected_in_equal_bytes(tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,))
    data = collect(tmp_path / "runs")
    metrics, runs = write_parquet(data, tmp_path / "a")
    again = write_parquet(collect(tmp_path / "runs"), tmp_path / "b")
    assert [path.read_bytes() for path in again] == [metrics.read_bytes(), runs.read_bytes()]
    assert len(pd.read_parquet(metrics)) == len(data.metrics)
    assert set(pd.read_parquet(runs)["id"]) == set(data.runs["id"])


def test_a_sample_that_is_lost_is_missed_and_the_numbers_stay(tmp_path):
    run = write_run(tmp_path, probes=(0, 20))
    folder, name = RunFolder(tmp_path / run["id"]), "diagnostics/probe_step_00020.npz"
    folder.note_sums({name: file_sum(folder.path / name)})
    write_experiment(tmp_path, {"scpo": [run]})
    assert not collect(tmp_path).problems
    (folder.path / name).unlink()
    data = collect(tmp_path)
    assert f"{name} is lost" in data.problems[0].reason
    assert data.sections[0].rows[0].finished == (run["id"],)


def test_runs_that_no_experiment_asked_for_make_rows_of_their_own(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, seed=0)]})
    single = [write_run(tmp_path, seed=1), write_run(tmp_path, "gigpo", overrides=("method=gigpo",))]
    data = collect(tmp_path)
    (section,) = data.sections
    assert section.experiments == ("ablation_monotonicity", "single runs")
    assert section.row("gigpo").finished == (single[1]["id"],)
    # A row shows the seeds that its experiment asks for, and a seed beyond them is named.
    assert [run.seed for run in section.row("scpo").runs] == [0]
    noted, left_out = data.problems
    assert (noted.path, "2 runs in no experiment" in noted.reason) == ("single runs", True)
    assert left_out.path == single[0]["id"]
    assert "row scpo shows the seeds of ablation_monotonicity, and seed 1 is none of them" in left_out.reason
    assert "left out" not in left_out.reason  # in front of it, where it is printed
    assert section.sweeps == ("ablation_monotonicity",)


def test_several_configurations_of_a_method_in_no_experiment_are_several_rows(tmp_path):
    words = {"scpo_alpha_2.0": "method.shaper.alpha=2.0", "scpo_alpha_0.1": "method.shaper.alpha=0.1"}
    ids = {}
    for row, word in words.items():
        ids[row] = {write_run(tmp_path, seed=seed, overrides=(word,))["id"] for seed in (0, 1)}
    data = collect(tmp_path)
    (section,) = data.sections
    assert {row.name: set(row.finished) for row in section.rows} == ids
    assert {row.label for row in section.rows} == {"SCPO, alpha=2.0", "SCPO, alpha=0.1"}
    (problem,) = data.problems
    assert problem.path == "single runs"
    assert "runs of scpo in no experiment differ in more than the seed: they are 2 rows" in problem.reason


def test_a_single_run_of_another_configuration_than_an_experiments_is_not_said_to_be_several_rows(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, panels=("valid_seen",))]})
    write_run(tmp_path, state="FAILED", seed=1, panels=("valid_unseen",))
    (problem,) = collect(tmp_path).problems
    assert problem.reason.startswith("1 run in no experiment, of train.py, of settings that")
    write_run(tmp_path, state="FAILED", seed=2, panels=("valid_unseen",))
    _, problem = collect(tmp_path).problems
    assert "differ from the experiments' in more than the seed: they are the row scpo_" in problem.reason


def test_the_configuration_with_the_usual_values_keeps_the_plain_name_of_its_row(tmp_path):
    for word in ("method.shaper.alpha=0.5", "method.shaper.alpha=2.0", "trainer.steps=80"):
        write_run(tmp_path, overrides=(word,), steps=80 if word == "trainer.steps=80" else 40)
    names = {row.name for section in collect(tmp_path).sections for row in section.rows}
    assert names == {"scpo", "scpo_alpha_2.0", "scpo_steps_80"}


def test_single_runs_with_other_settings_than_their_methods_default_are_named_by_them(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, overrides=("method.shaper.alpha=2.0",))
    data = collect(tmp_path)
    assert [row.label for section in data.sections for row in section.rows] == ["SCPO, alpha=2.0"]
    (problem,) = data.problems
    assert "other settings than scpo has by default or in an experiment" in problem.reason
    assert "they are the row scpo_alpha_2.0" in problem.reason


def test_choices_in_a_runs_id_are_no_deviations_from_its_methods_default(tmp_path):
    write_run(tmp_path, overrides=("method.shaper.monotonic=false",))
    write_run(tmp_path, overrides=("method.shaper.theta=0.4", "method.shaper.alpha=2.0"))
    (section,) = collect(tmp_path).sections
    assert [row.label for row in section.rows] == ["− monotonicity", "SCPO, theta0.4, alpha=2.0"]


def test_a_choice_that_was_the_default_is_named_once_the_default_is_another_one(tmp_path, monkeypatch):
    """The run's id does not name it, as it is the paper's value."""

    def edited(*overrides, env=None):
        config = composed(*overrides, env=env)
        config["method"]["shaper"]["theta"] = 0.55
        return config

    monkeypatch.setattr(unrecorded, "composed", edited)
    write_run(tmp_path, overrides=("method.shaper.matcher=forward",))
    write_run(tmp_path, overrides=("method.shaper.matcher=forward", "method.shaper.theta=0.55"))
    labels = [row.label for section in collect(tmp_path).sections for row in section.rows]
    assert labels == ["SCPO, forward, theta=0.6", "SCPO, forward_theta0.55"]


def test_a_single_run_is_named_by_what_sets_it_apart_from_the_row_that_is_called_as_its_method(tmp_path):
    """The row ran with another theta in the method's file, which was put back later."""
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, overrides=("method.shaper.theta=0.55",))]})
    for words in ((), ("method.shaper.theta=0.55",), ("method.shaper.theta=0.4",)):
        write_run(tmp_path, overrides=("method.shaper.matcher=forward", *words))
    labels = {row.label for part in collect(tmp_path).sections for row in part.rows if row.is_single}
    assert labels == {"SCPO, forward, theta=0.6", "SCPO, forward_theta0.55", "SCPO, forward_theta0.4"}


def test_settings_of_a_scorer_that_are_not_its_default_are_named(tmp_path):
    """The scorer's name hid them: another scorer has no such setting."""
    scorer = ("scorer=minilm", "scorer.cosine_floor=0.1")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, overrides=("scorer=exact",))]}, name="paper")
    for words in (scorer, (*scorer, "method.shaper.theta=0.4"), ("scorer=minilm", "method.shaper.theta=0.5")):
        write_run(tmp_path, overrides=words)
    data = collect(tmp_path)
    labels = {row.label for part in data.sections for row in part.rows}
    assert "SCPO, scorer=minilm, cosine_floor=0.1" in labels
    assert "SCPO, theta0.4, scorer=minilm, cosine_floor=0.1" in labels
    assert "SCPO, theta0.5, scorer=minilm" in labels


@pytest.mark.parametrize(
    ("scorer", "others", "said"),
    [
        ("minilm", "exact", "scorer=minilm (the others: exact)"),
        ("minilm", "bge_reranker_v2_m3", "scorer=minilm (the others: bge_reranker_v2_m3)"),
        ("exact", "minilm", "scorer=exact (the others: minilm)"),
    ],
)
def test_a_heading_names_settings_of_a_scorer_that_are_not_its_default(scorer, others, said):
    config, other = ({"scorer": dict(scorer_defaults(name))} for name in (scorer, others))
    assert setting_differences(config, other) == said
    floor = {"cosine_floor": 0.1}
    changed, own, shown = (config, 0.1, "none") if scorer == "minilm" else (other, "none", 0.1)
    changed["scorer"] |= floor
    assert setting_differences(config, other) == f"{said}; scorer.cosine_floor={own} (the others: {shown})"
    # A setting with equal values is no difference, even if it is the default of one of them only.
    if others == "bge_reranker_v2_m3":
        changed["scorer"]["max_tokens"] = other["scorer"]["max_tokens"]
        assert "max_tokens" not in setting_differences(config, other)


def test_settings_of_a_scorer_that_the_files_do_not_have_are_named():
    """Those of a package that is not installed any more, or of another checkout."""
    own = {"scorer": {"name": "dice", "kind": "dice", "floor": 0.5}}
    said = "scorer=dice (the others: exact); scorer.floor=0.5 (the others: none)"
    assert setting_differences(own, {"scorer": scorer_defaults("exact")}) == said


def test_the_number_of_settings_that_a_name_leaves_out_is_in_it(tmp_path):
    words = ("alpha=1.0", "amount=distance", "added_to=advantages", "credited_states=anchor_without_success")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    write_run(tmp_path, overrides=tuple(f"method.shaper.{word}" for word in words))
    labels = [row.label for part in collect(tmp_path).sections for row in part.rows if row.is_single]
    assert labels == ["SCPO, added_to=advantages, alpha=1.0, amount=distance, more settings=1"]


def test_a_row_is_taken_by_its_own_name_where_another_experiment_has_it_for_other_settings(tmp_path):
    def run(seed, alpha):
        return write_run(tmp_path, "row", seed, overrides=(f"method.shaper.alpha={alpha}",))

    write_experiment(tmp_path, {"a": [run(0, 1.0)]}, name="first")
    other = run(0, 2.0)
    write_experiment(tmp_path, {"a": [other], "b": [other]}, name="second")
    run(1, 2.0)
    names = {row.name for section in collect(tmp_path).sections for row in section.rows}
    assert names == {"a", "b"}


def test_a_single_run_without_its_methods_shaper_is_named_by_that(tmp_path):
    write_run(tmp_path, overrides=("method.shaper=null",))
    (section,) = collect(tmp_path).sections
    assert section.rows[0].label.startswith("SCPO, ")


def test_settings_that_follow_the_environment_are_no_deviations_of_a_method(tmp_path):
    for words in (("env.setting=paper",), ()):
        write_run(tmp_path, "gigpo", overrides=("env=webshop", "method=gigpo", *words))
    write_run(tmp_path, overrides=("method=hgpo", "env.history_length=4"))
    assert {row.label for part in collect(tmp_path).sections for row in part.rows} == {"GiGPO", "HGPO"}


def test_single_runs_have_their_names_in_a_notebook_that_uses_hydra_too(tmp_path):
    write_run(tmp_path / "runs", overrides=("method.shaper.alpha=2.0",))
    (tmp_path / "conf").mkdir()
    _composed.cache_clear()
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(tmp_path / "conf")):
        mine = GlobalHydra.instance().hydra
        (section,) = collect(tmp_path / "runs").sections
        assert GlobalHydra.instance().hydra is mine
    assert section.rows[0].name == "scpo_alpha_2.0"


def test_what_single_runs_differ_in_is_named_before_what_they_share(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    shared = ("trainer.groups=3", "env.horizon=7", "env.train_panel.games=5", "trainer.validation.every=3")
    for alpha in (0.5, 2.0):
        write_run(tmp_path, overrides=(*shared, f"method.shaper.alpha={alpha}"))
    labels = {row.label for part in collect(tmp_path).sections for row in part.rows if row.is_single}
    assert not any("configuration" in label for label in labels)
    assert [label for label in labels if "alpha=2.0" in label]


@pytest.mark.parametrize("alpha", [0.5, 1.0], ids=["default", "other"])
def test_former_runs_of_a_row_with_a_name_of_its_own_do_not_get_the_name_of_its_method(tmp_path, alpha):
    """Row ``mine`` had alpha=1.0, and after an edit has alpha=2.0; or it was the method's default."""
    mine = write_run(tmp_path, "mine", overrides=("method.shaper.alpha=2.0",))
    gigpo = write_run(tmp_path, "gigpo", overrides=("method=gigpo",))
    write_experiment(tmp_path, {"gigpo": [gigpo], "mine": [mine]}, name="paper")
    write_run(tmp_path, overrides=(f"method.shaper.alpha={alpha}",))
    (section,) = collect(tmp_path).sections
    names = {0.5: "scpo", 1.0: "scpo_alpha_1.0"}
    assert [row.name for row in section.rows] == ["gigpo", "mine", names[alpha]]


def test_a_former_default_of_a_method_is_not_shown_as_the_method(tmp_path, monkeypatch):
    """The learning rate of a method's file was edited: its row ``mine`` has runs with both."""
    lr = "trainer.optimizer.learning_rate"
    for row, rate in (("mine", 0.004), ("former", 0.001)):
        run = write_run(tmp_path, overrides=(f"{lr}={rate}",))
        if row == "mine":
            write_experiment(tmp_path, {"mine": [run]}, name="paper")
    rows = [row.name for section in collect(tmp_path).sections for row in section.rows]
    assert rows == ["mine", "scpo_learning_rate_0.001"]


@pytest.mark.parametrize("setting", ["alpha=2.0", "theta=0.55"], ids=["usual id", "id with a choice"])
def test_a_single_run_with_the_settings_of_its_methods_row_is_of_that_row(tmp_path, setting):
    mine = write_run(tmp_path, "mine", 0, overrides=(f"method.shaper.{setting}",))
    write_experiment(tmp_path, {"mine": [mine]}, name="paper")
    single = write_run(tmp_path, seed=1, overrides=(f"method.shaper.{setting}",))
    data = collect(tmp_path)
    assert [row.name for section in data.sections for row in section.rows] == ["mine"]
    assert single["id"] in {problem.path for problem in data.problems}


def test_a_run_of_no_experiment_with_another_configuration_does_not_join_an_experiments_row(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, seed=0)]})
    own = write_run(tmp_path, seed=1, overrides=("method.shaper.alpha=2.0",))
    (section,) = collect(tmp_path).sections
    assert [run.seed for run in section.row("scpo").runs] == [0]
    assert section.row("scpo_alpha_2.0").finished == (own["id"],)


def test_a_searchs_trials_are_left_out_and_counted(tmp_path):
    write_run(tmp_path, seed=0)
    tuning = "+env.validation_panels.tuning={split: train, games: 4, seed: 1, held_out: true}"
    others = [f"~env.validation_panels.{name}" for name in ("valid_seen", "valid_unseen", "train_games")]
    for seed in (1, 2):
        write_run(tmp_path, seed=seed, overrides=(tuning, *others))
    data = collect(tmp_path)
    assert [row.count for section in data.sections for row in section.rows] == ["1/1"]
    assert [problem.reason.partition(",")[0] for problem in data.problems] == ["2 trials of a search"]


def test_a_run_that_has_not_started_stands_with_the_seeds_of_its_row_that_have(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]
    for run in runs[1:]:  # prepared: its folder is there, its panels are not recorded yet
        (tmp_path / run["id"] / "panels.json").unlink()
        (tmp_path / run["id"] / "status.json").write_text('{"state": "PENDING"}')
    write_experiment(tmp_path, {"scpo": runs})
    (section,) = collect(tmp_path).sections
    assert [(row.count, row.differs) for row in section.rows] == [("1/3", "")]


@pytest.mark.parametrize("spoil", ["content", "swapped", "unknown"])
def test_a_sample_that_is_not_what_the_run_wrote_is_left_out_and_named(tmp_path, spoil):
    made = [write_run(tmp_path, seed=seed, probes=(10, 20)) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": made})
    first, other = (tmp_path / run["id"] for run in made)
    for folder in (first, other):
        samples = sorted(folder.glob("diagnostics/*.npz"))
        RunFolder(folder).note_sums({str(path.relative_to(folder)): file_sum(path) for path in samples})
    path = first / "diagnostics" / "probe_step_00010.npz"
    if spoil == "content":
        write_probe(first, 10, np.random.default_rng(5))
    elif spoil == "swapped":
        path.write_bytes((other / "diagnostics" / path.name).read_bytes())
    else:
        path = write_probe(first, 15)
    data = collect(tmp_path)
    found = data.diagnostics(made[0]["id"], "probe_step_*.npz")
    assert path not in found
    assert first / "diagnostics" / "probe_step_00020.npz" in found
    assert [one.path for one in data.sample_problems] == [f"{made[0]['id']}/{path.name}"]
    assert len(data.diagnostics(made[1]["id"], "probe_step_*.npz")) == 2


def test_a_value_that_was_never_measured_takes_its_run_out(tmp_path):
    run = write_run(tmp_path)
    write_experiment(tmp_path, {"scpo": [run]})
    log_lines(tmp_path / run["id"], [{"step": 0, "val/valid_seen/success_rate": 7.0}])
    data = collect(tmp_path)
    assert data.by_id[run["id"]].state == "DAMAGED"
    assert "val/valid_seen/success_rate is 7.0 at step 0, not in [0, 1]" in data.problems[0].reason


@pytest.mark.parametrize("words", ["{} (copy)", "{}.bak", "copy", "{}-s1-00000000", "gigpo", "scpo-no_monotonicity"])
def test_a_copied_or_renamed_run_folder_is_named_and_the_others_are_read(tmp_path, words):
    run = write_run(tmp_path)
    write_experiment(tmp_path, {"scpo": [run]})
    before = collect(tmp_path)
    name = run["id"].replace("-scpo-", f"-{words}-") if words in SLUGS else words.format(run["id"])
    copy = tmp_path / name
    shutil.copytree(tmp_path / run["id"], copy)
    data = collect(tmp_path)
    assert data.by_metric == before.by_metric
    assert data.sections == before.sections
    assert [one.path for one in data.problems] == [copy.name]
    assert "the folder is a copy, or it or its config.yaml was changed" in data.problems[0].reason


def test_folders_that_changed_names_are_both_left_out(tmp_path):
    made = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": made})
    first, other = (tmp_path / run["id"] for run in made)
    first.rename(tmp_path / "between")
    other.rename(first)
    (tmp_path / "between").rename(other)
    data = collect(tmp_path)
    assert not data.by_id
    assert {one.path for one in data.problems} == {run["id"] for run in made}


def test_one_experiment_of_two_sources_is_one_record(tmp_path):
    runs = {row: [write_run(tmp_path / "runs", row, seed) for seed in (0, 1, 2)] for row in ("scpo", "no_monotonicity")}
    write_experiment(tmp_path / "runs", runs)
    whole = collect(tmp_path / "runs")
    write_archive(whole.by_id.values(), whole.metrics, whole.experiments, tmp_path / "archive")
    for sources in (("archive", "runs"), ("runs", "archive")):
        data = collect([tmp_path / name for name in sources])
        assert data.experiments == whole.experiments
        assert not data.problems
    # A folder with other seeds of it, one of which the archive has.
    own = {row: [*planned[2:], write_run(tmp_path / "more", row, 3)] for row, planned in runs.items()}
    write_experiment(tmp_path / "more", own)
    (record,) = collect([tmp_path / "archive", tmp_path / "more"]).experiments
    assert [[run.seed for run in row.runs] for row in record.rows] == [[0, 1, 2, 3]] * 2
    # The configuration has changed since: two runs of one row and seed.
    changed = {"scpo": [write_run(tmp_path / "changed", seed=0, steps=20)]}
    write_experiment(tmp_path / "changed", changed)
    assert len(collect([tmp_path / "archive", tmp_path / "changed"]).experiments) == 2


def written_twice(tmp_path, change=None):
    """Two folders with the same runs; in the second, ``change`` edits the lines of one log."""
    write_ablation(tmp_path / "r1", seeds=(0, 1))
    shutil.copytree(tmp_path / "r1", tmp_path / "r2")
    run = collect(tmp_path / "r2").runs["id"].iloc[0]
    if change is not None:
        path = tmp_path / "r2" / run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        log_lines(tmp_path / "r2" / run, [change(line) for line in lines])
    return tmp_path / "r1", tmp_path / "r2", run


def other_result(line):
    panel = "val/valid_seen/success_rate"
    return line | ({panel: line[panel] / 2} if panel in line else {})


@pytest.mark.parametrize("archived", [False, True])
def test_two_results_of_one_run_are_named_with_the_folder_of_the_one_in_use(tmp_path, archived):
    r1, r2, run = written_twice(tmp_path, other_result)
    sources = [r1, r2]
    if archived:
        data = collect(r1)
        write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
        sources[0] = tmp_path / "archive"
    for used, other in (sources, sources[::-1]):
        data = collect((used, other))
        (problem,) = data.problems
        assert (problem.path, problem.harmless) == (f"copies in {other}", False)
        assert problem.reason == f"two results of one run: taken from {used}, not {other}; {run}"
        assert data.two_results == {run: f"taken from {used}, not {other}"}
        assert set(data.runs["state"]) == {"DONE"}


@pytest.mark.parametrize("sums", [False, True])
def test_equal_copies_of_a_run_and_copies_with_other_timings_are_not_named(tmp_path, sums):
    r1, r2, run = written_twice(tmp_path)
    (r2 / run / "timing.jsonl").write_text((r2 / run / "timing.jsonl").read_text().replace("2.4", "2.5"))
    if sums:
        for folder in (r1 / run, r2 / run):
            names = ("metrics.jsonl", "timing.jsonl", "panels.json")
            RunFolder(folder).note_sums({name: file_sum(folder / name) for name in names})
    assert collect((r1, r2)).problems == ()
    assert collect((r1, r1)).problems == ()


def test_a_later_version_that_logs_more_has_the_same_result(tmp_path):
    r1, r2, _ = written_twice(tmp_path, lambda line: line | {"train/more": 0.5})
    assert collect((r1, r2)).problems == ()


def test_a_damaged_copy_is_no_second_result(tmp_path):
    r1, r2, run = written_twice(tmp_path, other_result)
    keep_lines(r2 / run / "metrics.jsonl", 35)
    assert collect((r1, r2)).problems == ()
