"""The registry of launchers: one more is a file and a line."""

import io

import pytest
from rich.console import Console

from scpo.errors import ConfigError
from scpo.records import State
from sweeps import dispatch
from sweeps.compose.matrix import expand
from sweeps.launchers.base import LAUNCHERS, open_launcher
from tests.support import fake_runs as fake

ECHO = """
from scpo.records import State
from scpo.stop_signals import CountsSignals
from sweeps.launchers.run_process import Outcome

def make_launcher(configs, train_script, console):
    return Echo()

class Echo(CountsSignals):
    detached, poll_s, free = False, 0.0, 1

    def __init__(self):
        super().__init__()
        self.started = {}

    def check(self, configs):
        return 1

    def preview(self, console, configs):
        console.print(f"would echo {len(configs)} runs")

    def start(self, runs, title):
        for run_id, (folder, config) in runs.items():
            folder.update_status(state=State.DONE, step=config.trainer.steps, reason=config.launcher.voice)
            self.started[run_id] = Outcome(State.DONE)
        return []

    def poll(self):
        ended, self.started = self.started, {}
        return ended

    def stop(self):
        pass
"""


@pytest.fixture
def words(tmp_path, monkeypatch):
    (tmp_path / "echo_launcher.py").write_text(ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(LAUNCHERS, "echo", "echo_launcher")
    runs_dir = f"machine.runs_dir={tmp_path / 'runs'}"
    return [*fake.QUICK, runs_dir, "launcher.name=echo", "+launcher.voice=loud", "seeds=[0,1]"]


def test_a_new_launcher_is_a_file_and_a_line(words, tmp_path):
    out = io.StringIO()
    matrix = expand("one", words)
    assert dispatch.dispatch(Console(file=out, width=200), matrix, tmp_path / "train.py") == 0
    statuses = [one.read_status() for one in fake.folders(tmp_path / "runs")]
    assert [(one.state, one.reason) for one in statuses] == [(State.DONE, "loud")] * 2
    assert "2 runs: 2 DONE" in out.getvalue()


def test_a_name_that_is_not_registered_is_refused_before_a_folder_is_made(words, tmp_path):
    matrix = expand("one", [*words, "launcher.name=ecko"])
    with pytest.raises(ConfigError, match=r"launcher\.name=ecko: unknown launcher; allowed: local, slurm, echo"):
        dispatch.dispatch(Console(file=io.StringIO()), matrix, tmp_path / "train.py")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("launcher", ["local", "slurm_a800x4"])
def test_each_shipped_launcher_has_what_the_protocol_asks(launcher):
    config = fake.compose_run([*fake.QUICK, f"launcher={launcher}"])
    made = open_launcher([config], fake.FAULTS / "fake_train.py", Console(file=io.StringIO()))
    names = ("detached", "poll_s", "signals", "free", "check", "preview", "start", "poll", "stop")
    assert [name for name in names if not hasattr(made, name)] == []
    assert made.detached == (launcher != "local")
