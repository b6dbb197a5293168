import contextlib
import shutil

import pytest

from scpo.errors import UnreadableError
from scpo.records import RunFolder, State, run_config
from scpo.records.files import locked
from scpo.records.status import Observed
from sweeps import __main__ as command_line
from sweeps import housekeeping, mounts
from sweeps.compose.configuration import compose_run
from sweeps.launchers.slurm.job_records import Job, write_job
from sweeps.records.reconcile import Action, reconcile
from tests.support.damage import without_permission
from tests.support.fake_slurm import FakeJob, FakeSlurm
from tests.support.run_records import write_experiment


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs in several states, in the folder runs/ of the working directory."""
    monkeypatch.chdir(tmp_path)
    made = {}
    for seed, state in enumerate((State.DONE, State.FAILED, State.INTERRUPTED, State.FAILED)):
        folder = run_config.ensure(compose_run([f"seed={seed}"]))
        folder.update_status(state=state)
        made[state if state not in made else "second"] = folder
    return made


def names(runs):
    return {key for key, folder in runs.items() if folder.path.exists()}


def answering(monkeypatch, answer):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    return asked


def while_asked(monkeypatch, change):
    """Answer yes, after this change to the runs."""

    def answer(_question):
        change()
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)


def test_clean_asks_and_deletes_only_failed_runs(runs, monkeypatch, capsys):
    asked = answering(monkeypatch, "y")
    assert command_line.main(["clean"]) == 0
    assert asked == ["Delete 2 run folders? [y/N] "]
    assert names(runs) == {State.DONE, State.INTERRUPTED}
    assert [path.name for path in runs[State.DONE].path.parent.iterdir() if path.name.startswith(".")] == []
    assert "2 run folders deleted" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["", "n", "no"])
def test_without_a_yes_nothing_is_deleted(runs, monkeypatch, answer):
    answering(monkeypatch, answer)
    assert command_line.main(["clean"]) == 0
    assert len(names(runs)) == 4


def test_the_end_of_the_input_is_no(runs, monkeypatch, capsys):
    """Ctrl-D ended in a traceback."""

    def end(_question):
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", end)
    assert command_line.main(["clean"]) == 0
    assert "nothing was deleted" in capsys.readouterr().out
    assert len(names(runs)) == 4


def test_without_a_terminal_nothing_is_deleted_unless_told(runs, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert command_line.main(["clean"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert len(names(runs)) == 4
    assert command_line.main(["clean", "--dry-run"]) == 0
    assert len(names(runs)) == 4
    assert command_line.main(["clean", "--yes"]) == 0
    assert names(runs) == {State.DONE, State.INTERRUPTED}


def test_a_finished_run_is_deleted_only_when_told(runs, capsys):
    pattern = runs[State.DONE].run_id
    assert command_line.main(["rm", pattern, "--yes"]) == 1
    assert "--finished deletes it too" in capsys.readouterr().out
    assert len(names(runs)) == 4
    assert command_line.main(["rm", pattern, "--yes", "--finished"]) == 0
    assert State.DONE not in names(runs)


def test_a_named_run_that_is_kept_is_exit_status_1_whatever_is_answered_for_the_others(runs, monkeypatch):
    patterns = [runs[State.DONE].run_id, runs[State.FAILED].run_id]
    for answer, left in (("n", 4), ("y", 3)):
        answering(monkeypatch, answer)
        assert command_line.main(["rm", *patterns, "--dry-run"]) == 1
        assert command_line.main(["rm", *patterns]) == 1
        assert len(names(runs)) == left
    answering(monkeypatch, "n")
    assert command_line.main(["rm", runs["second"].run_id]) == 0


def test_a_run_folder_that_is_a_link_is_kept_and_the_others_are_deleted(runs, tmp_path, capsys):
    """It was renamed, could not be deleted, and looked as if the run had never begun."""
    linked = runs[State.FAILED].path
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    assert command_line.main(["clean", "--yes"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    kept = f"{linked.name} is kept: it is a link to {tmp_path}/elsewhere, which may be the only copy of its run: "
    assert f"{kept}`rm {linked}` removes the link only" in said
    assert names(runs) == {State.DONE, State.INTERRUPTED, State.FAILED}
    assert command_line.main(["rm", linked.name, "--yes", "--finished"]) == 1
    assert linked.is_symlink()
    assert (linked / "status.json").exists()


def test_a_link_that_an_earlier_deletion_left_is_in_nobodys_way(runs, tmp_path):
    folder = runs[State.FAILED]
    (tmp_path / "elsewhere").mkdir()
    folder.path.with_name(f".removed-{folder.run_id}").symlink_to(tmp_path / "elsewhere")
    assert command_line.main(["rm", folder.run_id, "--yes"]) == 0
    assert (tmp_path / "elsewhere").is_dir()
    assert not list(folder.path.parent.glob(".removed-*"))


def mount(path, monkeypatch, tmp_path):
    """Let the kernel's list name this folder as a mount, as for `mount --bind`."""
    written = str(path.resolve()).replace("\\", "\\134").replace(" ", "\\040")
    line = "{} 1 8:1 /other {} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    (tmp_path / "mountinfo").write_text(line.format(20, "/") + line.format(21, written))
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")


