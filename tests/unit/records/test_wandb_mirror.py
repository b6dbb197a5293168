import builtins
import logging
import os
import socket
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from scpo.errors import ConfigError
from scpo.records import RunFolder, State, manifest, run_config
from scpo.records.health import read_rules
from scpo.records.identity import run_id, settings_digest
from scpo.records.manifest import Manifest, PlannedRow, PlannedRun
from scpo.records.tracker import Tracker
from scpo.records.wandb_mirror import WandbMirror, group_of, init_settings, keep_address, unheeded, url_of
from sweeps.compose.configuration import compose_run
from tests.support import fake_runs as fake


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("alfworld-tiny-scpo-s0-4c541560", "alfworld-tiny-scpo"),
        ("alfworld-tiny-scpo-theta0.4-s12-4c541560", "alfworld-tiny-scpo-theta0.4"),
        ("alfworld-tiny-scpo-no_monotonicity-s0-4c541560", "alfworld-tiny-scpo-no_monotonicity"),
    ],
)
def test_ablations_are_groups_of_their_own(name, group):
    config = compose_run([])
    assert group_of(name, config) == f"{group}-{settings_digest(config)}"


def test_a_group_holds_the_seeds_of_one_setting_and_no_other_setting():
    same = [compose_run(["method=scpo", f"seed={seed}"]) for seed in (0, 1)]
    others = [compose_run(["method=scpo", word]) for word in ("scorer=lexical", "trainer.optimizer.learning_rate=0.1")]
    assert len({group_of(run_id(config), config) for config in same}) == 1
    assert len({group_of(run_id(config), config) for config in (*same, *others)}) == 3


def written(**known):
    """What is kept of a ``wandb.Run``."""
    usual = {
        "offline": False,
        "url": "https://wandb.example/x",
        "entity": "me",
        "project": "scpo",
        "id": "x",
        "sweep_id": None,
    }
    return SimpleNamespace(**(usual | known))


def test_tags_are_scale_benchmark_method_experiments_and_rows(tmp_path):
    folder = fake.make_run(tmp_path)
    run = PlannedRun(id=folder.run_id, env="alfworld", model="tiny", seed=0)
    row = PlannedRow(name="scpo", label="SCPO", runs=(run,))
    manifest.update(tmp_path, Manifest(experiment="ablation", title="Ablation", scale="mini", rows=(row,)))
    folder.update_status(commit="abc")
    said = init_settings(folder, run_config.read_config(folder))
    assert said["tags"] == ["mini", "alfworld", "scpo", "ablation", "ablation:scpo"]
    assert (said["job_type"], said["config"]["commit"], said["id"]) == ("train", "abc", folder.run_id)


def test_a_run_of_wandb_agent_stays_in_its_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "x")
    folder = fake.make_run(tmp_path)
    said = init_settings(folder, run_config.read_config(folder))
    assert [said[name] for name in ("project", "entity", "id", "resume")] == [None] * 4  # its variables say it
    assert said["name"] == folder.run_id


def test_a_run_of_a_sweep_goes_on_there_without_the_agent(tmp_path):
    folder = fake.make_run(tmp_path)
    keep_address(folder, written(project="demo", id="abc", sweep_id="x"), "online")
    said = init_settings(folder, run_config.read_config(folder))
    assert [said[name] for name in ("project", "entity", "id", "resume")] == ["demo", "me", "abc", "allow"]
    keep_address(folder, written(id=folder.run_id), "offline")
    assert init_settings(folder, run_config.read_config(folder))["project"] == "scpo"


