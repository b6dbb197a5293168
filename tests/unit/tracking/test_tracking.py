import builtins
import logging
import socket
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from scpo.errors import PanelError, RecordError
from scpo.tracking import JsonLines, RunFolder, State, Status, Tracker
from scpo.tracking.atomic import read_json, read_yaml, write_json, write_yaml
from scpo.tracking.jsonlines import to_line
from scpo.tracking.mirror import WandbMirror
from sweeps.compose.configuration import compose_run


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run-s0-12345678")


@pytest.fixture(scope="module")
def config():
    return compose_run(["wandb.mode=disabled", "trainer.steps=3"])


def mirrored(mode="online", **limits):
    words = [f"wandb.{name}={value}" for name, value in limits.items()]
    return compose_run([f"wandb.mode={mode}", *words])


def test_a_line_has_step_first_then_sorted_keys_and_floats_by_repr():
    record = {"b": np.float32(0.5), "a": 0.1 + 0.2, "step": np.int64(3), "c": float("nan"), "d": float("-inf")}
    assert to_line(record) == b'{"step": 3, "a": 0.30000000000000004, "b": 0.5, "c": null, "d": null}\n'


def test_a_line_refuses_what_is_no_number_or_text():
    with pytest.raises(TypeError, match="not list"):
        to_line({"step": 1, "x": [1]})


