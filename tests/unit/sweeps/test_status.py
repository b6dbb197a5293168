import io
import json
import shutil
import threading
from pathlib import Path

import pytest
from rich.console import Console

from analysis.sources.run_records import read_runs
from scpo.errors import RecordError
from scpo.records import JsonLines, RunFolder, State, run_config, verify
from scpo.records.files import locked, write_json
from sweeps import __main__ as command_line
from sweeps import status
from sweeps.compose.configuration import compose_run
from sweeps.records import attempt
from tests.faults import fake_train
from tests.support import fake_runs as fake


def test_following_shows_the_end_and_what_comes_of_any_attempt_until_the_run_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(status, "LOG_POLL_S", 0.01)
    folder, out = fake.make_run(tmp_path), io.StringIO()
    first = folder.new_attempt()
    folder.attempt_log(first).write_text("one\ntwo\nthree\n")
    folder.point_latest(first)
    folder.update_status(state=State.RUNNING)
    console = Console(file=out, width=200)
    follower = threading.Thread(target=status.follow_logs, args=(console, [folder], 2))
    follower.start()
    fake.wait_until(lambda: "three" in out.getvalue())
    with folder.attempt_log(first).open("a") as log:
        log.write("four\nfi")
    fake.wait_until(lambda: "four" in out.getvalue())
    folder.update_status(attempt=first)
    second = folder.new_attempt()
    folder.attempt_log(second).write_text("again\n")
    folder.point_latest(second)
    fake.wait_until(lambda: "again" in out.getvalue())
    folder.update_status(state=State.DONE)
    follower.join(5)
    assert not follower.is_alive()
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["two", "three", "four", "again"]
    assert out.getvalue().startswith(f"{folder.run_id}  ")