@pytest.mark.parametrize("place", ["", "data", "a/my data"])
def test_a_run_folder_with_a_mount_is_kept_whole_and_the_others_are_deleted(runs, tmp_path, monkeypatch, capsys, place):
    """The content of the mounted folder was deleted, and the rest was hidden from all commands."""
    folder = runs[State.FAILED]
    mounted = folder.path / place
    mounted.mkdir(parents=True, exist_ok=True)
    (mounted / "precious").touch()
    before = sorted(folder.path.rglob("*"))
    mount(mounted, monkeypatch, tmp_path)
    kept = f"{folder.run_id} is kept: it holds a mounted folder {mounted}: unmount it first"
    for words, code in (
        (["rm", folder.run_id, "--dry-run"], 1), (["rm", folder.run_id, "--yes"], 1), (["clean", "--dry-run"], 0),
        (["clean", "--yes"], 0),
    ):  # fmt: skip
        assert command_line.main(words) == code
        assert kept in capsys.readouterr().out
        assert sorted(folder.path.rglob("*")) == before
    assert names(runs) == {State.DONE, State.FAILED, State.INTERRUPTED}


def test_a_folder_that_is_mounted_while_the_user_is_asked_is_kept(runs, tmp_path, monkeypatch, capsys):
    folder = runs[State.FAILED]
    while_asked(monkeypatch, lambda: mount(folder.path, monkeypatch, tmp_path))
    assert command_line.main(["rm", folder.run_id]) == 1
    assert "holds a mounted folder" in capsys.readouterr().out
    assert folder.status.exists()


@pytest.mark.parametrize("command", [["clean"], ["rm"], ["rm", "--finished"]], ids=" ".join)
@pytest.mark.parametrize("change", [{"state": State.DONE}, {"step": 9, "attempt": 2}], ids=["finished", "went on"])
def test_a_run_that_changes_while_the_user_is_asked_is_kept(runs, monkeypatch, capsys, command, change):
    folder = runs[State.FAILED]
    while_asked(monkeypatch, lambda: folder.update_status(**change))
    assert command_line.main([*command, folder.run_id, runs["second"].run_id]) == 1
    printed = capsys.readouterr().out
    assert f"{folder.run_id} is kept: it has changed since it was listed" in " ".join(printed.split())
    assert "1 run folder deleted" in printed
    assert names(runs) == {State.DONE, State.INTERRUPTED, State.FAILED}


def test_a_run_that_is_submitted_again_while_the_user_is_asked_is_kept(runs, monkeypatch, capsys):
    folder = runs[State.FAILED]
    slurm = FakeSlurm()
    monkeypatch.setattr(housekeeping, "Slurm", lambda: slurm)

    def submit():
        write_job(folder, Job(name="table", index=None, job_id="7", limit_s=3600, warn_s=60, max_timeouts=3))
        slurm.queue["7"] = FakeJob("table", folder)

    while_asked(monkeypatch, submit)
    assert command_line.main(["rm", folder.run_id]) == 1
    assert "is kept: it has changed since it was listed, and is QUEUED now" in capsys.readouterr().out
    assert folder.status.exists()


