import io
import shutil
import threading

from rich.console import Console

from scpo.records import State
from sweeps import __main__ as command_line
from sweeps import status
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
    second = folder.new_attempt()
    folder.attempt_log(second).write_text("again\n")
    folder.point_latest(second)
    fake.wait_until(lambda: "again" in out.getvalue())
    folder.update_status(state=State.DONE)
    follower.join(5)
    assert not follower.is_alive()
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["two", "three", "four", "again"]
    assert out.getvalue().startswith(f"{folder.run_id}  ")


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
        assert f"python -m sweeps rm --finished {name}" in rows[name].remark
