import json

import pytest

import sweeps.__main__
from scpo.errors import ConfigError
from scpo.records import State, manifest, run_config
from scpo.records.files import write_json
from sweeps.compose.matrix import expand


def update(runs_dir, *words, folders=True):
    matrix = expand("ablation_monotonicity", [f"machine.runs_dir={runs_dir}", *words])
    for config in matrix.runs.values() if folders else ():
        run_config.ensure(config)
    manifest.update(runs_dir, matrix.manifest)
    return json.loads(path_of(runs_dir, matrix.scale).read_text())


def path_of(runs_dir, scale="mini"):
    return manifest.manifest_path(runs_dir, "ablation_monotonicity", scale)


def seeds(recorded):
    return [[run["seed"] for run in row["runs"]] for row in recorded["rows"]]


def test_the_manifest_maps_rows_to_runs(tmp_path):
    recorded = update(tmp_path, "seeds=[0]")
    assert (recorded["experiment"], recorded["scale"]) == ("ablation_monotonicity", "mini")
    assert [row["name"] for row in recorded["rows"]] == ["scpo", "no_monotonicity"]
    run = recorded["rows"][1]["runs"][0]
    assert (run["env"], run["model"], run["seed"]) == ("alfworld", "tiny", 0)
    assert (tmp_path / run["id"]).is_dir()
    assert recorded["primary"] == {"measure": "validation_area", "comparisons": [["scpo", "no_monotonicity"]]}


def test_a_comparison_that_is_named_after_its_results_is_not_among_the_named_ones(tmp_path):
    words = ["seeds=[0]", f"machine.runs_dir={tmp_path}"]
    planned = expand("ablation_monotonicity", words).manifest
    pair = planned.primary.comparisons[0]
    manifest.update(tmp_path, planned.model_copy(update={"primary": None}))
    folders = [run_config.ensure(config) for config in expand("ablation_monotonicity", words).runs.values()]
    folders[0].update_status(state=State.DONE)
    merged = manifest.with_earlier_runs(tmp_path, planned)
    assert (merged.primary, merged.named_late) == (planned.primary, ())  # one row has no result yet
    folders[1].update_status(state=State.DONE)
    for _ in range(2):  # the second call finds the record of the first
        manifest.update(tmp_path, planned)
        recorded = manifest.read(path_of(tmp_path))
        assert (recorded.primary, recorded.named_late) == (None, (pair,))
    manifest.update(tmp_path / "new", planned)
    assert manifest.read(path_of(tmp_path / "new")).primary == planned.primary


def test_other_seeds_join_what_is_there(tmp_path):
    update(tmp_path, "seeds=[1,2]")
    assert seeds(update(tmp_path, "seeds=[0,1]", "wandb.mode=disabled")) == [[0, 1, 2], [0, 1, 2]]


def test_a_call_of_some_rows_keeps_the_runs_of_the_others(tmp_path):
    update(tmp_path, "seeds=[1,2]")
    assert seeds(update(tmp_path, "seeds=[0,1]", "rows=[scpo]")) == [[0, 1, 2], [1, 2]]
    assert len(manifest.manifest_paths(tmp_path)) == 1


def test_runs_whose_folder_is_gone_leave(tmp_path):
    update(tmp_path, "seeds=[1]", folders=False)
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]


def test_runs_with_other_settings_do_not_mix(tmp_path):
    update(tmp_path, "seeds=[1]", "trainer.steps=2")
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]