@pytest.mark.parametrize("spoilt", ["status.json", "job.json"])
def test_a_damaged_run_whose_job_waits_is_kept(runs, monkeypatch, capsys, spoilt):
    folder = runs[State.FAILED]
    slurm = FakeSlurm()
    monkeypatch.setattr(housekeeping, "Slurm", lambda: slurm)
    write_job(folder, Job(name="table", index=None, job_id="7", limit_s=3600, warn_s=60, max_timeouts=3))
    slurm.queue["7"] = FakeJob("table", folder)
    (folder.path / spoilt).write_text("{")
    assert command_line.main(["rm", "--finished", "--yes", folder.run_id]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert ("`scancel 7` first" if spoilt == "status.json" else "a job of it may still be in the queue") in said
    assert folder.path.exists()
    if spoilt == "status.json":
        del slurm.queue["7"]
    else:
        folder.job.unlink()
    assert command_line.main(["rm", "--finished", "--yes", folder.run_id]) == 0
    assert not folder.path.exists()


def test_a_run_that_another_process_deletes_while_the_user_is_asked_is_gone(runs, monkeypatch, capsys):
    folder = runs[State.FAILED]
    while_asked(monkeypatch, lambda: shutil.rmtree(folder.path))
    assert command_line.main(["rm", folder.run_id, runs["second"].run_id]) == 1
    assert f"{folder.run_id} is gone" in capsys.readouterr().out
    assert names(runs) == {State.DONE, State.INTERRUPTED}


def test_a_run_that_changes_after_the_second_look_is_kept(runs, monkeypatch, capsys):
    folder = runs[State.FAILED]
    look = housekeeping._look

    def late(folders):
        seen = look(folders)
        folder.update_status(state=State.DONE)
        return seen

    while_asked(monkeypatch, lambda: monkeypatch.setattr(housekeeping, "_look", late))
    assert command_line.main(["clean", folder.run_id]) == 1
    assert "is kept: its records have just changed" in capsys.readouterr().out
    assert folder.read_status().state is State.DONE


def test_a_lock_that_cannot_be_opened_keeps_its_run_only(runs, capsys):
    folder = runs[State.FAILED]
    # A folder in its place, as tests may run as root, who may open every file.
    folder.lock.unlink(missing_ok=True)
    folder.lock.mkdir()
    assert command_line.main(["rm", folder.run_id, runs["second"].run_id, "--yes"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{folder.run_id} is kept: " in printed
    assert "cannot open the lock" in printed
    assert "1 run folder deleted" in printed
    assert names(runs) == {State.DONE, State.INTERRUPTED, State.FAILED}


def test_without_a_list_of_mounts_the_device_number_shows_one(runs, tmp_path, monkeypatch, capsys):
    folder = runs[State.FAILED]
    (folder.path / "a" / "data").mkdir(parents=True)
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    monkeypatch.setattr(mounts, "_device", lambda path: 2 if path.name == "data" else 1)
    assert command_line.main(["rm", folder.run_id, "--yes"]) == 1
    assert f"holds a mounted folder {folder.path}/a/data" in capsys.readouterr().out
    assert command_line.main(["rm", runs["second"].run_id, "--yes"]) == 0


def test_clean_names_and_deletes_what_an_interrupted_removal_has_left(runs, tmp_path, monkeypatch, capsys):
    folder = runs[State.FAILED]
    rest = folder.path.with_name(f".removed-{folder.run_id}")
    (rest / "data").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    link = folder.path.with_name(".removed-other-s1-00000000")
    link.symlink_to(tmp_path / "elsewhere")
    assert command_line.main(["clean", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"{rest}  left by a removal that was interrupted" in said
    assert "2 run folders and 2 rests of an interrupted removal would be deleted" in said
    assert rest.exists()

    mount(rest / "data", monkeypatch, tmp_path)
    assert command_line.main(["clean", "--yes", folder.run_id]) == 0
    assert f"{rest} is kept: it holds a mounted folder {rest}/data: unmount it first" in capsys.readouterr().out
    assert command_line.main(["rm", "--yes", folder.run_id]) == 1
    assert (folder.path.exists(), (rest / "data").exists(), link.is_symlink()) == (True, True, True)

    (tmp_path / "mountinfo").write_text("")
    assert command_line.main(["clean", "--yes"]) == 0
    assert "2 run folders and 2 rests of an interrupted removal deleted" in capsys.readouterr().out
    assert not list(folder.path.parent.glob(".removed-*"))
    assert (tmp_path / "elsewhere").is_dir()


def test_a_deletion_that_fails_names_the_run_and_what_is_left(runs, capsys, monkeypatch):
    folder = runs[State.FAILED]

    def busy(path):
        raise OSError(16, "Device or resource busy", "data")

    monkeypatch.setattr("shutil.rmtree", busy)
    assert command_line.main(["rm", folder.run_id, "--yes"]) == 1
    output = capsys.readouterr()
    rest = folder.path.with_name(f".removed-{folder.run_id}")
    assert (
        f"{folder.run_id} is deleted in part, data cannot be (Device or resource busy); the rest is in {rest}, and "
        "`python -m sweeps clean` deletes it"
    ) in " ".join((output.out + output.err).split())


def test_what_is_left_in_a_folder_that_may_not_be_written_can_be_deleted_as_it_says(runs, capsys):
    folder = runs[State.FAILED]
    kept = folder.path / "checkpoints"
    kept.mkdir()
    (kept / "weights").touch()
    rest = folder.path.with_name(f".removed-{folder.run_id}")
    kept.chmod(0o500)
    with without_permission():
        assert command_line.main(["rm", folder.run_id, "--yes"]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert f"`chmod -R u+w {rest}`, then `python -m sweeps clean` deletes it" in said
        (rest / "checkpoints").chmod(0o700)
        assert command_line.main(["clean", "--yes"]) == 0
    assert not rest.exists()


def test_a_record_of_an_experiment_of_which_no_run_is_left_is_named(runs, capsys):
    runs_dir = runs[State.DONE].path.parent
    for name, states in (("gone", (State.FAILED, "second")), ("partly", (State.FAILED, State.DONE))):
        planned = [{"id": runs[state].run_id, "env": "alfworld", "model": "tiny", "seed": 0} for state in states]
        write_experiment(runs_dir, {"scpo": planned}, name=name)
    assert command_line.main(["rm", runs[State.FAILED].run_id, "--yes"]) == 0
    assert "is left" not in capsys.readouterr().out
    assert command_line.main(["rm", runs["second"].run_id, "--yes"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "experiments/gone.json is left, a record of runs that are all deleted" in said
    assert "delete this file to drop its rows" in said
    assert "partly" not in said


def test_a_run_that_a_process_holds_is_kept(runs):
    folder: RunFolder = runs[State.FAILED]
    with locked(folder.lock) as held:
        assert held
        assert command_line.main(["rm", folder.run_id, "--yes"]) == 1
    assert folder.path.exists()


def test_a_run_with_unreadable_records_stops_no_command_and_goes_only_when_told(runs, capsys):
    damaged = runs[State.INTERRUPTED]
    damaged.status.write_text("{")
    assert command_line.main(["clean", "--yes"]) == 0
    assert names(runs) == {State.DONE, State.INTERRUPTED}
    assert command_line.main(["rm", damaged.run_id, "--yes"]) == 1
    assert "may be finished: --finished deletes it too" in capsys.readouterr().out
    assert command_line.main(["rm", damaged.run_id, "--yes", "--finished"]) == 0
    assert names(runs) == {State.DONE}


def test_a_finished_run_with_damaged_logs_is_not_called_finished(runs, capsys):
    damaged = runs[State.DONE]
    damaged.metrics.write_text("{}\n")
    assert command_line.main(["rm", damaged.run_id, "--yes"]) == 1
    assert "it has damaged records and may be finished: --finished deletes it too" in capsys.readouterr().out
    assert command_line.main(["rm", damaged.run_id, "--yes", "--finished"]) == 0
    assert "DAMAGED" in capsys.readouterr().out


COMMANDS = (
    ["status"], ["verify"], ["logs", "*"], ["logs", "-f", "*"], ["rm", "--yes", "--finished", "*"], ["clean", "--yes"],
    ["health"], ["sync"],
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_runs_folder_of_another_user_is_named_and_not_taken_for_an_empty_one(runs, words, capsys):
    with without_permission(runs[State.DONE].path.parent):
        assert command_line.main(words) == 2
    said = capsys.readouterr().err.replace("\n", "")
    assert said.startswith("error: cannot read runs: permission denied (owner ")
    assert said.endswith("for permission: chmod -R a+rX runs")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_run_of_another_user_is_named_and_neither_damaged_nor_absent_nor_deleted(runs, words, capsys):
    """`verify` said of it "is damaged ... Delete it", and `status` left it out."""
    runs[State.INTERRUPTED].update_status(state=State.FAILED)
    folder = runs[State.DONE]
    with without_permission(folder.path):
        command_line.main(words)
    assert folder.path.exists()
    output = capsys.readouterr()
    said = " ".join((output.out + output.err).split())
    assert folder.run_id in said
    assert "permission denied" in said
    assert "damaged" not in said.lower()
    assert "elete " not in said
    if words == ["status"]:
        assert "4 runs: 3 FAILED, 1 UNREADABLE" in said
    if words == ["verify"]:
        assert "4 runs, 1 problem" in said


@pytest.mark.parametrize("spoil", ["damaged", "unreadable"])
def test_a_run_that_cannot_be_read_keeps_no_other_from_being_cancelled(runs, capsys, spoil):
    """`cancel` ended at it, and the runs after it trained on."""
    first, *others = sorted(runs.values(), key=lambda folder: folder.run_id)
    with contextlib.ExitStack() as stack:
        if spoil == "damaged":
            first.status.write_text("")
        else:
            stack.enter_context(without_permission(first.path))
        assert command_line.main(["cancel", "*"]) == 1
    assert f"{first.run_id} may go on: " in " ".join(capsys.readouterr().out.split())
    (interrupted,) = [folder for folder in others if folder is runs[State.INTERRUPTED]]
    assert interrupted.read_status().state is State.CANCELLED


def test_a_sweep_leaves_a_run_of_another_user(runs, capsys):
    folder = runs[State.DONE]
    with without_permission(folder.path):
        seen = command_line.Observer(None)
        with pytest.raises(UnreadableError, match="permission denied"):
            seen.observe(folder)
        (decision,) = reconcile([folder.run_id], {folder.run_id: Observed(State.UNREADABLE)}, 3).values()
    assert (decision.action, decision.why) == (Action.LEAVE, "UNREADABLE; you have no permission to read it")
