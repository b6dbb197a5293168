"""An archive of finished runs stands for their folders: same tables, merged by run id, same bytes."""

import json
import shutil

import pytest

from analysis.sources.archive import EXPERIMENTS, METRICS, RUNS, is_archive, write_archive
from analysis.sources.collect import collect
from analysis.tables.tab_ablation import build
from scpo.errors import RecordError
from tests.support.run_records import write_ablation, write_experiment, write_run


def archive(data, folder):
    return write_archive(data.by_id.values(), data.metrics, data.experiments, folder)


def table(*folders):
    return build(collect(folders).at_scale("mini")).csv()


def test_tables_from_the_archive_are_those_of_the_runs(tmp_path):
    runs = tmp_path / "runs"
    ids = write_ablation(runs, seeds=(0, 1))
    provenance = {"attempts": {"1": {"cpu": "an old one"}, "2": {"cpu": "a processor", "dirty": True}}}
    (runs / ids["scpo"][0] / "provenance.json").write_text(json.dumps(provenance))
    data = collect(runs)
    archive(data, tmp_path / "study")
    before = table(runs)
    shutil.rmtree(runs)
    again = collect(tmp_path / "study")
    assert table(tmp_path / "study") == before
    run = again.by_id[ids["scpo"][0]]
    assert (run.commit, run.processor, run.dirty) == ("0123456789abcdef", "a processor", True)
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


@pytest.mark.parametrize("name", [RUNS, EXPERIMENTS])
def test_a_broken_archive_is_one_line_that_says_what_to_do(tmp_path, name):
    write_ablation(tmp_path / "runs", seeds=(0,))
    archive(collect(tmp_path / "runs"), tmp_path / "study")
    (tmp_path / "study" / name).write_bytes(b"{")
    with pytest.raises(RecordError, match=r"no archive of runs that can be read: .*git checkout") as error:
        collect(tmp_path / "study")
    assert "\n" not in str(error.value)


def test_built_tables_are_no_archive(tmp_path):
    for name in (METRICS, RUNS):
        (tmp_path / name).write_bytes(b"")
    assert not is_archive(tmp_path)
