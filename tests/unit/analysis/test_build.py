import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.__main__ import main
from analysis.build import build_from, builders
from analysis.rendering.table import Block, Table
from analysis.sources.collect import collect
from analysis.tables import tab_study, tab_study_effects
from scpo.errors import RecordWriteError
from scpo.records import RunFolder
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from tests.support.run_records import (
    LABELS,
    ROOT,
    log_lines,
    log_only,
    write_ablation,
    write_experiment,
    write_groups,
    write_probe,
    write_run,
)
from tests.support.sketches import build_all, sketch

FIGURES = ("fig_credit_heatmap", "fig_learning")
MINI = tuple(f"{name}_mini" for name in ("tab_ablation", *FIGURES))


@pytest.fixture
def in_style(monkeypatch):
    """One table and two figures: what a build does around its builders does not depend on how many there are."""
    chosen = {name: build for name, build in builders().items() if f"{name}_mini" in MINI}
    monkeypatch.setattr("analysis.build.builders", lambda: chosen)


@pytest.fixture
def few(in_style, monkeypatch):
    """Nor does it depend on how they are drawn."""
    sketch(monkeypatch)


def build_in_another_process(runs_dir, out):
    command = [sys.executable, "-m", "analysis", "figures", "--runs-dir", str(runs_dir), "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_captions_and_printed_lines_name_the_rows_with_two_results_of_one_run(tmp_path, capsys, few):
    ids = write_ablation(tmp_path / "r1", seeds=(0, 1))
    shutil.copytree(tmp_path / "r1", tmp_path / "r2")
    run = ids["scpo"][1]
    path = tmp_path / "r2" / run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    log_lines(tmp_path / "r2" / run, [line | {"train/success_rate": 0.5} for line in lines])
    folders = ("--runs-dir", f"{tmp_path}/r1", "--runs-dir", f"{tmp_path}/r2")
    assert main(["figures", "tab_ablation", *folders, "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"left out copies in {tmp_path}/r2: two results of one run: taken from {tmp_path}/r1" in printed
    caption = (tmp_path / "out" / "tab_ablation_mini.md").read_text()
    assert f"two results of one run: SCPO (default) (seed 1), taken from {tmp_path}/r1, not {tmp_path}/r2" in caption


def test_a_misspelt_table_gets_a_suggestion(capsys):
    assert main(["figures", "tab_mian"]) == 1
    assert "no table or figure tab_mian; did you mean tab_main?" in capsys.readouterr().out


def test_every_module_of_tables_and_figures_is_a_builder():
    modules = {
        path.stem
        for kind in ("tables", "figures")
        for path in (ROOT / "analysis" / kind).glob("[tf]*_*.py")
        if path.stem.startswith(("tab_", "fig_"))
    }
    assert set(builders()) == modules


def of_the_study(name):
    """Whether a figure is drawn at the study's scale alone."""
    return getattr(importlib.import_module(f"analysis.figures.{name}"), "SCALE", None) == "study"


def test_an_output_of_another_scale_that_was_asked_for_by_name_says_so(tmp_path, capsys):
    write_ablation(tmp_path / "runs", seeds=(0, 1))
    places = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["figures", "tab_study", "--experiment", "ablation_monotonicity", *places]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "missing tab_study: it is of runs of study scale only, and these are of mini scale" in said
    assert "python sweep.py +experiment=ablation_monotonicity scale=study" in said


def test_named_comparisons_are_built_at_other_scales_where_they_are_asked_for(tmp_path, capsys):
    rows = {row: [write_run(tmp_path / "runs", row, seed) for seed in (0, 1, 2)] for row in ("scpo", "no_monotonicity")}
    write_experiment(tmp_path / "runs", rows, name="mine", compared=[("no_monotonicity", "scpo")])
    places = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["figures", "tab_study_effects", "--experiment", "mine", *places]) == 0
    made = (tmp_path / "out" / "tab_study_effects_mini.md").read_text()
    assert "3/3" in made
    assert "over the 1 comparison of all experiments at mini scale" in made
    assert "steps to 50 % are those of the games trained on" in made
    write_experiment(tmp_path / "runs", rows, name="mine")
    assert main(["figures", "tab_study_effects", *places]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "missing tab_study_effects_mini: no comparison named before the runs (primary: in the file" in said


def test_outputs_of_another_scale_are_no_failures_of_a_build_of_all(few, tmp_path, monkeypatch):
    write_ablation(tmp_path / "runs", seeds=(0, 1), probes=(40,))
    chosen = {
        "tab_ablation": builders()["tab_ablation"],
        "tab_study": tab_study.build,
        "tab_study_effects": tab_study_effects.build,
    }
    monkeypatch.setattr("analysis.build.builders", lambda: chosen)
    report = build_all(tmp_path / "runs", tmp_path / "out")
    assert not report.failures


def test_builds_of_two_processes_give_the_same_bytes(tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1), probes=(0, 20, 40))
    write_groups(tmp_path / "runs" / ids["scpo"][0], 5)
    build_all(tmp_path / "runs", tmp_path / "a")
    time.sleep(1.1)  # a date in a file would differ by now
    other = build_in_another_process(tmp_path / "runs", tmp_path / "b")
    assert other.returncode == 0, other.stdout + other.stderr
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    figures = [name for name in builders() if name.startswith("fig_") and "tsne" not in name and not of_the_study(name)]
    drawn = {name for name in contents(tmp_path / "a") if name.startswith("fig_") and name.endswith(".png")}
    assert drawn == {f"{name}_mini.png" for name in figures} - {"fig_sensitivity_mini.png"}  # it needs a sweep


def test_sources_name_runs_seeds_and_inputs(few, tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1), probes=(40,))
    build_all(tmp_path / "runs", tmp_path / "out")
    sources = json.loads((tmp_path / "out" / "sources.json").read_text())
    assert set(sources["outputs"]) == set(MINI)
    table = sources["outputs"]["tab_ablation_mini"]
    assert table["runs"] == sorted(run for runs in ids.values() for run in runs)
    assert table["seeds"] == 2
    assert table["run_commits"] == ["0123456789abcdef"]
    metrics = f"{ids['scpo'][0]}/metrics.jsonl"
    assert table["inputs"][metrics] == hashlib.sha256((tmp_path / "runs" / metrics).read_bytes()).hexdigest()
    assert sources["outputs"]["fig_credit_heatmap_mini"]["runs"] == [ids["scpo"][0]]


def test_captions_and_sources_name_rows_that_ran_under_several_versions_of_the_code(few, tmp_path):
    runs_dir, out = tmp_path / "runs", tmp_path / "out"
    ids = write_ablation(runs_dir, seeds=(0, 1), probes=(40,))
    for run in ids["scpo"]:
        write_json(runs_dir / run / "code.json", {"files": code_files()})
    build_all(runs_dir, out)
    plain = {name: (out / name).read_text() for name in ("tab_ablation_mini.md", "tab_ablation_mini.tex")}
    assert not any("several versions" in text for text in plain.values())

    other = {"files": code_files() | {"scpo/advantages/gigpo.py": "another"}}
    write_json(runs_dir / ids["scpo"][1] / "code.json", other)
    build_all(runs_dir, out)
    note = "SCPO (default): its seeds ran under several versions of scpo/advantages/gigpo.py"
    for name in ("tab_ablation_mini", "fig_learning_mini"):
        assert f" Note: {note}.\n" in (out / f"{name}.md").read_text()
        assert f" Note: {note}." in (out / f"{name}.tex").read_text()
    outputs = json.loads((out / "sources.json").read_text())["outputs"]
    assert outputs["tab_ablation_mini"]["notes"] == outputs["fig_learning_mini"]["notes"] == [note]
    assert outputs["fig_credit_heatmap_mini"]["notes"] == []  # of one run


@pytest.mark.parametrize(("gaps", "noted"), [((0.1, 0.1), True), ((0.1, 0.2), False)])
def test_the_caption_says_where_an_interval_has_no_spread(tmp_path, gaps, noted):
    made = {"scpo": [], "gigpo": []}
    for seed, gap in enumerate(gaps):
        for row, rate in (("scpo", 0.5 + gap), ("gigpo", 0.5)):
            run = write_run(tmp_path / "runs", row, seed, overrides=(f"method={row}",), panels=("valid_seen",))
            log_only(tmp_path / "runs", run, "val/valid_seen/success_rate", {40: rate})
            made[row].append(run)
    write_experiment(tmp_path / "runs", made, name="main_table")
    main(["figures", "tab_main", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out" / "tab_main_mini.md").read_text()
    assert ("Note: no spread in +10.0 [+10.0, +10.0]: the pairs are equal" in text) == noted


def test_no_date_and_no_path_in_a_figure(in_style, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,), probes=(40,))
    build_all(tmp_path / "runs", tmp_path / "out")
    for path in (tmp_path / "out").glob("fig_*"):
        assert b"CreationDate" not in path.read_bytes()
        assert str(tmp_path).encode() not in path.read_bytes()


def test_what_is_missing_is_said_and_the_rest_is_built(few, tmp_path, capsys):
    write_ablation(tmp_path / "runs", seeds=(0,))
    assert main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "fig_credit_heatmap_mini: no finished run whose probe" in said
    assert "python train.py method=scpo" in said
    assert str(tmp_path / "out" / "tab_ablation_mini.tex") in said
    assert not (tmp_path / "out" / "fig_credit_heatmap_mini.pdf").exists()


def test_files_of_an_earlier_build_are_named_where_this_one_makes_none(few, tmp_path, capsys):
    write_ablation(tmp_path / "runs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "fig_credit_heatmap_mini.pdf").write_bytes(b"of other runs")
    main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    said = " ".join(capsys.readouterr().out.split())
    assert "fig_credit_heatmap_mini.pdf in " in said
    assert "are of an earlier build" in said


def test_a_picture_in_another_format_of_an_earlier_build_is_named(tmp_path, capsys):
    """LaTeX took it, with other rows than the caption and the table of the later build."""
    write_ablation(tmp_path / "runs")
    words = ["figures", "fig_learning", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main([*words, "--format", "png"]) == 0
    assert "earlier build" not in capsys.readouterr().out
    assert main([*words, "--rows", "scpo", "--format", "pdf"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of an earlier build, perhaps with other rows: " in said
    assert "fig_learning_mini.png; build it again" in said


def test_unfinished_runs_are_listed_with_the_command(few, tmp_path, capsys):
    write_experiment(
        tmp_path / "runs",
        {
            "scpo": [write_run(tmp_path / "runs"), write_run(tmp_path / "runs", seed=1, state="FAILED")]
            + [write_run(tmp_path / "runs", seed=seed, state="PENDING") for seed in (2, 3)],
            "gigpo": [write_run(tmp_path / "runs", "gigpo", seed, state="PENDING") for seed in (4, 5, 6)],
        },
    )
    main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "seed 1 (mini scale)" in said
    assert "is FAILED; if it failed too often to be tried again: python -m sweeps retry" in said
    assert "(mini scale): not started: seeds 2, 3\n" in said
    assert "(mini scale): not started: seeds 4 to 6\n" in said


def test_no_command_finishes_an_experiment_that_was_not_asked_for(few, tmp_path, capsys):
    runs = tmp_path / "runs"
    rows = {row: [write_run(runs, row)] for row in ("scpo", "no_monotonicity")}
    write_experiment(runs, rows)
    others = {"scpo": rows["scpo"], "chronological": [write_run(runs, "chronological", 4, state="PENDING")]}
    write_experiment(runs, others, name="ablation_order")
    words = ["figures", "tab_ablation", "--runs-dir", str(runs), "--out", str(tmp_path / "out")]
    main([*words, "--experiment", "ablation_monotonicity"])
    assert "Finish" not in capsys.readouterr().out
    for choice in (["--experiment", "ablation_order"], ["--rows", "scpo,chronological"]):
        main([*words, *choice])
        said = capsys.readouterr().out
        assert "chronological order (mini scale): not started: seeds 4" in said or "seed 4" in said
        assert "Finish them with:\n  python sweep.py +experiment=ablation_order 'seeds=[4]'" in said


def test_without_a_finished_run_there_is_one_answer_and_not_one_for_each_figure(tmp_path, capsys):
    runs = tmp_path / "runs"
    started = write_run(runs, state="INTERRUPTED")
    write_experiment(runs, {"scpo": [started, write_run(runs, seed=1, state="PENDING")]})
    assert main(["figures", "--runs-dir", str(runs), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert said.count("error:") == said.count("no finished run") == 1
    assert f"{started['id']} is INTERRUPTED" in said
    assert f"machine.runs_dir={runs}\n" in said.partition("Finish them with:\n  python sweep.py ")[2]
    assert len(said.splitlines()) < 8
    assert not (tmp_path / "out").exists()


def test_unfinished_runs_of_other_code_are_named_with_the_word_that_goes_on(tmp_path, capsys):
    runs = tmp_path / "runs"
    started = [write_run(runs, seed=seed, state="INTERRUPTED") for seed in (0, 1)]
    write_experiment(runs, {"scpo": started})
    for changed in ("sweeps/dispatch.py", "scpo/advantages/gigpo.py"):
        for run in started:
            folder = RunFolder(runs / run["id"])
            folder.checkpoint(2).mkdir(parents=True, exist_ok=True)
            folder.mark_complete(2, {}, {})
            write_json(folder.code, {"files": code_files() | {changed: "another"}})
        main(["figures", "--runs-dir", str(runs), "--out", str(tmp_path / "out")])
        said = capsys.readouterr().out
        assert ("would not go on" in said) is changed.startswith("scpo/")
    first = min(run["id"] for run in started)
    assert f"note would not go on (and 1 other run): {first} stopped at step 2 under other code" in said
    assert "or add machine.resume_across_versions=true" in said


def test_an_unfinished_run_of_no_experiment_is_finished_by_its_own_command(few, tmp_path, capsys):
    write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", seed=1, state="INTERRUPTED")
    main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "Finish them with the commands of train.py that started them.\n" in said
    assert "Finish them with:" not in said


def test_many_unfinished_rows_are_one_line_with_the_first_and_the_number(few, tmp_path, capsys):
    runs = tmp_path / "runs"
    names = [f"row {number}" for number in range(6)]
    rows = {name: [write_run(runs, seed=seed, state="PENDING")] for seed, name in enumerate(names)}
    write_experiment(runs, {"scpo": [write_run(runs, seed=9)], **rows})
    assert main(["figures", "--runs-dir", str(runs), "--out", str(tmp_path / "out")]) == 0
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "not started" in line]
    assert told.startswith("Not finished, so not in any mean: row 0 (mini scale): not started: seed 0; row 1")
    assert told.endswith("; and 3 more, all on the report page")


def test_an_output_folder_that_is_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "out").write_text("mine")
    assert main(["figures", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "out")]) != 0
    told = capsys.readouterr()
    assert "is a file; name a folder" in " ".join((told.out + told.err).split())
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(("folder", "said"), [("none", "there is no folder"), ("empty", "no runs were found in")])
def test_no_runs_at_all_is_said_once_with_what_makes_some(tmp_path, capsys, folder, said):
    (tmp_path / "empty").mkdir()
    assert main(["figures", "--runs-dir", str(tmp_path / folder), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().out
    assert told.count(said) == told.count("python sweep.py +experiment=ablation") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["figures", "report"])
def test_a_folder_without_runs_is_answered_with_the_runs_of_the_checkout(tmp_path, monkeypatch, capsys, command):
    """As `python -m sweeps status` does; it named the study's runs only."""
    checkout = tmp_path / "checkout"
    monkeypatch.setattr("analysis.__main__.REPOSITORY", checkout)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def said(*words):
        assert main([command, *words]) == 1
        return " ".join(capsys.readouterr().out.split())

    assert "those of the checkout" not in said()
    write_run(checkout / "runs")
    assert f"there is no folder runs; those of the checkout: --runs-dir {checkout / 'runs'}; make some with" in said()
    assert "those of the checkout" not in said("--runs-dir", "typo")


def test_records_whose_runs_were_deleted_are_answered_with_their_commands(tmp_path, capsys):
    runs = tmp_path / "runs"
    for name, seed in (("demo", 0), ("second", 1)):
        planned = write_run(runs, "scpo", seed)
        write_experiment(runs, {"scpo": [planned]}, name=name)
        shutil.rmtree(runs / planned["id"])
    assert main(["figures", "--runs-dir", str(runs), "--out", str(tmp_path / "out")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "no runs are left in" in said
    here = f"machine.runs_dir={runs}"
    assert f"`python sweep.py +experiment=demo {here}`, `python sweep.py +experiment=second {here}`" in said


def test_runs_of_which_none_can_be_used_are_not_said_to_be_missing(tmp_path, capsys):
    for seed in (0, 1):
        run = tmp_path / "runs" / write_run(tmp_path / "runs", seed=seed)["id"]
        (run / "config.yaml").write_text("name: half")
    assert main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "can be used: 2 problems, the first: " in said
    assert "config.yaml is cut short" in said


def test_seeds_that_ran_under_several_versions_of_the_code_are_named(few, tmp_path, capsys):
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1))
    for run in ids["scpo"]:
        write_json(tmp_path / "runs" / run / "code.json", {"files": code_files()})
    words = ["figures", "tab_ablation", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "versions" not in capsys.readouterr().out

    edited = code_files() | {"scpo/advantages/gigpo.py": "another"}
    write_json(tmp_path / "runs" / ids["scpo"][1] / "code.json", {"files": edited})
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"note {LABELS['scpo']}: its seeds ran under several versions of scpo/advantages/gigpo.py" in said


def test_a_foreign_folder_and_a_torn_probe_stop_nothing(few, tmp_path, capsys):
    ids = write_ablation(tmp_path / "runs", seeds=(0,), probes=(40,))
    (tmp_path / "runs" / "holiday").mkdir()
    (tmp_path / "runs" / ids["scpo"][0] / "diagnostics" / "probe_step_00040.npz").write_bytes(b"PK")
    assert main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "holiday" in said
    assert "probe_step_00040.npz" in said


def test_a_sample_of_wrong_content_costs_a_figure_no_other_sample_and_is_named_by_every_build(few, tmp_path, capsys):
    ids = write_ablation(tmp_path / "runs", seeds=(0,), probes=(20, 40))
    path = tmp_path / "runs" / ids["scpo"][0] / "diagnostics" / "probe_step_00020.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "order_l": arrays["order_l"] * 0.5})
    for _ in range(2):  # the second build may not keep the figure and say nothing
        assert (
            main(
                ["figures", "fig_credit_heatmap", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
            )
            == 0
        )
        said = capsys.readouterr().out
        assert "built     fig_credit_heatmap_mini" in said
        assert f"left out {path.parent.parent.name}/{path.name}: {path.name} is not a probe file (order_l is" in said


def test_scales_are_written_into_files_of_their_own(few, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,))
    paper = {"scpo": [write_run(tmp_path / "runs", scale="paper", steps=150)]}
    write_experiment(tmp_path / "runs", paper, name="ablation", scale="paper")
    report = build_all(tmp_path / "runs", tmp_path / "out")
    runs = {output.name: set(output.runs) for output in report.outputs}
    assert {"tab_ablation", "tab_ablation_mini", "fig_learning", "fig_learning_mini"} == set(runs)
    assert not set().union(*(ids for name, ids in runs.items() if "mini" in name)) & runs["fig_learning"]


def test_an_output_folder_that_cannot_be_written_is_named(few, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,))
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RecordWriteError, match="out"):
        build_all(tmp_path / "runs", tmp_path / "out")


def outputs(report):
    return {output.name: output.made is not None for output in report.outputs}


def test_figures_that_did_not_change_are_not_drawn_again(few, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,), probes=(40,))
    first = build_all(tmp_path / "runs", tmp_path / "out")
    before = contents(tmp_path / "out")
    again = build_all(tmp_path / "runs", tmp_path / "out")
    assert all(outputs(first).values())
    assert {name for name, drawn in outputs(again).items() if not drawn} == {f"{name}_mini" for name in FIGURES}
    assert contents(tmp_path / "out") == before


def test_what_changed_is_drawn_again(few, tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0,), probes=(20, 40))
    build_all(tmp_path / "runs", tmp_path / "out")
    write_probe(tmp_path / "runs" / ids["no_monotonicity"][0], 20)  # looked at, not drawn: it might be by now
    (tmp_path / "out" / "fig_learning_mini.png").unlink()
    drawn = outputs(build_all(tmp_path / "runs", tmp_path / "out"))
    assert drawn["fig_credit_heatmap_mini"]
    assert drawn["fig_learning_mini"]


def test_a_new_run_or_a_damaged_sources_file_draws_all_again(few, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,), probes=(40,))
    build_all(tmp_path / "runs", tmp_path / "out")
    write_ablation(tmp_path / "runs", seeds=(1,))
    assert all(outputs(build_all(tmp_path / "runs", tmp_path / "out")).values())
    (tmp_path / "out" / "sources.json").write_text("{")
    assert all(outputs(build_all(tmp_path / "runs", tmp_path / "out")).values())


def with_builder(monkeypatch, name, build):
    monkeypatch.setattr("analysis.build.builders", lambda: {"tab_ablation": builders()["tab_ablation"], name: build})


def test_a_plain_figure_is_an_output(monkeypatch, tmp_path):
    def build(data):
        figure = Figure(figsize=(2, 2))
        figure.subplots().plot([0, 1], [0, data.summary(data.sections[0].rows[0], "train/success_rate", "last").mean])
        return figure

    write_ablation(tmp_path / "runs", seeds=(0,))
    with_builder(monkeypatch, "fig_mine", build)
    report = build_all(tmp_path / "runs", tmp_path / "out")
    assert [output.name for output in report.outputs] == ["tab_ablation_mini", "fig_mine_mini"]
    assert (tmp_path / "out" / "fig_mine_mini.pdf").read_bytes().startswith(b"%PDF")
    assert len(report.outputs[1].runs) == 1


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda data: data.nothing, "AttributeError: 'Collected' object has no attribute 'nothing'"),
        (lambda data: None, "TypeError: build(data) returned NoneType; allowed are a Figure, a Drawing or a Table"),
        (lambda data: 1 / 0, "ZeroDivisionError: division by zero"),
        (
            lambda data: Table(("Row",), ("area",), (Block("b", (("scpo",),)),), "c", "tab:x"),
            "ValueError: row 1 of block 'b' has 1 cell (scpo), expected 2, one for each column: Row | area",
        ),
    ],
)
def test_a_builder_that_fails_is_one_line_and_the_others_are_built(monkeypatch, tmp_path, build, said):
    write_ablation(tmp_path / "runs", seeds=(0,))
    with_builder(monkeypatch, "fig_mine", build)
    report = build_all(tmp_path / "runs", tmp_path / "out")
    assert [output.name for output in report.outputs] == ["tab_ablation_mini"]
    (failure,) = report.failures
    assert failure.reason.startswith(f"its builder failed: {said}")
    # The file that makes a table, not the one that checks it.
    assert "table.py" not in failure.reason
    assert "\n" not in failure.reason
    assert failure.remedy.endswith("the same command as `figures fig_mine --debug`")
    with pytest.raises((AttributeError, TypeError, ValueError, ZeroDivisionError)):
        build_from(collect(tmp_path / "runs"), tmp_path / "out", debug=True)


