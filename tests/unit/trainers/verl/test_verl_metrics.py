"""verl's metrics in our records, and its checkpoints in our run folder."""

import threading

import numpy as np
import pytest

from scpo.diagnostics.validation_episodes import episode_metrics, validation_metrics
from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.trainers.verl import checkpoints
from scpo.trainers.verl.checkpoints import Sealing, mark_complete, newest, verl_folder
from scpo.trainers.verl.verl_metrics import (
    of_panel,
    record_what_is_logged,
    rollout_metrics,
    split_metrics,
    without_samples,
)
from scpo.trainers.verl.verl_rows import read_rows
from tests.support.damage import flip_a_bit
from tests.support.step_batches import make_batch
from tests.support.verl_rows import step_rows, verl_batch

BATCH = make_batch((0, 0, "a b", 10.0), (0, 1, "a", 0.0), (1, 2, "b", 10.0), (1, 3, "a b a", 0.0))


def read(padding=(), panel="train"):
    fields, flags = verl_batch(step_rows(BATCH), BATCH.position_N, padding)
    for field in fields:
        field["scpo"]["panel"] = panel
    return fields, flags


def test_what_depends_on_the_machine_is_kept_apart_and_words_are_dropped():
    learned, took = split_metrics(
        {
            "actor/pg_loss": np.float32(0.5),
            "timing_s/step": 3,
            "perf/mfu/actor": 0.1,
            "note": "x",
            "credit/steps": 12.0,
            "scpo/pairs_truncated": 0.5,
        }
    )
    assert learned == {"actor/pg_loss": 0.5, "credit/steps": 12.0}
    assert took == {"timing_s/step": 3.0, "perf/mfu/actor": 0.1, "scpo/pairs_truncated": 0.5}


def test_a_step_is_counted_without_our_own_samples():
    took = {"timing_s/step": 10.0, "timing_s/diagnostics": 2.5, "timing_s/gen": 4.0}
    assert without_samples(took) == {**took, "timing_s/step": 7.5}
    assert without_samples({"timing_s/step": 10.0}) == {"timing_s/step": 10.0}


def test_rollouts_are_counted_without_padding_and_padding_beside():
    rows = read_rows(*read(padding=(1, 3, 5)), episodes=4)
    metrics = rollout_metrics(rows, rows.trajectories)
    assert (metrics["train/rows"], metrics["train/rows_padded"], metrics["train/episodes"]) == (
        7.0,
        3.0,
        4.0,
    )
    assert (metrics["train/success_rate"], metrics["train/episode_length"]) == (0.5, 7 / 4)


def test_validation_tells_panels_and_families_apart_by_the_names_of_the_local_trainer():
    fields, flags = read(panel="valid_seen")
    more, more_flags = read(panel="probe")
    rows = read_rows(fields + more, flags + more_flags, episodes=8)
    played = of_panel(rows, "valid_seen").trajectories
    metrics = validation_metrics({"valid_seen": played})
    expected = episode_metrics(played, by_family=True)
    assert metrics == {f"val/valid_seen/{name}": value for name, value in expected.items()}
    assert metrics["val/valid_seen/episodes"] == 4.0
    assert metrics["val/valid_seen/task/success_rate"] == 0.5


class Heard:
    def __init__(self):
        self.calls = []

    def log(self, data, step):
        self.calls.append(("log", step))


def test_a_step_is_recorded_after_verl_logged_it():
    heard = Heard()
    record_what_is_logged(heard, lambda metrics, step: heard.calls.append(("ours", step, metrics)))
    heard.log(data={"a": 1}, step=4)
    assert heard.calls == [("log", 4), ("ours", 4, {"a": 1})]


def checkpoint(folder, step, content="weights"):
    path = verl_folder(folder, step) / "actor"
    path.mkdir(parents=True)
    (path / "model.pt").write_text(content)


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        checkpoint(folder, step)
        mark_complete(folder, step, {}, keep=2)
    assert folder.complete_checkpoints() == [2, 3]
    assert newest(folder) == 3
    assert verl_folder(folder, 3).name == "global_step_3"


def test_a_checkpoint_that_was_cut_off_is_removed_and_one_with_another_bit_passed_over(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        checkpoint(folder, step)
        mark_complete(folder, step, {}, keep=2)
    checkpoint(folder, 3)
    flip_a_bit(verl_folder(folder, 2) / "actor" / "model.pt", -1)
    assert newest(folder) == 1
    assert not folder.checkpoint(3).exists()


def test_checksums_are_computed_while_training_goes_on_and_a_checkpoint_counts_only_with_them(tmp_path, monkeypatch):
    """Hashed in the loop, a 7B checkpoint held the GPUs for 15 to 90 s."""
    folder, hashing, go_on = RunFolder(tmp_path), threading.Event(), threading.Event()
    real = checkpoints.folder_sums

    def slow_sums(path, leave_out):
        hashing.set()
        assert go_on.wait(60)
        return real(path, leave_out=leave_out)

    monkeypatch.setattr(checkpoints, "folder_sums", slow_sums)
    sealing = Sealing(folder, keep=1)
    checkpoint(folder, 1)
    sealing.start(1, {})  # comes back at once: the next rollout begins
    assert hashing.wait(60)
    assert folder.complete_checkpoints() == []
    go_on.set()
    assert sealing.wait() >= 0
    assert folder.complete_checkpoints() == [1]
    assert newest(folder) == 1
    assert sealing.wait() == 0


def test_an_older_checkpoint_stays_until_the_next_one_has_its_checksums(tmp_path, monkeypatch):
    folder, go_on = RunFolder(tmp_path), threading.Event()
    real = checkpoints.folder_sums
    sealing = Sealing(folder, keep=1)
    checkpoint(folder, 1)
    sealing.start(1, {})
    sealing.wait()
    monkeypatch.setattr(checkpoints, "folder_sums", lambda path, leave_out: go_on.wait(60) and real(path, leave_out))
    checkpoint(folder, 2)
    sealing.start(2, {})
    assert folder.complete_checkpoints() == [1]
    go_on.set()
    sealing.wait()
    assert folder.complete_checkpoints() == [2]


def test_checksums_that_cannot_be_computed_stop_the_run_at_the_next_checkpoint(tmp_path, monkeypatch):
    def unreadable(path, leave_out):
        raise OSError("Input/output error")

    monkeypatch.setattr(checkpoints, "folder_sums", unreadable)
    sealing = Sealing(RunFolder(tmp_path), keep=1)
    sealing.start(1, {})
    with pytest.raises(OSError, match="Input/output"):
        sealing.wait()


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        verl_folder(folder, step).mkdir(parents=True)
        (verl_folder(folder, step) / "weights").write_bytes(b"weights")
        mark_complete(folder, step, {}, keep=2)
        (verl_folder(folder, step) / "weights").write_bytes(b"weight")
    with pytest.raises(RecordError, match=r"step_00002: global_step_2/weights holds 6 bytes.*no other one is whole"):
        newest(folder)


def test_a_run_without_checkpoints_starts_at_the_beginning(tmp_path):
    assert newest(RunFolder(tmp_path)) is None
