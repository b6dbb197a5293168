import re
import shutil

import pytest

from scpo.errors import RecordError
from scpo.records import State, manifest, run_config, verify
from scpo.records.files import file_sum, read_json, write_json
from scpo.records.manifest import Manifest, PlannedRow, PlannedRun
from scpo.records.run_folders import CHECKPOINT_MARKER
from sweeps import __main__ as cli
from sweeps.launchers.slurm.observer import Observer
from sweeps.records import attempt as entry
from sweeps.records.process import EXIT_DONE
from sweeps.status import statuses
from tests.faults import fake_train
from tests.support import fake_runs as fake


@pytest.fixture
def folder(tmp_path):
    made = fake.make_run(tmp_path)
    entry.run(made, fake_train.train)
    return made


def test_a_finished_and_a_new_run_have_no_problems(folder, tmp_path):
    assert not verify.problems(folder)
    assert not verify.problems(fake.make_run(tmp_path, "seed=1"))


def test_a_file_among_the_samples_that_the_run_did_not_write_is_a_remark(folder):
    before = verify.remarks(folder)
    folder.diagnostics.mkdir(exist_ok=True)
    (folder.diagnostics / "mine.json").write_text("{}")
    assert not verify.problems(folder)
    (remark,) = [remark for remark in verify.remarks(folder) if remark not in before]
    assert remark.startswith(f"{folder.run_id}: diagnostics/mine.json: not written by the run")
    folder.update_status(state=State.INTERRUPTED)
    assert not any("mine.json" in remark for remark in verify.remarks(folder))


