"""Records cut at every byte, or on a full disk: the last good state, or an error that names the file."""

import errno
import json
import os
import shutil

import pytest

from scpo.errors import ConfigError, RecordError, RecordWriteError
from scpo.records import JsonLines, run_config
from scpo.records.files import read_json, write_json
from scpo.records.run_folders import driver_lock
from sweeps.__main__ import main
from sweeps.records import attempt as entry
from tests.faults import fake_train
from tests.support import fake_runs as fake
from tests.support.small_disks import NoMountsError, fill, half_a_checkpoint, read_only, small_disk


@pytest.fixture
def folder(tmp_path):
    made = fake.make_run(tmp_path)
    made.pin_panels({"valid_seen": {"sha256": "ab" * 32, "tasks": 140}})
    write_json(made.provenance, {"attempts": {"1": {"commit": None, "packages": {"numpy": "2.0"}}}})
    return made


READERS = {
    "status.json": lambda folder: folder.read_status(),
    "config.yaml": run_config.read_config,
    "identity.yaml": run_config.check,
    "panels.json": lambda folder: folder.read_panels(),
    "provenance.json": lambda folder: read_json(folder.provenance),
}


@pytest.mark.parametrize("name", READERS)
def test_a_record_cut_at_any_byte_reads_as_before_or_names_itself(folder, name):
    path, read = folder.path / name, READERS[name]
    before = read(folder)
    for size in reversed(range(path.stat().st_size)):
        os.truncate(path, size)
        try:
            assert read(folder) == before
        except RecordError as error:
            assert str(path) in str(error)  # noqa: PT017 (one loop over bytes: some cuts read well, most raise)


def test_a_log_cut_at_any_byte_gives_its_whole_lines_and_can_be_continued(tmp_path):
    log = JsonLines(tmp_path / "metrics.jsonl")
    for step in range(3):
        log.append({"step": step, "value": step / 3})
    log.close()
    whole = log.path.read_bytes()
    for size in range(len(whole) + 1):
        log.path.write_bytes(whole[:size])
        kept = whole[:size].count(b"\n")
        assert [record["step"] for record in log.records()] == list(range(kept))
        log.append({"step": kept, "value": kept / 3})
        log.close()
        assert [record["step"] for record in log.records()] == list(range(kept + 1))


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_old_version_and_is_reported(folder, monkeypatch):
    before = folder.read_status()
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(RecordWriteError, match=r"status\.json .* bytes needed, \d+ free.*No space left.*is intact"):
        folder.update_status(step=3)
    monkeypatch.undo()
    assert folder.read_status() == before
    assert not list(folder.path.glob(".*.tmp"))


def test_a_line_that_does_not_fit_leaves_no_trace_in_the_log(tmp_path, monkeypatch):
    log = JsonLines(tmp_path / "metrics.jsonl")
    log.append({"step": 0})
    write = os.write

    def half_then_full(descriptor, data):
        return write(descriptor, data[:5]) if len(data) > 10 else no_space()

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(RecordWriteError, match=r"metrics\.jsonl"):
        log.append({"step": 1})
    monkeypatch.undo()
    assert log.path.read_bytes() == b'{"step": 0}\n'
    log.append({"step": 1})
    assert [record["step"] for record in log.records()] == [0, 1]


@pytest.fixture
def disk(tmp_path):
    """A small disk of the test's own."""
    try:
        with small_disk(tmp_path / "disk") as path:
            yield path
    except NoMountsError as error:
        pytest.skip(str(error))


def test_a_run_on_a_disk_that_fills_up_fails_with_the_reason_and_goes_on_once_there_is_room(disk):
    folder = fake.make_run(disk)
    filler = fill(disk)
    code, output = fake.finish(fake.start("fake_train.py", folder.path))
    assert code != 0
    assert "No space left on device" in output
    assert run_config.read_config(folder) == run_config.check(folder)
    filler.unlink()
    assert fake.finish(fake.start("fake_train.py", folder.path))[0] == 0
    assert fake.steps(folder) == [0, 1, 2, 3, 4]


def test_what_a_killed_process_left_of_a_checkpoint_makes_room_on_a_full_disk(disk):
    folder = fake.make_run(disk, "trainer.checkpoint_every=1")
    process = fake.start("fake_train.py", folder.path, step_s=0.3)
    fake.wait_until(lambda: len(folder.complete_checkpoints()) >= 2)
    process.kill()
    process.communicate()
    kept = folder.complete_checkpoints()
    half_a_checkpoint(folder.checkpoints, 3, 4 << 20)
    fill(disk)
    assert shutil.disk_usage(disk).free == 0
    code, output = fake.finish(fake.start("fake_train.py", folder.path))
    assert (code, fake.steps(folder)) == (0, [0, 1, 2, 3, 4])
    assert ".step_00003.tmp was never completed; it is removed" in output
    assert not list(folder.checkpoints.glob(".step_*"))
    assert set(kept) <= set(folder.complete_checkpoints())


def test_a_sweep_over_a_read_only_disk_names_how_to_get_its_tables(disk):
    """It ended with "cannot open the lock", also where all runs were finished."""
    with read_only(disk):
        code, output = fake.finish(fake.start_sweep(disk, "seeds=[0]"))
        with pytest.raises(ConfigError, match="nothing can be written there"), driver_lock(disk):
            pass
    assert code == 2
    assert f"machine.runs_dir={disk}: nothing can be written there (Read-only file system)" in " ".join(output.split())
    assert f"`python -m analysis figures --runs-dir {disk}`" in " ".join(output.split())
    with driver_lock(disk) as held:
        assert held


def test_runs_on_a_read_only_disk_are_shown_and_a_start_is_refused_with_the_reason(disk, capsys):
    done, waiting = fake.make_run(disk, "seed=0"), fake.make_run(disk, "seed=1")
    assert fake.finish(fake.start("fake_train.py", done.path))[0] == 0
    with read_only(disk):
        assert main(["status", "--json", f"--runs-dir={disk}"]) == 0
        assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["DONE", "PENDING"]
        assert main(["verify", f"--runs-dir={disk}"]) == 0
        with pytest.raises(RecordWriteError, match=r"cannot open the lock .*: Read-only file system"):
            entry.run(waiting, fake_train.train)
    assert entry.run(waiting, fake_train.train) == entry.EXIT_DONE