def test_a_call_with_other_overrides_keeps_the_record_of_the_earlier_one(tmp_path):
    first = update(tmp_path, "seeds=[0,1]", "trainer.steps=2")
    second = update(tmp_path, "seeds=[0]", "trainer.steps=3")
    records = map(manifest.read, manifest.manifest_paths(tmp_path))
    latest, kept = sorted(records, key=lambda one: one.experiment)
    assert latest.experiment == "ablation_monotonicity"
    assert seeds(second) == [[0], [0]]
    assert kept.experiment.startswith("ablation_monotonicity_")
    assert kept.asked_as == ("+experiment=ablation_monotonicity",)
    assert kept.title.endswith(", trainer.steps=2")
    assert kept.model_dump(mode="json")["rows"] == first["rows"]
    # Its own command gives it the name back, with the seeds that it has.
    assert seeds(update(tmp_path, "seeds=[2]", "trainer.steps=2")) == [[0, 1, 2], [0, 1, 2]]
    titles = {manifest.read(path).title for path in manifest.manifest_paths(tmp_path)}
    assert titles == {first["title"], f"{first['title']}, trainer.steps=3"}


def test_a_call_with_other_rows_keeps_the_record_of_the_earlier_one(tmp_path):
    for methods in ("gigpo,grpo", "scpo,rloo"):
        matrix = expand("one", [f"machine.runs_dir={tmp_path}", "seeds=[0]", f"method={methods}"])
        for config in matrix.runs.values():
            run_config.ensure(config)
        manifest.update(tmp_path, matrix.manifest)
    records = sorted(map(manifest.read, manifest.manifest_paths(tmp_path)), key=lambda one: one.experiment)
    assert [[row.name for row in record.rows] for record in records] == [["scpo", "rloo"], ["gigpo", "grpo"]]
    assert records[0].experiment == "one_by_method"
    assert records[1].asked_as == ("+experiment=one", "method=gigpo,grpo")


def test_each_scale_has_a_manifest_of_its_own(tmp_path):
    update(tmp_path, "seeds=[0]")
    assert seeds(update(tmp_path, "seeds=[2]", "scale=paper")) == [[2], [2]]
    assert seeds(json.loads(path_of(tmp_path).read_text())) == [[0], [0]]


def test_runs_of_an_earlier_default_do_not_mix(tmp_path):
    recorded = update(tmp_path, "seeds=[0,1]")
    path = path_of(tmp_path)
    for row in recorded["rows"]:
        for run in row["runs"]:
            run["settings"] = "00000000"
    write_json(path, recorded)
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]


def test_runs_of_an_earlier_default_leave_a_row_that_is_not_run(tmp_path):
    """After an edit of a method's file they were shown as its row, by a call of the other rows."""
    recorded = update(tmp_path, "seeds=[0,1]")
    path = path_of(tmp_path)
    for row in recorded["rows"]:
        row["runs"][1]["settings"] = "00000000"
    write_json(path, recorded)
    assert seeds(update(tmp_path, "seeds=[2]", "rows=[scpo]")) == [[0, 2], [0]]


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for experiment in ("ablation_order", "ablation_monotonicity"):
        matrix = expand(experiment, [f"machine.runs_dir={path}", "seeds=[0,1]"])
        for config in matrix.runs.values():
            run_config.ensure(config)
        manifest.update(path, matrix.manifest)
    return path


def count(runs_dir, *patterns):
    return len(manifest.select(runs_dir, patterns))


def test_a_pattern_means_runs_or_experiments(runs_dir):
    assert count(runs_dir, "*") == 6
    assert count(runs_dir, "*-s0-*") == 3
    assert count(runs_dir, "ablation_order") == 4
    assert count(runs_dir, "ablation_*") == 6
    assert count(runs_dir, "*chronological-s0-*", "*chronological-s1-*") == 2