def test_a_torn_last_line_is_skipped_and_cut_off_by_the_next_append(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"step": 0}\n{"step": 1, "x": 0.')
    assert log.records() == [{"step": 0}]
    assert log.last() == {"step": 0}
    log.append({"step": 1})
    assert log.path.read_bytes() == b'{"step": 0}\n{"step": 1}\n'


def test_damage_before_the_last_line_is_named_with_its_line(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"step": 0}\n{"ste\n{"step": 2}\n')
    with pytest.raises(RecordError, match=r"log\.jsonl, line 2 is damaged"):
        log.records()
    log.path.write_bytes(b'{"step": 0}\n[1]\n')
    with pytest.raises(RecordError, match=r"line 2 .* integer `step`"):
        log.records()


def test_cutting_after_a_step_keeps_earlier_bytes_as_they_were(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    for step in range(4):
        log.append({"step": step, "x": step / 3})
    before = log.path.read_bytes().splitlines(keepends=True)
    log.replace(log.up_to(1))
    assert log.path.read_bytes() == b"".join(before[:2])
    log.append({"step": 2, "x": 2 / 3})
    assert log.path.read_bytes() == b"".join(before[:3])


def test_the_last_line_of_a_long_log_is_found_from_its_end(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b"".join(to_line({"step": step, "pad": "x" * 1000}) for step in range(200)))
    assert log.last()["step"] == 199


def test_json_and_yaml_come_back_as_they_were_written(tmp_path):
    value = {"b": [1, None, "−"], "a": {"x": 1e-05, "y": "3"}}
    write_yaml(tmp_path / "x.yaml", value)
    assert read_yaml(tmp_path / "x.yaml") == value
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.yaml"]


def test_json_refuses_nan_and_keeps_the_old_file(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert read_json(tmp_path / "x.json") == {"a": 1}


def test_the_status_refuses_unknown_keys_and_names_a_missing_file(folder):
    with pytest.raises(ValidationError, match="extra"):
        Status(state=State.PENDING, steps=3, mood="fine")
    with pytest.raises(RecordError, match=r"status\.json: No such file"):
        folder.read_status()


def test_the_tracker_logs_both_files_and_the_status(folder, config):
    folder.write_status(Status(state=State.RUNNING, steps=3))
    with Tracker(folder, config) as tracker:
        tracker.log(0, {"val/valid_seen/success_rate": 0.5}, {"step_s": 1.5})
        tracker.log(1, {"train/success_rate": 0.25}, {"step_s": 2.5})
    assert JsonLines(folder.metrics).records()[1] == {"step": 1, "train/success_rate": 0.25}
    timing = JsonLines(folder.timing).records()[0]
    assert timing.keys() == {"step", "at", "host", "step_s"}
    assert folder.read_status().step == 1


def test_the_tracker_goes_on_only_from_where_it_is_told(folder, config):
    with Tracker(folder, config) as tracker:
        for step in range(3):
            tracker.log(step, {"x": step}, {})
    with Tracker(folder, config) as tracker:
        with pytest.raises(RecordError, match=r"step 1 after step 2.*resume_at"):
            tracker.log(1, {}, {})
        tracker.resume_at(0)
        tracker.log(1, {"x": 1}, {})
    assert [one["step"] for one in JsonLines(folder.metrics).records()] == [0, 1]
    with Tracker(folder, config) as tracker:
        tracker.resume_at(-1)
        tracker.log(0, {}, {})
    assert [one["step"] for one in JsonLines(folder.timing).records()] == [0]


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
    assert [folder.new_attempt() for _ in range(11)][-1] == 11
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


class FakeRun:
    """What wandb.init returns, on a server that we cannot have here."""

    def __init__(self, fail_on=None):
        self.fail_on, self.logged, self.finished = fail_on, [], None
        self.url, self.summaries, self.alerts = "https://wandb.example/run", {}, []
        self.entity, self.project, self.id, self.sweep_id = "me", "scpo", "run", None

    def define_metric(self, name, summary):
        self.summaries[name] = summary

    def alert(self, title, text):
        self.alerts.append(title)

    def log(self, values, step):
        if self.fail_on == "log":
            raise ConnectionError("server gone\nwith details")
        self.logged.append((step, values))

    def finish(self, exit_code):
        if self.fail_on == "finish":
            threading.Event().wait(20)
        self.finished = exit_code


@pytest.fixture
def fake_wandb(monkeypatch):
    def install(init):
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init, Settings=dict))

    return install


def test_the_mirror_sends_steps_id_group_and_config(folder, fake_wandb):
    run, called = FakeRun(), {}
    folder.path.mkdir(parents=True)
    fake_wandb(lambda **kwargs: called.update(kwargs) or run)
    mirror = WandbMirror(folder, mirrored())
    mirror.log(5, {"a": 1.0, "b": float("nan")})
    mirror.finish()
    assert run.logged == [(5, {"a": 1.0})]
    assert run.finished == 0
    assert (called["id"], called["resume"], called["group"]) == (folder.run_id, "allow", "run")
    assert "machine" not in called["config"]


def test_a_variable_of_wandb_that_is_not_read_is_said(folder, fake_wandb, caplog, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    folder.path.mkdir(parents=True)
    fake_wandb(lambda **_: FakeRun())
    WandbMirror(folder, mirrored()).finish()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["WANDB_RUN_ID"]


def raise_in_init(**_):
    raise ConnectionError("no server\nwith details")


def hang_in_init(**_):
    threading.Event().wait(20)


@pytest.mark.parametrize(
    ("init", "warning"),
    [
        (raise_in_init, "no server. Training goes on"),
        (hang_in_init, "did not finish within 0.2 s"),
        (lambda **_: FakeRun("log"), "server gone. Training goes on"),
        (lambda **_: FakeRun("finish"), "did not finish within 0.2 s"),
    ],
)
def test_whatever_wandb_does_is_one_warning_and_no_delay(folder, fake_wandb, caplog, init, warning):
    fake_wandb(init)
    mirror = WandbMirror(folder, mirrored(finish_timeout_s=0.2))
    for step in range(3):
        mirror.log(step, {"a": 1.0})
    mirror.finish()
    assert [warning in record.message for record in caplog.records] == [True]


def test_without_wandb_installed_there_is_one_note(folder, monkeypatch, caplog):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "wandb":
            raise ImportError("No module named 'wandb'")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with caplog.at_level(logging.INFO):
        mirror = WandbMirror(folder, mirrored())
        mirror.log(0, {"a": 1.0})
        mirror.finish()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "not installed" in caplog.text


def test_the_offline_mirror_writes_a_wandb_folder_beside_the_logs_without_code_command_and_machine(folder, monkeypatch):
    pytest.importorskip("wandb", reason="needs wandb: make setup")
    monkeypatch.setattr(socket, "gethostname", lambda: "planted-host")
    monkeypatch.setattr(sys, "argv", ["planted-script.py", "planted-argument"])
    folder.path.mkdir()
    config = mirrored("offline")
    machine = config.machine.model_copy(update={"cache_dir": "/planted/cache"})
    with Tracker(folder, config.model_copy(update={"machine": machine})) as tracker:
        tracker.log(0, {"a": 1.0}, {})
    (sent,) = folder.path.glob("wandb/offline-run-*/*.wandb")
    files = [sent, *(path for path in (sent.parent / "files").rglob("*") if path.is_file())]
    assert [path.name for path in files[1:]] == ["requirements.txt"]
    assert not any(b"planted" in path.read_bytes() for path in files)
    assert str(Path(__file__).parents[3]).encode() not in sent.read_bytes()