def test_a_choice_of_look_draws_figures_again(few, tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,))
    places = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["figures", "fig_learning", *places]) == 0
    before = (tmp_path / "out" / "fig_learning_mini.pdf").read_bytes()
    chosen = ["--size", "column", "--font-size", "9", "--format", "pdf,svg", "--rows", "scpo"]
    assert main(["figures", "fig_learning", *places, *chosen]) == 0
    assert (tmp_path / "out" / "fig_learning_mini.pdf").read_bytes() != before
    assert (tmp_path / "out" / "fig_learning_mini.svg").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--size", "huge"], "--size huge is not a size"),
        (["--format", "jpg"], "--format jpg: allowed are pdf, png, svg"),
        (["--font-size", "100"], "--font-size 100 is not between"),
        (["--rows", "nobody"], "--rows nobody"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(tmp_path, capsys, options, said):
    write_ablation(tmp_path / "runs", seeds=(0,))
    assert main(["figures", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), *options]) == 1
    told = capsys.readouterr().out
    assert said in told
    assert "Traceback" not in told


def test_a_damaged_run_is_named_in_the_files_of_each_output_with_its_row(few, tmp_path):
    ids = write_ablation(tmp_path / "runs")
    status = tmp_path / "runs" / ids["scpo"][1] / "status.json"
    status.write_bytes(status.read_bytes()[:-5])
    build_all(tmp_path / "runs", tmp_path / "out")
    for name in ("tab_ablation_mini", "fig_learning_mini"):
        text = (tmp_path / "out" / f"{name}.md").read_text()
        assert "Note: damaged and left out: SCPO (default) (seed 1)." in text, name
