"""An archive of finished runs: the tables of their folders, merged by run id, the same bytes; damage is named."""

import json
import os
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.sources import archive_writing as module
from analysis.sources.archive_writing import write_archive
from analysis.sources.collect import collect
from analysis.tables.tab_ablation import build
from scpo.errors import ConfigError, RecordError
from scpo.records import archive_index
from scpo.records.archive_index import INDEX, METRICS, RUNS, is_archive
from scpo.records.files import sealed, write_json
from scpo.records.run_folders import finished_in
from tests.support.run_records import write_ablation, write_experiment, write_run

UNREADABLE = "is no archive of runs that can be read"


def archive(data, folder):
    return write_archive(data.by_id.values(), data.metrics, data.experiments, folder)


def table(*folders):
    return build(collect(folders).at_scale("mini")).csv()


def test_tables_from_the_archive_are_those_of_the_runs(tmp_path):
    runs = tmp_path / "runs"
    ids = write_ablation(runs, seeds=(0, 1))
    provenance = {
        "attempts": {"1": {"cpu": "an old one"}, "2": {"cpu": "a processor", "torch_capability": "AVX2", "dirty": True}}
    }
    write_json(runs / ids["scpo"][0] / "provenance.json", provenance)
    data = collect(runs)
    archive(data, tmp_path / "study")
    before = table(runs)
    shutil.rmtree(runs)
    again = collect(tmp_path / "study")
    assert table(tmp_path / "study") == before
    run = again.by_id[ids["scpo"][0]]
    assert (run.commit, run.processor, run.dirty) == ("0123456789abcdef", "a processor", True)
    assert (run.torch_capability, run.code) == ("AVX2", "unknown")
    assert "machine" not in run.config
    kept = set(data.metrics["metric"]) - set(again.metrics["metric"])
    assert kept
    assert all(name.startswith("timing_s/") for name in kept)
    assert again.series(run.id, "timing_s/step") == data.series(run.id, "timing_s/step")