def test_logs_end_with_the_reason_of_a_run_that_was_cut_off_unless_its_log_has_it(tmp_path, capsys):
    folder = fake.make_run(tmp_path)
    attempt = folder.new_attempt()
    folder.attempt_log(attempt).write_text("step 3\n")
    folder.point_latest(attempt)
    reason = "cut off by its time limit of 1 h 3 times without a further step"

    def last_line():
        assert command_line.main(["logs", "*", "--runs-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out.splitlines()[-1].strip()

    folder.update_status(state=State.RUNNING)
    assert last_line() == "step 3"
    folder.update_status(state=State.FAILED, reason=reason)
    assert last_line() == f"FAILED: {reason}"
    with folder.attempt_log(attempt).open("a") as log:
        log.write(f"{folder.run_id}: FAILED ({reason})\n")
    assert last_line().endswith(f"FAILED ({reason})")


def test_the_exit_status_of_status_tells_nothing_of_the_runs_as_the_help_says(tmp_path, capsys):
    fake.make_run(tmp_path).update_status(state=State.FAILED, reason="an error")
    assert command_line.main(["status", "--runs-dir", str(tmp_path)]) == 0
    assert "FAILED" in capsys.readouterr().out
    assert "`status` ends with 0 in whatever state runs are" in command_line.__doc__


def test_a_copied_renamed_or_changed_folder_is_damaged_and_not_the_run_that_it_looks_like(tmp_path, capsys):
    folder, other = fake.make_run(tmp_path), fake.make_run(tmp_path, "seed=1")
    copy = f"{folder.run_id[:-8]}00000000"
    shutil.copytree(folder.path, tmp_path / copy)
    shutil.copy(folder.config, other.config)
    assert command_line.main(["status", "--runs-dir", str(tmp_path)]) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith(" alfworld")}
    assert shown[folder.run_id].split()[1] == "PENDING"
    rows = {row.run_id: row for row in status.statuses(fake.folders(tmp_path), status.Observer(None))}
    for name in (copy, other.run_id):
        assert "DAMAGED" in shown[name]
        assert f"holds the run {folder.run_id}: the folder is a copy" in rows[name].remark
        assert rows[name].remark.endswith(f"Restore its name and files, or move it out of {tmp_path}")


LINKS = {
    "a run of the same folder": (lambda tmp_path, run: tmp_path / run, "the run {run} of the same folder", ""),
    "a run elsewhere": (
        lambda tmp_path, run: (tmp_path / run).rename(tmp_path.parent / "kept"),
        "the run {run} in {elsewhere}/kept",
        ", or give the link the run's name: `mv {runs}/best {runs}/{run}`",
    ),
}


@pytest.mark.parametrize(("target", "leads_to", "use"), LINKS.values(), ids=LINKS)
def test_of_a_link_to_a_run_only_the_link_is_to_be_removed(tmp_path, capsys, target, leads_to, use):
    """`status` called it a copy to delete, and `rm`, given that command, the folder that it leads to."""
    runs = tmp_path / "runs"
    folder = fake.make_run(runs)
    attempt.run(folder, fake_train.train)
    link = runs / "best"
    link.symlink_to(target(runs, folder.run_id))
    names = {"run": folder.run_id, "runs": runs, "elsewhere": tmp_path}
    answer = (
        f"{link} is a link to {leads_to.format(**names)}. No table, figure or sweep uses it under this name. Remove "
        f"the link only: `rm {link}`{use.format(**names)}"
    )
    (row,) = status.statuses([RunFolder(link)], status.Observer(None))
    assert (row.state, row.remark) == (State.DAMAGED, answer)
    assert verify.problems(RunFolder(link)) == [answer]
    assert [problem.reason for problem in read_runs(runs)[1] if problem.path == "best"] == [answer]
    capsys.readouterr()
    assert command_line.main(["health", "best", "--runs-dir", str(runs)]) == 1
    assert answer in " ".join(capsys.readouterr().out.split())
    assert command_line.main(["rm", "best", "--finished", "--yes", "--runs-dir", str(runs)]) == 1
    assert f"`rm {link}` removes the link only" in " ".join(capsys.readouterr().out.split())
    assert link.is_symlink()
    assert (link / "metrics.jsonl").exists()


def test_a_renamed_run_that_has_no_other_folder_is_to_get_its_name_back(tmp_path):
    """It was called a copy to delete, and may be the only one."""
    folder = fake.make_run(tmp_path)
    renamed = folder.path.rename(tmp_path / "best")
    (row,) = status.statuses([RunFolder(renamed)], status.Observer(None))
    assert row.state is State.DAMAGED
    assert f"the only folder of it in {tmp_path}: it was renamed, or its config.yaml was changed" in row.remark
    assert f"Restore its name (`mv {renamed} {folder.path}`) or its config.yaml" in row.remark
    assert verify.problems(RunFolder(renamed)) == [row.remark]


def test_a_link_under_a_runs_name_that_leads_nowhere_is_named_as_such(tmp_path, monkeypatch):
    """`verify` found no run folder, the dry run a new run, and `status` a lost config.yaml."""
    monkeypatch.chdir(tmp_path)
    folder = fake.make_run("runs")
    folder.path.rename("kept")
    folder.path.symlink_to(tmp_path / "kept")
    (row,) = status.statuses(fake.folders("runs"), status.Observer(None))
    assert (row.state, row.remark) == (State.PENDING, "")
    Path("kept").rename("gone")
    answer = (
        f"{folder.path} is a link to {tmp_path}/kept, which is not there. Bring it back (is its disk mounted?); or "
        f"remove the link, `rm {folder.path}`, to start the run again"
    )
    (row,) = status.statuses(fake.folders("runs"), status.Observer(None))
    assert (row.state, row.remark) == (State.DAMAGED, answer)
    assert verify.problems(folder) == [answer]
    with pytest.raises(RecordError, match=r"is a link to .*, which is not there"):
        run_config.ensure(compose_run([*fake.QUICK, "machine.runs_dir=runs"]))
    assert folder.path.is_symlink()


def test_rates_of_training_and_validation_are_apart_and_uncommitted_changes_are_said(tmp_path):
    folder = fake.make_run(tmp_path)
    lines = [
        {"step": 0, "val/valid_seen/success_rate": 0.02},
        {"step": 1, "train/success_rate": 0.1},
        {
            "step": 2,
            "train/success_rate": 0.3,
            "val/valid_seen/success_rate": 0.4,
            "val/valid_unseen/success_rate": 0.9,
        },
        {"step": 3, "train/success_rate": 0.2},
        {"step": 4, "train/success_rate": None, "val/valid_seen/success_rate": None},
    ]
    folder.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_json(folder.provenance, {"attempts": {"1": {"dirty": True}, "2": {"dirty": False}}})
    (row,) = status.statuses([folder], status.Observer(None))
    assert (row.train, row.validation, row.remark) == (0.2, 0.4, "")
    write_json(folder.provenance, {"attempts": {"1": {"dirty": False}, "2": {"dirty": True}}})
    (row,) = status.statuses([folder], status.Observer(None))
    assert row.remark == "uncommitted changes"


def test_what_a_killed_attempt_logged_is_not_of_the_present_one(tmp_path):
    folder = fake.make_run(tmp_path)
    for step, success in enumerate((0.1, 0.9, 0.0, 0.0, 0.0)):
        JsonLines(folder.metrics).append({"step": step, "train/success_rate": success})
        JsonLines(folder.timing).append({"step": step, "at": "2026-01-01T00:00:00+00:00"})
    folder.update_status(state=State.RUNNING, attempt=2, step=1)
    rules = tmp_path / "rules.yaml"
    rules.write_text("low: {kind: outside, metric: train/success_rate, low: 0.05, steps: 2, level: warn}\n")
    with locked(folder.lock):
        (row,) = status.statuses([folder], status.Observer(None))
        assert (row.step, row.train) == (1, 0.9)
        assert status.remarks_of(folder, live=True, rules=rules) == []
    folder.update_status(step=4)
    assert len(status.remarks_of(folder, live=False, rules=rules)) == 1


def test_validation_is_of_held_out_tasks_and_names_its_panel(tmp_path):
    """At mini scale the first panel is of the games that are trained on."""
    folder = fake.make_run(tmp_path)
    line = {"step": 0, "val/train_games/success_rate": 0.9, "val/valid_seen/success_rate": 0.3}
    folder.metrics.write_text(f"{json.dumps(line)}\n")
    (row,) = status.statuses([folder], status.Observer(None))
    assert (row.validation, row.panel) == (0.3, "valid_seen")
    console = Console(width=200, file=io.StringIO())
    status.show_statuses(console, [row])
    assert "30 % valid_seen" in console.file.getvalue()
    folder.metrics.write_text('{"step": 0, "val/train_games/success_rate": 0.9}\n')
    (row,) = status.statuses([folder], status.Observer(None))
    assert (row.validation, row.panel) == (0.9, "train_games")