def test_wandbs_variables_are_honoured_what_is_typed_wins_and_a_wrong_one_is_refused(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert (compose_run([]).wandb.mode, compose_run([]).wandb.project) == ("disabled", "mine")
    assert compose_run(["wandb.mode=offline"]).wandb.mode == "offline"
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    with pytest.raises(ConfigError, match=r"wandb.mode: got 'dryrun'"):
        compose_run([])


def test_group_job_type_and_tags_may_come_from_wandbs_variables_and_what_may_not_is_said(tmp_path, monkeypatch):
    folder = fake.make_run(tmp_path)
    for name, value in (("RUN_GROUP", "mine"), ("JOB_TYPE", "probe"), ("TAGS", "a, b"), ("NAME", "x"), ("DIR", "/y")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    said = init_settings(folder, run_config.read_config(folder))
    assert (said["group"], said["job_type"], said["tags"][-2:]) == ("mine", "probe", ["a", "b"])
    assert (said["name"], said["dir"]) == (folder.run_id, str(folder.path))
    assert unheeded() == ["WANDB_NAME", "WANDB_DIR"]
    monkeypatch.setenv("WANDB_SWEEP_ID", "x")  # the agent sets id and folder itself
    assert unheeded() == []


def test_the_url_is_kept(tmp_path):
    folder = RunFolder(tmp_path)
    assert url_of(folder) is None
    keep_address(folder, written(), "online")
    assert url_of(folder) == "https://wandb.example/x"


def test_an_offline_run_is_not_asked_for_its_url_which_would_print_a_warning(tmp_path):
    class OfflineRun:
        offline, entity, project, id, sweep_id = True, "me", "scpo", "x", None

        @property
        def url(self):
            raise AssertionError("asked")

    keep_address(RunFolder(tmp_path), OfflineRun(), "offline")
    assert url_of(RunFolder(tmp_path)) is None


def test_a_remark_of_health_is_logged_once_and_stops_the_run_where_the_rules_require_it(tmp_path, monkeypatch, caplog):
    rule = read_rules()["no_active_groups"].model_copy(update={"steps": 2, "level": "stop"})
    monkeypatch.setattr("scpo.records.health.read_rules", lambda: {"no_active_groups": rule})
    folder = fake.make_run(tmp_path)
    with Tracker(folder, run_config.read_config(folder)) as tracker:
        for step in range(1, 5):
            tracker.log(step, {"credit/active_groups": 0.0}, {})
    assert caplog.text.count("health: no_active_groups at step 2") == 1
    assert folder.read_stop().state is State.CANCELLED
    assert "no_active_groups at step 2" in folder.read_stop().reason
    with Tracker(folder, run_config.read_config(folder)) as tracker:
        tracker.log(5, {"credit/active_groups": 0.0}, {})
    assert caplog.text.count("health: no_active_groups") == 1


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run-s0-12345678")


def mirrored(mode="online", **limits):
    words = [f"wandb.{name}={value}" for name, value in limits.items()]
    return compose_run([f"wandb.mode={mode}", *words])


class FakeRun:
    """What wandb.init returns, on a server that we cannot have here."""

    def __init__(self, fail_on=None):
        self.fail_on, self.logged, self.finished = fail_on, [], None
        self.offline, self.url, self.summaries, self.alerts = False, "https://wandb.example/run", {}, []
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
    def setup():
        return types.SimpleNamespace(settings=types.SimpleNamespace(base_url="https://wandb.example"))

    def install(init):
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init, Settings=dict, setup=setup))

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
    assert (called["id"], called["resume"], called["group"]) == (
        folder.run_id,
        "allow",
        f"run-{settings_digest(mirrored())}",
    )
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


def test_an_offline_run_takes_user_and_password_out_of_the_servers_address(folder, monkeypatch):
    """wandb's own telemetry sent them to the server."""
    pytest.importorskip("wandb", reason="needs wandb: make setup")
    monkeypatch.setenv("WANDB_BASE_URL", "http://me:quiet-horse-9@127.0.0.1:9")
    folder.path.mkdir()
    with Tracker(folder, mirrored("offline")) as tracker:
        tracker.log(0, {"a": 1.0}, {})
    assert os.environ["WANDB_BASE_URL"] == "http://127.0.0.1:9"


def test_the_offline_mirror_writes_a_wandb_folder_without_code_command_and_machine(folder, monkeypatch):
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