def test_the_archive_of_an_archive_is_the_same_bytes(tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0, 1))
    first = archive(collect(tmp_path / "runs"), tmp_path / "a")
    second = archive(collect([tmp_path / "a", tmp_path / "runs"]), tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert str(tmp_path).encode() not in b"".join(path.read_bytes() for path in first)


def test_seeds_of_several_machines_are_one_row(tmp_path):
    write_ablation(tmp_path / "here", seeds=(0, 1))
    write_ablation(tmp_path / "there", seeds=(2, 3, 4))
    whole = write_ablation(tmp_path / "all", seeds=(0, 1, 2, 3, 4))
    archive(collect(tmp_path / "there"), tmp_path / "study")
    archive(collect([tmp_path / "here", tmp_path / "study"]), tmp_path / "study")
    assert table(tmp_path / "study") == table(tmp_path / "all")
    assert sorted(collect(tmp_path / "study").by_id) == sorted(run for runs in whole.values() for run in runs)


def test_a_run_that_is_not_finished_here_does_not_hide_the_finished_one(tmp_path):
    done = write_run(tmp_path / "there", seed=0)
    write_experiment(tmp_path / "there", {"scpo": [done]})
    archive(collect(tmp_path / "there"), tmp_path / "study")
    write_experiment(tmp_path / "here", {"scpo": [write_run(tmp_path / "here", seed=0, state="RUNNING")]})
    for order in (["here", "study"], ["study", "here"]):
        data = collect([tmp_path / name for name in order])
        assert data.by_id[done["id"]].state == "DONE"
        assert [row.count for part in data.sections for row in part.rows] == ["1/1"]


def test_what_was_planned_and_never_finished_is_still_missing(tmp_path):
    runs = [write_run(tmp_path / "runs", seed=0), write_run(tmp_path / "runs", seed=1, state="FAILED")]
    write_experiment(tmp_path / "runs", {"scpo": runs})
    archive(collect(tmp_path / "runs"), tmp_path / "study")
    data = collect(tmp_path / "study")
    assert list(data.by_id) == [runs[0]["id"]]
    assert [row.count for part in data.sections for row in part.rows] == ["1/2"]


@pytest.mark.parametrize("name", [RUNS, INDEX])
def test_a_broken_archive_is_one_line_that_says_what_to_do_and_the_runs_beside_it_are_read(tmp_path, name):
    write_ablation(tmp_path / "runs", seeds=(0,))
    good = collect(tmp_path / "runs")
    archive(good, tmp_path / "study")
    (tmp_path / "study" / name).write_bytes(b"{")
    data = collect([tmp_path / "study", tmp_path / "runs"])
    (problem,) = data.problems
    assert re.search(r"no archive of runs that can be read .*Restore its files from a copy", problem.reason)
    assert "\n" not in problem.reason
    assert data.by_metric == good.by_metric


@pytest.mark.parametrize("name", [RUNS, INDEX])
def test_an_archive_that_lost_a_file_is_named(tmp_path, name):
    write_ablation(tmp_path / "runs", seeds=(0,))
    archive(collect(tmp_path / "runs"), tmp_path / "study")
    (tmp_path / "study" / name).unlink()
    (problem,) = collect(tmp_path / "study").problems
    assert problem.path == str(tmp_path / "study")
    assert name in problem.reason


def test_a_line_whose_id_is_not_that_of_its_configuration_is_left_out(tmp_path):
    write_ablation(tmp_path / "runs", rows=("scpo",), seeds=(0,))
    (run,) = collect(tmp_path / "runs").by_id.values()
    other = replace(run, id=run.id.replace("-scpo-", "-gigpo-"))
    metrics = collect(tmp_path / "runs").metrics.astype({"run": str}).assign(run=other.id)
    write_archive([other], metrics, (), tmp_path / "study")
    data = collect(tmp_path / "study")
    assert not data.by_id
    assert "its id is not that of its configuration" in data.problems[0].reason


def test_built_tables_are_no_archive(tmp_path):
    for name in (METRICS, RUNS):
        (tmp_path / name).write_bytes(b"")
    assert not is_archive(tmp_path)


def small_archive(tmp_path, seeds=(0, 1, 2, 3)):
    """An archive of one row, its runs in two groups, and what it holds: (folder, run ids, series by run)."""
    ids = write_ablation(tmp_path / "runs", rows=("scpo",), seeds=seeds)["scpo"]
    archive(collect(tmp_path / "runs"), tmp_path / "study")
    return tmp_path / "study", ids, collect(tmp_path / "study").by_metric


@pytest.fixture
def two_runs_a_group(monkeypatch):
    monkeypatch.setattr(module, "RUNS_PER_GROUP", 2)


def numbers_of(data):
    return {run: data.by_metric.get(run, {}) for run, found in data.by_id.items() if found.state == "DONE"}


@pytest.mark.parametrize("name", [METRICS, RUNS, INDEX])
@pytest.mark.parametrize("kind", ["flip", "cut", "zeros"])
def test_no_damage_of_any_file_changes_a_number_in_silence(tmp_path, two_runs_a_group, name, kind):
    folder, ids, good = small_archive(tmp_path)
    whole = (folder / name).read_bytes()
    choose, kept = random.Random(f"{name} {kind}"), []
    for _ in range(25):
        content = bytearray(whole)
        place = choose.randrange(len(content))
        if kind == "flip":
            content[place] ^= 1 << choose.randrange(8)
        elif kind == "cut":
            del content[place:]
        else:
            content[place : place + 64] = bytes(len(content[place : place + 64]))
        (folder / name).write_bytes(content)
        data = collect(folder)
        if any(UNREADABLE in problem.reason for problem in data.problems):
            assert not data.by_id
            continue
        numbers = numbers_of(data)
        assert all(numbers[run] == good[run] for run in numbers)
        named = " ".join(f"{one.path} {one.reason}" for one in data.problems)
        assert all(run in numbers or run in named for run in ids)
        kept.append(len(numbers))
    if kind == "flip" and name == METRICS:
        assert 2 in kept  # of four: the other group of runs can still be read


def rewritten(folder, change):
    """The archive with other metric rows, as `collect` reads it."""
    path = folder / METRICS
    change(pd.read_parquet(path).astype({"run": str, "metric": str})).to_parquet(path, index=False)
    return collect(folder)


CONTENT = {
    "no metric rows": lambda table, run: table[table["run"] != run],
    "two values of": lambda table, run: pd.concat([table, table[table["run"] == run].head(1)]),
    "is nan at step": lambda table, run: table.assign(value=table["value"].where(table["run"] != run)),
    "is 7.0 at step": lambda table, run: table.assign(
        value=table["value"].mask((table["run"] == run) & table["metric"].str.endswith("success_rate"), 7.0)
    ),
    "metric rows end at step 39": lambda table, run: table[(table["run"] != run) | (table["step"] < 40)],
}


@pytest.mark.parametrize("said", CONTENT)
def test_a_run_whose_rows_cannot_be_its_own_is_damaged_and_named(tmp_path, said):
    folder, ids, good = small_archive(tmp_path)
    data = rewritten(folder, lambda table: CONTENT[said](table, ids[1]))
    assert data.by_id[ids[1]].state == "DAMAGED"
    assert [one.path for one in data.problems] == [ids[1], f"{folder}/{METRICS}"]
    assert said in data.problems[0].reason
    assert f"Restore its files from a copy or add the run again (python -m analysis study --archive {folder}" in (
        data.problems[0].reason
    )
    assert "(sha256): 1 run left out. " in data.problems[1].reason
    assert numbers_of(data) == {run: good[run] for run in ids if run != ids[1]}
    assert [row.count for part in data.sections for row in part.rows] == ["3/4"]


def test_rows_that_changed_places_between_runs_are_named_by_their_checksums(tmp_path):
    folder, ids, _ = small_archive(tmp_path)
    swap = {ids[0]: ids[1], ids[1]: ids[0]}
    data = rewritten(folder, lambda table: table.assign(run=table["run"].replace(swap)))
    assert [run for run, found in data.by_id.items() if found.state == "DAMAGED"] == sorted(ids[:2])
    assert "sha256" in data.problems[0].reason


def test_advice_names_the_command_of_the_archive_and_git_in_a_checkout_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "from a copy" in archive_index.restore(Path("docs/meaning"))
    (tmp_path / ".git").mkdir()
    assert "(git checkout docs/meaning)" in archive_index.restore(Path("docs/meaning"))
    assert archive_index.adding(Path("docs/meaning")) == "python -m analysis meaning"
    assert archive_index.adding(Path("docs/study")) == "python -m analysis study"
    assert archive_index.adding(Path("my runs")) == "python -m analysis study --archive 'my runs'"


def test_a_value_out_of_range_is_never_archived(tmp_path):
    folder, ids, _ = small_archive(tmp_path)
    data = collect(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    metrics = data.metrics.assign(value=data.metrics["value"] * 10)
    with pytest.raises(RecordError, match=f"run {min(ids)} cannot be archived: .* not in"):
        write_archive(data.by_id.values(), metrics, data.experiments, folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("whole", ["runs", "study"])
def test_of_two_copies_the_whole_one_is_taken_wherever_it_lies(tmp_path, whole):
    folder, ids, good = small_archive(tmp_path)
    if whole == "study":
        path = tmp_path / "runs" / ids[0] / "metrics.jsonl"
        path.write_text(path.read_text().replace('"step": 7,', '"step": 8,'))
    else:
        rewritten(folder, lambda table: table[table["run"] != ids[0]])
    for order in (["runs", "study"], ["study", "runs"]):
        data = collect([tmp_path / name for name in order])
        assert {run.state for run in data.by_id.values()} == {"DONE"}
        assert data.by_id[ids[0]].folder == (tmp_path / "study" if whole == "study" else tmp_path / "runs" / ids[0])
        # An archive leaves out the seconds of stages.
        assert {name: data.by_metric[ids[0]][name] for name in good[ids[0]]} == good[ids[0]]
    assert ids[0] in [one.path for one in collect([tmp_path / "runs", folder]).problems] or whole == "study"


class Killed(BaseException):
    """What a kill looks like to code that catches exceptions."""


def writes_of(tmp_path, monkeypatch, act, after):
    """Do it, killed after so many files have been moved into place; whether it was killed."""
    real, left = os.replace, [after]

    def replace(source, target):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        try:
            act()
        except Killed:
            return True
    return False


def test_the_three_files_change_together_or_not_at_all(tmp_path, monkeypatch):
    folder, _, _ = small_archive(tmp_path, seeds=(0, 1))
    write_ablation(tmp_path / "more", rows=("scpo",), seeds=(0, 1, 2))
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    more = collect(tmp_path / "more")
    archive(more, tmp_path / "new")
    new = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    seen = set()
    for after in range(10):
        shutil.rmtree(folder)
        folder.mkdir()
        for name, content in old.items():
            (folder / name).write_bytes(content)
        killed = writes_of(tmp_path, monkeypatch, lambda: archive(more, folder), after)
        data = collect(folder)
        assert not data.problems
        seen.add(len(data.by_id))
        assert len(data.by_id) in (2, 3)
        assert numbers_of(data).keys() == data.by_id.keys()
        assert finished_in(str(folder)) == data.by_id.keys()
        archive(more, folder)  # goes on after the kill
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == new
        if not killed:
            break
    assert (seen, after) == ({2, 3}, 5)


@pytest.mark.parametrize("name", [METRICS, RUNS])
def test_damaged_runs_of_an_archive_are_restored_and_not_swept_again(tmp_path, capsys, name):
    folder, ids, _ = small_archive(tmp_path)
    path = folder / name
    table = pd.read_parquet(path)
    table[table["run" if name == METRICS else "id"] != ids[1]].to_parquet(path, index=False)
    main(["figures", "tab_main", "--runs-dir", str(folder), "--out", str(tmp_path / "out")])
    told = capsys.readouterr().out
    assert f"{ids[1]} is DAMAGED\n" in told
    assert "No sweep makes runs again whose records cannot be read: the lines on them above name the remedy" in told
    assert "Finish them" not in told


def of_two_experiments(tmp_path):
    """An archive of two experiments with one row of the same name, and its index."""
    runs = tmp_path / "runs"
    for name, seed in (("main_table", 0), ("other", 1)):
        write_experiment(runs, {"scpo": [write_run(runs, seed=seed)]}, name=name)
    archive(collect(runs), tmp_path / "study")
    return tmp_path / "study", json.loads((tmp_path / "study" / INDEX).read_text())


@pytest.mark.parametrize(("places", "named"), [([0], ["main_table (record 1)"]), ([0, 1], ["main_table", "other"])])
@pytest.mark.parametrize("resealed", [False, True])
def test_no_row_is_taken_from_another_experiment_where_a_record_was_edited(tmp_path, capsys, places, named, resealed):
    folder, index = of_two_experiments(tmp_path)
    for place in places:
        index["experiments"][place]["title"] += " edited"
    (folder / INDEX).write_text(json.dumps(sealed(index) if resealed else index))
    out = tmp_path / "out"
    assert main(["figures", "tab_main", "--runs-dir", str(folder), "--out", str(out)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "experiments.json: edited or damaged records: " in told
    assert all(name in told for name in named)
    assert "Restore its files from a copy" in told
    assert not out.exists()
    with pytest.raises(ConfigError, match="edited or damaged records: main_table"):
        finished_in(str(folder))


def test_an_archive_whose_index_lost_a_record_is_refused(tmp_path):
    folder, index = of_two_experiments(tmp_path)
    del index["experiments"][0]
    (folder / INDEX).write_text(json.dumps(index))
    data = collect(folder)
    (problem,) = data.problems
    assert not data.by_id
    assert "its checksum is not that of its content: it was edited or damaged). Restore its files" in problem.reason


def test_an_archive_without_checksums_is_refused(tmp_path):
    folder, _, _ = small_archive(tmp_path)
    (folder / INDEX).write_text("[]")
    (problem,) = collect(folder).problems
    assert "no archive of runs that can be read" in problem.reason