def test_runs_of_a_record_that_cannot_be_read_are_not_called_in_no_experiment(folder, tmp_path, capsys):
    record = manifest.manifest_path(tmp_path, "one", "mini")
    record.parent.mkdir()
    record.write_text("{")
    assert cli.main(["verify", "--runs-dir", str(tmp_path)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"in no experiment whose record could be read (1 record could not, see above): {folder.run_id}" in told
    assert "in no experiment:" not in told


def lose_a_line(folder):
    folder.metrics.write_bytes(b"".join(folder.metrics.read_bytes().splitlines(keepends=True)[:-1]))


def repeat_a_line(folder):
    folder.metrics.write_bytes(folder.metrics.read_bytes() + folder.metrics.read_bytes().splitlines(keepends=True)[-1])


def lose_lines_of_an_unfinished_run(folder):
    folder.update_status(state=State.INTERRUPTED)
    lose_a_line(folder)


def give_the_newest_checkpoint_the_marker_of_another_step(folder):
    path = folder.checkpoint(folder.complete_checkpoints()[-1]) / CHECKPOINT_MARKER
    write_json(path, {**read_json(path), "step": 1})


def newest_weights(folder):
    """Give the newest checkpoint, which holds a marker only, a file."""
    step = folder.complete_checkpoints()[-1]
    path = folder.checkpoint(step) / "weights.bin"
    path.write_bytes(b"weights")
    folder.mark_complete(step, {path.name: file_sum(path)}, {})
    assert not verify.problems(folder)
    return path


def change_a_byte_of_the_newest_checkpoint(folder):
    path = newest_weights(folder)
    path.write_bytes(b"Weights")


BREAKS = {
    "a lost line": (lose_a_line, "says DONE, but .* ends at step 3 of 4"),
    "a repeated line": (repeat_a_line, "steps do not ascend"),
    "lines behind a checkpoint": (
        lose_lines_of_an_unfinished_run,
        "ends at step 3, and .* says 4: lines were lost",
    ),
    "a marker of another step": (
        give_the_newest_checkpoint_the_marker_of_another_step,
        "COMPLETE is of step 1, its folder of step 4: this checkpoint is damaged",
    ),
    "a changed byte in a checkpoint": (
        change_a_byte_of_the_newest_checkpoint,
        r"checkpoints/step_00004: weights.bin does not hold what was written \(sha256\): this checkpoint is damaged",
    ),
    "a lost file of a checkpoint": (
        lambda f: newest_weights(f).unlink(),
        r"cannot be read \(No such file or directory\): this checkpoint is damaged. Restore its .*finished run do not",
    ),
    "an edited config": (
        lambda f: run_config.write_config(f, run_config.read_config(f).model_copy(update={"seed": 9})),
        "seed is 9",
    ),
    "a damaged timing log": (lambda f: f.timing.write_text("{\n"), r"timing\.jsonl, line 1 is damaged"),
    "a cut status": (lambda f: f.status.write_text("{"), r"status\.json is damaged"),
    "no attempts": (lambda f: write_json(f.provenance, {}), "no valid record of attempts"),
}


@pytest.mark.parametrize(("breaks", "message"), BREAKS.values(), ids=BREAKS)
def test_damage_is_reported_with_its_file(folder, breaks, message):
    breaks(folder)
    (problem,) = verify.problems(folder)
    assert re.search(message, problem), problem


LOGS_WITH_RESULTS = ("metrics.jsonl", "status.json")
FILES = (
    "code.json", "config.yaml", "identity.yaml", "job.json", "metrics.jsonl", "provenance.json", "status.json",
    "stop.json", "timing.jsonl", "wandb.json", "diagnostics/validation_step_00004.json.gz", "checkpoints/step_00004",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_of_a_finished_run_no_damaged_file_is_a_reason_to_delete_it(folder, name):
    """The advice was to delete the run, for a figure's sample or the record of its job, too."""
    path = folder.path / name
    if name.startswith("diagnostics"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"sample")
        folder.note_sums({name: file_sum(path)})
    path = path / CHECKPOINT_MARKER if name.startswith("checkpoints") else path
    path.write_bytes(b"{")
    found = [*verify.problems(folder), *verify.remarks(folder)]
    assert found
    for problem in found:
        assert path.name in problem
        assert not re.search(r"rm --finished|[Dd]elete the run|[Dd]elete \S*" + folder.run_id + r"(?!/)", problem), (
            problem
        )
        assert re.search("from a copy|[Rr]estore it|Delete it if the scheduler|Delete it, or cancel", problem), problem
        whole = name not in (*LOGS_WITH_RESULTS, "wandb.json")
        assert ("The run is finished, and its metrics.jsonl is whole" in problem) == whole, problem


def test_a_lost_record_of_the_code_is_reported_of_a_finished_run_and_a_damaged_one_keeps_the_run(folder):
    """Lost, it was a problem with a checkpoint only; damaged, the run was to be deleted."""
    for path in folder.checkpoints.iterdir():
        shutil.rmtree(path)
    folder.code.write_bytes(b"{")
    (problem,) = verify.problems(folder)
    assert "No result depends on it. Restore it from a copy, or move the file away: the run then has no " in problem
    assert problem.endswith("The run is finished, and its metrics.jsonl is whole")
    with pytest.raises(RecordError, match=r"code\.json is damaged"):
        verify.check_usable(folder, State.DONE)
    folder.code.rename(folder.path.parent / "code.json")
    verify.check_usable(folder, State.DONE)
    lost = (
        "no code.json (lost, or the run is older than this record): tables cannot compare its code with that of other "
        "runs; restore it from a copy"
    )
    assert verify.problems(folder) == [f"{folder.path}: {lost}. The run is finished, and its metrics.jsonl is whole"]
    (row,) = statuses([folder], Observer(None))
    assert (row.state, row.remark.removesuffix("; uncommitted changes")) == (State.DONE, lost)
    folder.update_status(state=State.INTERRUPTED)
    (row,) = statuses([folder], Observer(None))
    assert "code.json" not in row.remark


def test_a_lost_record_of_attempts_of_a_stopped_run_is_named_and_the_run_goes_on(folder, caplog):
    """Nothing named it: the record of the resumed run began with the second attempt."""
    folder.update_status(state=State.INTERRUPTED)
    shutil.rmtree(folder.checkpoint(4))
    assert verify.problems(folder) == []
    folder.provenance.unlink()
    lost = (
        "has checkpoints but no provenance.json, the record of the commit, packages, machine and weights of each "
        "attempt: it was deleted. Restore it; a run that goes on records its later attempts only"
    )
    assert verify.problems(folder) == [f"{folder.path} {lost}"]
    (row,) = statuses([folder], Observer(None))
    assert (row.state, row.remark) == (State.INTERRUPTED, lost)

    assert entry.run(folder, fake_train.train) == EXIT_DONE
    assert f"{folder.provenance} is lost: it had commit, packages, machine and weights of the earlier" in caplog.text
    assert read_json(folder.provenance)["attempts"].keys() == {"2"}
    assert verify.problems(folder) == []

    caplog.clear()
    folder.update_status(state=State.INTERRUPTED)
    shutil.rmtree(folder.checkpoints)
    folder.provenance.unlink()
    assert verify.problems(folder) == []
    entry.run(folder, fake_train.train)
    assert "is lost" not in caplog.text


def test_damaged_lines_after_the_checkpoint_of_a_stopped_run_are_a_remark(folder):
    """`status` and `verify` called the run damaged and advised to give it up; a sweep resumed it."""
    folder.update_status(state=State.INTERRUPTED)
    lines = folder.metrics.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:-1], lines[-1].replace(b'"step": 4', b'"step": 5')])
    folder.metrics.write_bytes(damaged)
    (problem,) = verify.problems(folder)
    assert "does not hold what the run has written" in problem
    assert verify.rewritten(folder, State.INTERRUPTED) is None

    shutil.rmtree(folder.checkpoint(4))
    expected = (
        "metrics.jsonl is damaged after step 2: the run goes on from the checkpoint of that step and writes those "
        "lines again"
    )
    assert verify.problems(folder) == []
    assert verify.remarks(folder) == [f"{folder.run_id}: {expected}"]
    (row,) = statuses([folder], Observer(None))
    assert row.state is State.INTERRUPTED
    assert expected in row.remark
    entry.run(folder, fake_train.train)
    assert folder.read_status().state is State.DONE
    assert verify.problems(folder) == []
    assert folder.metrics.read_bytes() == b"".join(lines)

    folder.update_status(state=State.INTERRUPTED)
    folder.metrics.write_bytes(damaged)
    for step in folder.complete_checkpoints():
        shutil.rmtree(folder.checkpoint(step))
    assert verify.rewritten(folder, State.INTERRUPTED) is None


