import contextlib
import errno
import fcntl
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scpo.errors import ConfigError, PanelError, RecordError, RecordWriteError
from scpo.records import RunFolder, State, files, run_config, run_folders
from scpo.records.files import file_sum, is_locked, locked, write_yaml
from scpo.records.identity import identity
from scpo.records.run_folders import command_on
from scpo.records.status import JobState, Status
from sweeps.compose.configuration import compose_run


def compose(tmp_path, *words):
    return compose_run([f"machine.runs_dir={tmp_path}", *words])


def test_a_new_folder_holds_config_identity_and_a_pending_status(tmp_path):
    config = compose(tmp_path)
    folder = run_config.ensure(config)
    assert run_config.read_config(folder) == config
    assert folder.read_status().state is State.PENDING
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.yaml", "identity.yaml", "status.json"]
    assert [one.run_id for one in run_folders.list_runs(tmp_path)] == [folder.run_id]


def test_many_callers_make_one_whole_folder(tmp_path):
    config = compose(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(run_config.ensure, [config] * 16))
    assert {folder.path for folder in made} == set(tmp_path.iterdir())


def test_an_unfinished_run_takes_the_present_machine_settings_a_finished_one_does_not(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    run_config.ensure(compose(tmp_path, "machine.threads=3"))
    assert run_config.read_config(folder).machine.threads == 3
    folder.update_status(state=State.DONE)
    run_config.ensure(compose(tmp_path, "machine.threads=2"))
    assert run_config.read_config(folder).machine.threads == 3


def test_an_edited_config_is_refused_with_key_old_new_and_remedy(tmp_path):
    config = compose(tmp_path)
    folder = run_config.ensure(config)
    run_config.write_config(folder, config.model_copy(update={"seed": 7}))
    with pytest.raises(RecordError, match=r"seed is 7 in config\.yaml and 0 in identity\.yaml.*move .* away"):
        run_config.ensure(config)


def test_a_folder_that_is_no_run_is_refused_as_such(tmp_path):
    with pytest.raises(RecordError, match=r"is no run folder; `python -m sweeps status --runs-dir .*` lists those"):
        run_config.check(RunFolder(tmp_path))


def test_a_configuration_of_another_version_is_refused_with_what_to_do(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    text = folder.config.read_text().replace("theta: 0.6", "theta: of old")
    folder.config.write_text("".join(line for line in text.splitlines(keepends=True) if "# checksum" not in line))
    with pytest.raises(RecordError, match=r"shaper\.theta.*written by another version.*move the folder away"):
        run_config.check(folder)


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    config, other = compose(tmp_path), compose(tmp_path, "method.shaper.theta=0.5")
    folder, another = run_config.ensure(config), run_config.ensure(other)
    for name in ("config.yaml", "identity.yaml"):
        (folder.path / name).write_bytes((another.path / name).read_bytes())
    with pytest.raises(RecordError, match=r"theta is 0\.5 in identity\.yaml and 0\.6 in the configuration asked for"):
        run_config.ensure(config)
    with pytest.raises(RecordError, match=r"the folder is a copy, or it or its config\.yaml was changed"):
        run_config.check(folder)


def test_a_key_that_the_identity_lacks_is_named(tmp_path):
    config = compose(tmp_path)
    folder = run_config.ensure(config)
    hashed = identity(config)
    del hashed["trainer"]["loss"]
    write_yaml(folder.identity, hashed)
    with pytest.raises(RecordError, match=r"trainer\.loss is .* and None in identity\.yaml"):
        run_config.check(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RecordError, match=re.escape(f"no run folder {tmp_path / 'x'}")):
        run_config.check(run_folders.RunFolder(tmp_path / "x"))


def test_a_lock_is_held_once_and_let_go(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    folder.update_status(state=State.RUNNING)
    assert not run_folders.observe(folder).alive
    with locked(folder.lock) as first, locked(folder.lock) as second:
        assert (first, second) == (True, False)
        assert run_folders.observe(folder).alive
    assert not run_folders.observe(folder).alive


def look_after(change):
    """``is_locked``, but the run changes between the look at its status and that at its lock."""

    def look(path):
        change()
        return is_locked(path)

    return look


def test_a_run_that_ends_while_it_is_observed_is_not_lost(tmp_path, monkeypatch):
    folder = run_config.ensure(compose(tmp_path))
    folder.update_status(state=State.RUNNING)
    done = look_after(lambda: folder.update_status(state=State.DONE))
    monkeypatch.setattr(run_folders, "is_locked", done)
    assert run_folders.observe(folder).state is State.DONE


def test_a_run_that_starts_while_it_is_observed_is_not_lost(tmp_path, monkeypatch):
    folder = run_config.ensure(compose(tmp_path))
    # Of an attempt that was killed.
    folder.update_status(state=State.RUNNING, attempt=1)
    with contextlib.ExitStack() as held:

        def start_after_the_look(path):
            free = not is_locked(path)
            if free:
                held.enter_context(locked(path))
                folder.update_status(state=State.RUNNING, attempt=2)
            return not free

        monkeypatch.setattr(run_folders, "is_locked", start_after_the_look)
        assert run_folders.observe(folder).state is State.RUNNING


def test_a_look_at_a_lock_keeps_no_process_from_taking_it(tmp_path, monkeypatch):
    lock = tmp_path / "lock"
    lock.touch()
    with lock.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        monkeypatch.setattr(files.time, "sleep", lambda _: fcntl.flock(looked_at, fcntl.LOCK_UN))
        with locked(lock) as free:
            assert free


def test_a_run_on_another_host_counts_as_alive_unless_a_scheduler_knows_better(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    folder.update_status(state=State.RUNNING, host="elsewhere")
    assert run_folders.observe(folder).alive
    assert run_folders.observe(folder, JobState.ENDED).state == "LOST"


def test_a_machine_that_came_back_under_another_name_knows_its_own_runs(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    folder.update_status(state=State.RUNNING, host="the-container-before", boot=run_folders.boot_id())
    assert run_folders.observe(folder).state is State.LOST
    with locked(folder.lock):
        assert run_folders.observe(folder).alive


def test_a_folder_that_was_renamed_or_copied_is_refused(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    for name in (f"{folder.run_id}.bak", f"copy-of-{folder.run_id}"):
        copy = shutil.copytree(folder.path, tmp_path / name)
        with pytest.raises(RecordError, match=f"holds the run {folder.run_id}: the folder is a copy"):
            run_config.check(run_folders.RunFolder(copy))


def test_drafts_of_killed_processes_are_no_runs_and_a_run_without_status_is_one(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    shutil.copytree(folder.path, tmp_path / ".new-abc")
    folder.status.unlink()
    assert [one.run_id for one in run_folders.list_runs(tmp_path)] == [folder.run_id]


def test_only_the_owner_may_look_into_a_run_folder(tmp_path):
    assert stat.S_IMODE(run_config.ensure(compose(tmp_path)).path.stat().st_mode) == 0o700


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run-s0-12345678")


def test_panels_are_pinned_by_the_first_attempt(folder):
    panels = {"a": {"sha256": "1", "tasks": 3}, "b": {"sha256": "2", "tasks": 4}}
    folder.pin_panels(panels)
    folder.pin_panels(dict(reversed(panels.items())))
    with pytest.raises(PanelError, match=r"panel b of run .* was started with 2, now it is 3"):
        folder.pin_panels(panels | {"b": {"sha256": "3", "tasks": 4}})
    with pytest.raises(PanelError, match=r"panel b .* now it is absent"):
        folder.pin_panels({"a": panels["a"]})


def test_attempts_are_numbered_and_latest_points_to_the_newest(folder):
    folder.path.mkdir()
    for number in range(1, 12):
        folder.write_status(Status(state=State.PENDING, attempt=number - 1, steps=4))
        # Until it has begun, every process gets the same one.
        assert (folder.new_attempt(), folder.new_attempt()) == (number, number)
    folder.point_latest(1)
    folder.point_latest(11)
    assert folder.latest.resolve() == folder.attempt(11).resolve()


def test_a_checkpoint_counts_once_its_marker_is_there(folder):
    for step in (5, 10, 100000):
        folder.checkpoint(step).mkdir(parents=True)
    assert folder.complete_checkpoints() == []
    (folder.checkpoint(100000) / "COMPLETE").touch()
    (folder.checkpoint(5) / "COMPLETE").touch()
    assert folder.complete_checkpoints() == [5, 100000]


def test_half_a_checkpoint_is_none_to_go_on_from(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    assert not run_folders.observe(folder).checkpoint
    (folder.checkpoints / ".step_00002.tmp").mkdir(parents=True)
    assert not run_folders.observe(folder).checkpoint
    folder.checkpoint(2).mkdir()
    assert not run_folders.observe(folder).checkpoint
    folder.mark_complete(2, {}, {})
    assert run_folders.observe(folder).checkpoint


def unmarked(folder, *steps):
    for step in steps:
        folder.checkpoint(step).mkdir(parents=True)
        (folder.checkpoint(step) / "weights.bin").write_bytes(b"weights")


def test_a_local_checkpoint_without_its_marker_is_damage_and_is_kept(tmp_path):
    folder = run_config.ensure(compose(tmp_path))
    unmarked(folder, 0)
    (folder.checkpoints / ".step_00002.tmp").mkdir()
    lost = folder.lost_markers()
    assert str(lost).startswith(f"{folder.checkpoint(0)}/COMPLETE is lost: this checkpoint is damaged, and no other")
    folder.drop_half_checkpoints()
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step_00000"]
    with pytest.raises(RecordError, match="COMPLETE is lost"):
        next(folder.whole_checkpoints())


def test_one_checkpoint_of_verl_without_a_marker_may_be_half_and_two_have_lost_theirs(tmp_path):
    one, two, marked = (RunFolder(tmp_path / name) for name in ("one", "two", "marked"))
    unmarked(one, 5)
    unmarked(two, 5, 10)
    unmarked(marked, 5, 10)
    marked.mark_complete(5, {}, {})
    assert [folder.lost_markers() is None for folder in (one, two, marked)] == [True, False, True]
    for folder in (one, two, marked):
        folder.drop_half_checkpoints()
    assert not one.checkpoint(5).exists()
    assert two.checkpoint(5).exists()
    assert (marked.complete_checkpoints(), marked.checkpoint(10).exists()) == ([5], False)


def test_a_command_to_copy_names_a_folder_that_is_not_the_default_one():
    assert command_on(Path("runs"), "sweeps rm --finished", "a*") == "python -m sweeps rm --finished 'a*'"
    assert command_on(Path("../b k"), "sweeps status") == "python -m sweeps status --runs-dir '../b k'"


def test_of_a_large_checkpoint_a_glance_compares_the_sizes_only(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    weights = folder.checkpoint(4) / "weights.bin"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    folder.mark_complete(4, {weights.name: file_sum(weights)}, {})
    weights.write_bytes(b"Weights")
    assert "does not hold what was written" in folder.checkpoint_damage(4, at_a_glance=True)
    monkeypatch.setattr(run_folders, "READ_AT_A_GLANCE", 3)
    assert folder.checkpoint_damage(4, at_a_glance=True) is None
    assert "does not hold what was written" in folder.checkpoint_damage(4)
    weights.write_bytes(b"weight")
    assert "holds 6 bytes, not the 7" in folder.checkpoint_damage(4, at_a_glance=True)


def test_a_lock_of_another_account_is_named_with_its_owner_and_a_remedy(tmp_path, monkeypatch):
    (tmp_path / ".lock").touch()

    def refused(path, *, wait=False):
        raise RecordWriteError(errno.EACCES, f"cannot open the lock {path}: Permission denied")

    monkeypatch.setattr(run_folders, "locked", refused)
    monkeypatch.setattr(run_folders, "owner", lambda path: "anna")
    with pytest.raises(ConfigError) as caught, run_folders.driver_lock(tmp_path):
        pass
    assert str(caught.value).startswith(f"{tmp_path}/.lock belongs to anna, and only anna may lock it")
    assert f"chmod -R a+rX {tmp_path}" in str(caught.value)
    (tmp_path / ".lock").unlink()
    with pytest.raises(ConfigError, match="nothing can be written there"), run_folders.driver_lock(tmp_path):
        pass
