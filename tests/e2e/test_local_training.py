import json
import os
import signal
import time

import numpy as np
import pytest

from scpo.diagnostics.validation_episodes import PATTERN, read_validation
from scpo.records.files import read_json, write_json
from tests.e2e.local_run import finish, only_run, start

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """A run that nothing disturbed."""
    return finish(tmp_path_factory.mktemp("runs"), cache)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_records_every_step_validates_and_ends_done(finished):
    lines = metrics(finished)
    assert [line["step"] for line in lines] == list(range(7))
    assert json.loads((finished / "status.json").read_text())["state"] == "DONE"
    for line in lines:
        validated = {key.split("/")[1] for key in line if key.startswith("val/")}
        assert validated == ({"train_games", "valid_seen", "valid_unseen"} if line["step"] in (0, 3, 6) else set())


def test_training_changes_the_policy(finished):
    for line in metrics(finished)[1:]:
        assert line["actor/grad_norm"] > 0
        assert line["train/episodes"] == 12
        assert line["actor/updates"] == max(1, round(line["train/rows"] / 32))


def test_panels_probe_and_step_texts_are_on_disk(finished):
    panels = read_json(finished / "panels.json")
    assert {name: len(panel["tasks"]) for name, panel in panels.items()} == {
        "train": 6, "probe": 1, "train_games": 3, "valid_seen": 3, "valid_unseen": 3,
    }  # fmt: skip
    probes = sorted(path.name for path in (finished / "diagnostics").glob("probe_*"))
    assert probes == ["probe_step_00000.npz", "probe_step_00003.npz", "probe_step_00006.npz"]
    for path in (finished / "diagnostics").glob("step_texts_*"):
        with np.load(path, allow_pickle=False) as texts:
            assert len(texts["text"]) == len(texts["credit"]) == len(texts["success"]) > 0
    assert list(sampled_groups(finished)) == [f"groups_step_{step:05d}.json.gz" for step in (1, 3, 6)]


def sampled_groups(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "diagnostics").glob("groups_*"))}


def validations(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "diagnostics").glob(PATTERN))}


def test_the_episodes_of_every_validation_agree_with_its_metrics(finished):
    assert list(validations(finished)) == [f"validation_step_{step:05d}.json.gz" for step in (0, 3, 6)]
    lines = {line["step"]: line for line in metrics(finished)}
    for path in (finished / "diagnostics").glob(PATTERN):
        record = read_validation(path)
        assert record["panels"].keys() == {"train_games", "valid_seen", "valid_unseen"}
        for name, panel in record["panels"].items():
            line = lines[record["step"]]
            assert np.mean(panel["won"]) == line[f"val/{name}/success_rate"]
            assert np.mean(panel["length"]) == line[f"val/{name}/episode_length"]
            for told in panel["transcripts"]:
                assert len(told["turns"]) == panel["length"][told["episode"]]
                assert "Your task is to" in told["start"]


def test_a_run_killed_and_resumed_ends_with_the_same_bytes(finished, cache, tmp_path):
    for _ in range(2):
        kill_after_some_steps(tmp_path, cache)
    folder = finish(tmp_path, cache)
    assert (folder / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert sampled_groups(folder) == sampled_groups(finished)
    assert validations(folder) == validations(finished)
    assert json.loads((folder / "status.json").read_text())["attempt"] == 3


def kill_after_some_steps(runs, cache):
    """kill -9 once two more steps than before are logged."""
    before = logged(runs)
    process = start(runs, cache)
    while logged(runs) < before + 2 and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, process.communicate()[0]


def logged(runs):
    try:
        return (only_run(runs) / "metrics.jsonl").read_bytes().count(b"\n")
    except (FileNotFoundError, ValueError):
        return 0


def test_ctrl_c_stops_after_the_step_and_keeps_it(cache, tmp_path, finished):
    process = start(tmp_path, cache)
    while logged(tmp_path) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 130, output
    folder = only_run(tmp_path)
    assert json.loads((folder / "status.json").read_text())["state"] == "INTERRUPTED"
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert lines == (finished / "metrics.jsonl").read_bytes().splitlines(keepends=True)[: len(lines)]
    assert (folder / "checkpoints" / f"step_{json.loads(lines[-1])['step']:05d}" / "COMPLETE").exists()


def test_a_panel_that_changed_is_refused(cache, tmp_path, finished):
    kill_after_some_steps(tmp_path, cache)
    path = only_run(tmp_path) / "panels.json"
    panels = read_json(path)
    panels["valid_seen"]["sha256"] = "0" * 64
    write_json(path, panels)
    process = start(tmp_path, cache)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 1
    assert "panel valid_seen of run" in output
    assert "changed" in output


def test_ctrl_c_during_the_warm_start_stops_at_once_and_leaves_a_run_that_can_go_on(tmp_path):
    process = start(tmp_path / "runs", tmp_path / "cache", "model.warm_start.steps=100000")
    while not list((tmp_path / "cache").glob("warm_start/*.lock")) and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 130, output
    assert json.loads((only_run(tmp_path / "runs") / "status.json").read_text())["state"] == "INTERRUPTED"


def test_prompting_the_untrained_policy_measures_what_training_begins_with(finished, cache, tmp_path):
    folder = finish(tmp_path, cache, "method=plain")
    first, last = metrics(folder)
    assert (first["step"], last["step"]) == (0, 6)
    before = {key: value for key, value in metrics(finished)[0].items() if key.startswith("val/")}
    assert {key: value for key, value in first.items() if key.startswith("val/")} == before
    assert {key: last[key] for key in before} == before
    assert json.loads((folder / "status.json").read_text())["state"] == "DONE"
    assert len(list((folder / "transcripts").rglob("*.jsonl"))) == 9