def test_a_damaged_sample_is_only_missing_in_figures(folder):
    name = "diagnostics/validation_step_00004.json.gz"
    folder.diagnostics.mkdir(exist_ok=True)
    (folder.path / name).write_bytes(b"sample")
    folder.note_sums({name: file_sum(folder.path / name)})
    (folder.path / name).write_bytes(b"Sample")
    assert verify.problems(folder) == [
        f"{folder.path / name} does not hold what was written (sha256). Figures are made without it; no metric or "
        "result depends on it. Restore it from a copy, or, if you need it, move the run folder away and run it again. "
        "The run is finished, and its metrics.jsonl is whole"
    ]


def test_runs_of_one_setting_on_different_panels_are_a_conflict(tmp_path):
    folder = fake.make_run(tmp_path)
    other = fake.make_run(tmp_path, "seed=1")
    folder.pin_panels({"valid_seen": {"sha256": "aa", "tasks": 3}})
    other.pin_panels({"valid_seen": {"sha256": "bb", "tasks": 3}})
    elsewhere = fake.make_run(tmp_path, "env.horizon=9")
    elsewhere.pin_panels({"valid_seen": {"sha256": "cc", "tasks": 3}})
    (conflict,) = verify.panel_conflicts([folder, other, elsewhere])
    assert (
        conflict == f"{other.run_id}: panel valid_seen is not the one of {folder.run_id}, whose settings are the same"
    )


def test_runs_that_no_manifest_names_are_listed(tmp_path):
    folders = [fake.make_run(tmp_path, f"seed={seed}") for seed in (0, 1)]
    runs = (PlannedRun(id=folders[0].run_id, env="alfworld", model="tiny", seed=0),)
    row = PlannedRow(name="scpo", label="SCPO", runs=runs)
    manifest.update(tmp_path, Manifest(experiment="ablation", title="A", scale="mini", rows=(row,)))
    assert verify.without_experiment(tmp_path, folders) == [folders[1].run_id]
