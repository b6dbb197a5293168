import json
from types import SimpleNamespace

import pytest

from scpo.errors import ConfigError
from scpo.tracking import RunFolder, State, Tracker
from scpo.tracking.health import read_rules
from scpo.tracking.wandb_run import group_of, init_settings, keep_address, unheeded, url_of
from sweeps.compose.configuration import compose_run
from tests.support import fake_runs as fake


@pytest.mark.parametrize(
    ("run_id", "group"),
    [
        ("alfworld-tiny-scpo-s0-4c541560", "alfworld-tiny-scpo"),
        ("alfworld-tiny-scpo-theta0.4-s12-4c541560", "alfworld-tiny-scpo-theta0.4"),
        ("alfworld-tiny-scpo-no_monotonicity-s0-4c541560", "alfworld-tiny-scpo-no_monotonicity"),
    ],
)
def test_ablations_are_groups_of_their_own(run_id, group):
    assert group_of(run_id) == group


def written(**known):
    """What is kept of a ``wandb.Run``."""
    usual = {"url": "https://wandb.example/x", "entity": "me", "project": "scpo", "id": "x", "sweep_id": None}
    return SimpleNamespace(**(usual | known))


def test_tags_are_scale_benchmark_method_experiments_and_rows(tmp_path):
    folder = fake.make_run(tmp_path)
    (tmp_path / "experiments").mkdir()
    record = {"experiment": "ablation", "rows": [{"name": "scpo", "runs": [{"id": folder.run_id}]}]}
    (tmp_path / "experiments" / "ablation-mini.json").write_text(json.dumps(record))
    folder.update_status(commit="abc")
    said = init_settings(folder, folder.read_config())
    assert said["tags"] == ["mini", "alfworld", "scpo", "ablation", "ablation:scpo"]
    assert (said["job_type"], said["config"]["commit"], said["id"]) == ("train", "abc", folder.run_id)


def test_a_run_of_wandb_agent_stays_in_its_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "x")
    folder = fake.make_run(tmp_path)
    said = init_settings(folder, folder.read_config())
    assert [said[name] for name in ("project", "entity", "id", "resume")] == [None] * 4  # its variables say it
    assert said["name"] == folder.run_id


def test_a_run_of_a_sweep_goes_on_there_without_the_agent(tmp_path):
    folder = fake.make_run(tmp_path)
    keep_address(folder, written(project="demo", id="abc", sweep_id="x"), "online")
    said = init_settings(folder, folder.read_config())
    assert [said[name] for name in ("project", "entity", "id", "resume")] == ["demo", "me", "abc", "allow"]
    keep_address(folder, written(id=folder.run_id), "offline")
    assert init_settings(folder, folder.read_config())["project"] == "scpo"


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
    said = init_settings(folder, folder.read_config())
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


def test_a_remark_of_health_is_logged_once_and_stops_where_the_rules_say_so(tmp_path, monkeypatch, caplog):
    rule = read_rules()["no_active_groups"].model_copy(update={"steps": 2, "level": "stop"})
    monkeypatch.setattr("scpo.tracking.health.read_rules", lambda: {"no_active_groups": rule})
    folder = fake.make_run(tmp_path)
    with Tracker(folder, folder.read_config()) as tracker:
        for step in range(1, 5):
            tracker.log(step, {"credit/active_groups": 0.0}, {})
    assert caplog.text.count("health: no_active_groups at step 2") == 1
    assert folder.read_stop().state is State.CANCELLED
    assert "no_active_groups at step 2" in folder.read_stop().reason
    with Tracker(folder, folder.read_config()) as tracker:
        tracker.log(5, {"credit/active_groups": 0.0}, {})
    assert caplog.text.count("health: no_active_groups") == 1
