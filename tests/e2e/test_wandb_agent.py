"""A W&B sweep: the real `wandb agent`, wandb and train.py; the server is ours, and the training counts its steps."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scpo.records import RunFolder, State, run_config
from scpo.records.identity import read_configuration
from scpo.records.wandb_mirror import group_of
from scpo.strict import MACHINE_SECTIONS
from sweeps.compose.overrides import CONF
from tests.support import counted_training
from tests.support.wandb_server import KEY, serve

pytest.importorskip("wandb", reason="needs wandb: make setup")

DOCUMENT = CONF.parent / "docs" / "live.md"
PROGRAM = Path(counted_training.__file__)
# The agent asks for work every five seconds; the tests cannot wait for that. All else of it is as it is.
IMPATIENT = "from wandb.wandb_agent import Agent; Agent.POLL_INTERVAL = 0.2; from wandb.cli.cli import cli; cli()"


STEPS = 300
ARGUMENTS = {"method": {"value": "scpo"}, "method.shaper.theta": {"value": 0.4}, "seed": {"value": 1}}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """One agent, whose run the server stops once it hears of it; then the run goes on without the agent."""
    folder = tmp_path_factory.mktemp("agent")
    with serve() as server:
        server.sweep = documented_sweep()
        command = server.sweep.pop("command")
        server.sweep["command"] = [*command, f"machine.runs_dir={folder / 'runs'}", f"trainer.steps={STEPS}"]
        server.commands = [
            {"type": "run", "run_id": "given1", "program": str(PROGRAM), "args": ARGUMENTS},
            lambda states: {"type": "stop", "run_id": "given1"} if server.streamed else None,
            lambda states: None if states else {"type": "exit"},
        ]
        said = run([sys.executable, "-c", IMPATIENT, "agent", "me/demo/xyz"], server, folder, FAKE_STEP_S="0.05")
        (path,) = (folder / "runs").glob("*-s1-*")
        state = RunFolder(path).read_status().state
        said += run([sys.executable, str(PROGRAM), str(path)], server, folder)
    return server, RunFolder(path), state, said


def documented_sweep():
    """The sweep that docs/live.md shows."""
    (text,) = re.findall(r"```yaml\n(program: .*?)```", DOCUMENT.read_text(), re.DOTALL)
    return yaml.safe_load(text)


def run(words, server, folder, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "HOME": str(folder), **variables}
    environment["PATH"] = (
        f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the sweep's command begins with python
    )
    environment["WANDB_X_STATS_SAMPLING_INTERVAL"] = "0.5"  # of system metrics; 15 s else
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_a_run_is_in_the_agents_sweep_under_our_name(swept):
    server, folder, _, said = swept
    assert list(server.written) == ["given1"], said
    first = server.written["given1"][0]
    assert (first["entity"], first["project"], first["sweep"]) == ("me", "demo", "xyz")
    assert (first["displayName"], first["jobType"]) == (folder.run_id, "train")
    assert first["groupName"] == group_of(folder.run_id, run_config.read_config(folder))


def test_the_whole_configuration_is_there_where_parameters_replaced_a_part_of_it(swept):
    server, folder, *_ = swept
    sent = {key: part["value"] for key, part in json.loads(server.written["given1"][0]["config"]).items()}
    assert (sent["method"], sent["method.shaper.theta"]) == ("scpo", 0.4)
    run_id, configuration, commit = read_configuration(sent, "given1")
    assert run_id == folder.run_id
    config = run_config.read_config(folder)
    assert configuration == config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))
    assert config.method.shaper.theta == 0.4
    assert commit == folder.read_status().commit


def test_a_run_that_the_sweep_stops_is_checkpointed_and_goes_on_in_it(swept):
    server, folder, state, said = swept
    assert state is State.INTERRUPTED, said
    assert folder.read_status().state is State.DONE
    sent = [json.loads(line) for line in server.streamed["given1"]["wandb-history.jsonl"]]
    assert [row["_step"] for row in sent] == list(range(STEPS + 1))
    assert [row["val/valid_seen/success_rate"] for row in sent] == [step / 1000 for step in range(STEPS + 1)]
    assert server.streamed["given1"]["complete"] == 0


def test_the_summary_has_the_maximum_beside_the_last_value(swept):
    server, *_ = swept
    summary = json.loads(server.streamed["given1"]["wandb-summary.json"][-1])
    assert summary["val/valid_seen/success_rate"]["max"] == STEPS / 1000
    assert summary["val/valid_seen/success_rate"]["last"] == STEPS / 1000


def test_a_remark_of_a_health_rule_is_sent_as_one_alert(swept):
    server, *_ = swept
    (alert,) = (alert for alert in server.alerts if "no_active_groups" in json.dumps(alert))
    assert alert["runName"] == "given1"


def test_system_metrics_are_sent(swept):
    server, *_ = swept
    samples = [json.loads(line) for line in server.streamed["given1"]["wandb-events.jsonl"]]
    assert any("system.cpu" in name or "system.proc" in name for sample in samples for name in sample)


def test_nothing_of_the_machine_is_sent(swept):
    server, *_ = swept
    sent = json.dumps([server.written, server.streamed])
    assert str(CONF.parent) not in sent
    assert str(PROGRAM.parent) not in sent
    assert socket.gethostname() not in sent.split('"')