def test_the_name_of_an_experiment_means_the_runs_of_all_its_calls(tmp_path, capsys):
    for overrides in (["trainer.steps=6"], ["trainer.steps=3"]):
        matrix = expand("ablation_order", [f"machine.runs_dir={tmp_path}", "seeds=[0]", *overrides])
        for config in matrix.runs.values():
            run_config.ensure(config)
        manifest.update(tmp_path, matrix.manifest)
    ((aside, others),) = manifest.other_names(tmp_path).items()
    assert (others, aside.startswith("ablation_order_")) == ({"ablation_order"}, True)
    assert (count(tmp_path, "ablation_order"), count(tmp_path, aside), count(tmp_path, "*_order")) == (4, 2, 4)

    assert sweeps.__main__.main(["cancel", "ablation_order", "--runs-dir", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert output.out.count(": cancelled") == 4
    said = " ".join(output.err.split())
    assert f"ablation_order: also the runs of calls with other overrides or rows, {aside}" in said

    assert sweeps.__main__.main(["retry", aside, "--runs-dir", str(tmp_path)]) == 0
    call = f"python sweep.py +experiment=ablation_order trainer.steps=6 'seeds=[0]' machine.runs_dir={tmp_path}"
    assert capsys.readouterr().out.count(f"with the same overrides: {call}\n") == 2


def test_the_experiment_that_was_typed_means_the_runs_of_its_axes(tmp_path, capsys):
    matrix = expand("one", [f"machine.runs_dir={tmp_path}", "seeds=[0]", "method=gigpo,grpo"])
    for config in matrix.runs.values():
        run_config.ensure(config)
    manifest.update(tmp_path, matrix.manifest)
    assert matrix.experiment.name == "one_by_method"
    assert [count(tmp_path, word) for word in ("one_by_method", "one", "+experiment=one")] == [2, 2, 2]
    assert sweeps.__main__.main(["status", "one", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_pattern_without_a_match_is_refused_with_what_there_is(runs_dir):
    with pytest.raises(
        ConfigError, match="matches 'ablatoin'; experiments there: ablation_monotonicity, ablation_order"
    ):
        manifest.select(runs_dir, ["ablatoin"])
    with pytest.raises(ConfigError, match=r"whole ids, with \* and \?; '\*tiny\*' matches alfworld-tiny-.* and 5 more"):
        manifest.select(runs_dir, ["tiny"])


def test_no_runs_at_all_are_no_mistake(tmp_path):
    assert manifest.select(tmp_path, ["*"]) == []


def test_a_missing_folder_is_distinguished_from_one_without_runs(tmp_path, monkeypatch, capsys):
    checkout = tmp_path / "checkout"  # the real one may have runs: `make demo` leaves some
    monkeypatch.setattr(sweeps.__main__, "REPOSITORY", checkout)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sweeps.__main__.main(["status"]) == 0
    assert sweeps.__main__.main(["status", "--runs-dir", "typo"]) == 2
    assert "there is no such folder" in capsys.readouterr().err

    update(checkout / "runs", "seeds=[0]")
    assert sweeps.__main__.main(["status"]) == 2
    assert f"those of the checkout: --runs-dir {checkout / 'runs'}" in capsys.readouterr().err


def test_a_call_that_takes_a_name_returns_the_renamed_record(tmp_path):
    update(tmp_path, "seeds=[0]", "trainer.steps=2")
    (path,) = manifest.manifest_paths(tmp_path)
    earlier = manifest.read(path)
    later = expand("ablation_monotonicity", ["seeds=[0]", "trainer.steps=3"]).manifest
    renamed = manifest.update(tmp_path, later)
    assert renamed is not None
    assert renamed.experiment == manifest.kept_as(tmp_path, earlier)
    assert manifest.update(tmp_path, later) is None


def test_a_damaged_record_of_an_earlier_call_is_set_aside_and_does_not_stop_a_sweep(tmp_path):
    update(tmp_path, "seeds=[0]")
    path = path_of(tmp_path)
    path.write_text("{")
    planned = expand("ablation_monotonicity", [f"machine.runs_dir={tmp_path}", "seeds=[1]"]).manifest
    (note,) = manifest.set_aside_damaged(tmp_path, planned)
    assert note.startswith(f"{path} is damaged: ")
    assert f"kept as {path.name}.damaged" in note
    assert "Delete" not in note
    assert path.with_name(f"{path.name}.damaged").read_text() == "{"
    assert seeds(update(tmp_path, "seeds=[1]"))[0] == [1]
    assert manifest.set_aside_damaged(tmp_path, planned) == []
    assert manifest.experiment_members(tmp_path)[1] == []
