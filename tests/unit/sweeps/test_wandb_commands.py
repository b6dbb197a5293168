import json
import sys

import pytest

from scpo.records import run_config
from scpo.records.tracker import Tracker
from scpo.records.wandb_mirror import group_of
from sweeps import wandb_commands
from sweeps.__main__ import main
from tests.support import fake_runs as fake
from tests.support.wandb_server import KEY, fail, serve

pytest.importorskip("wandb_workspaces", reason="needs wandb-workspaces: make setup")
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # of wandb-workspaces


@pytest.fixture
def server(monkeypatch):
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_SILENT", "true")
        yield server


def test_a_view_with_success_credit_and_health_by_group_is_saved(server, capsys):
    assert main(["view", "me/demo"]) == 0
    said = capsys.readouterr().out.replace("\n", "")
    (sent,) = server.views
    assert (sent["entityName"], sent["projectName"], sent["displayName"]) == ("me", "demo", "SCPO overview")
    assert f"SCPO overview: {server.url}/me/demo?nw=" in said
    spec = json.loads(sent["spec"])
    (sections,) = _found(spec, "sections")
    assert [section["name"] for section in sections] == ["Success", "Credit", "Health", "Speed"]
    plotted = {panel["config"]["metrics"][0] for section in sections for panel in section["panels"]}
    assert {"val/valid_seen/success_rate", "credit/steps", "actor/entropy", "timing_s/step"} <= plotted
    assert "group" in json.dumps(_found(spec, "grouping"))


def _found(value, key):
    """Every value of a key, however deep."""
    if isinstance(value, dict):
        here = [value[key]] if key in value else []
        return here + [one for part in value.values() for one in _found(part, key)]
    return [one for part in value for one in _found(part, key)] if isinstance(value, list) else []


def test_what_is_wrong_is_said_in_one_line_and_nothing_is_sent(server, capsys, monkeypatch, tmp_path):
    assert main(["view", "demo"]) == 2
    assert "give ENTITY/PROJECT" in capsys.readouterr().err
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["view", "me/demo"]) == 2
    assert "there is no key for W&B" in capsys.readouterr().err
    assert server.views == []


def test_what_an_offline_run_wrote_is_pushed_by_wandb_itself_and_once(server, capsys, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    folder = fake.make_run(tmp_path / "runs", "wandb.mode=offline")
    with Tracker(folder, run_config.read_config(folder)) as tracker:
        for step in range(3):
            tracker.log(step, {"val/valid_seen/success_rate": step / 4}, {})
    assert main(["sync", "--runs-dir", "../runs"]) == 0
    (made, *_) = server.written[folder.run_id]
    group = group_of(folder.run_id, run_config.read_config(folder))
    assert (made["project"], made["groupName"], made["sweep"]) == ("scpo", group, None)
    sent = [json.loads(line) for line in server.streamed[folder.run_id]["wandb-history.jsonl"]]
    assert [row["val/valid_seen/success_rate"] for row in sent] == [0.0, 0.25, 0.5]
    assert main(["sync", "--runs-dir", "../runs"]) == 0
    assert "synced before" in capsys.readouterr().out
    assert not list(elsewhere.iterdir())


def test_a_server_that_cannot_be_reached_is_one_line_at_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    (fake.make_run(tmp_path, "wandb.mode=offline").path / "wandb" / "offline-run-1").mkdir(parents=True)
    assert main(["sync", "--runs-dir", str(tmp_path)]) == 2
    assert "sync: http://127.0.0.1:9 does not answer: Connection refused. Nothing was sent" in said_in(capsys)
    assert main(["view", "me/demo"]) == 2
    assert "view: http://127.0.0.1:9 does not answer" in said_in(capsys)


def said_in(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_a_push_that_does_not_end_is_stopped_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(wandb_commands, "PUSH_S", 0.01)
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)
    worked, message = wandb_commands.push(tmp_path / "wandb" / "offline-run-1")
    assert (worked, message) == (False, "W&B took longer than 0.01 s; the same command sends it again")


def test_without_its_package_it_says_what_to_install(server, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    assert main(["view", "me/demo"]) == 2
    assert "pip install -c constraints.txt -e '.[track]'" in capsys.readouterr().err


def test_a_refusal_of_wandb_is_one_line(server, capsys):
    server.faults["UpsertView2"] = [fail(403)] * 9
    assert main(["view", "me/demo"]) == 2
    error = capsys.readouterr().err
    assert "view me/demo: W&B did not save it" in error
    assert "Traceback" not in error
