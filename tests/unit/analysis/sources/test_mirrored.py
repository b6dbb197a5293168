import pytest

from analysis.sources.collect import collect
from analysis.sources.wandb_project import Settings
from tests.support.run_records import config, write_run
from tests.support.wandb_server import KEY, HostedRun, serve

pytest.importorskip("wandb", reason="needs wandb: make setup")

STEPS = 60
VERL_AGENT = {
    "algorithm": {"adv_estimator": "gigpo", "gamma": 0.95},
    "env": {"env_name": "alfworld/AlfredTWEnv", "seed": 1, "max_steps": 50, "rollout": {"n": 8}},
    "actor_rollout_ref": {"model": {"path": "Qwen/Qwen2.5-1.5B-Instruct"}},
    "trainer": {"total_epochs": STEPS},
}


def verl_line(step):
    return {
        "episode/success_rate": step / 100,
        "val/success_rate": step / 200,
        "val/pick_and_place_success_rate": 0.5,
        "val/pick_two_obj_and_place_success_rate": 0.25,
        "val/text/test_score": 9.0,
        "timing_s/step": 280.0,
    }


def test_an_offline_folder_of_wandb_is_named_with_what_to_do(tmp_path):
    folder = tmp_path / "offline-run-20250101_000000-gigpo1"
    folder.mkdir()
    (folder / "run-gigpo1.wandb").write_bytes(b":W&B")
    (tmp_path / "latest-run").symlink_to(folder)
    data = collect(tmp_path)
    assert data.runs.empty
    (problem,) = data.problems
    assert problem.path == folder.name
    assert "wandb sync" in problem.reason


def test_a_project_and_a_folder_of_run_folders_stand_in_one_table(tmp_path, monkeypatch):
    local = write_run(tmp_path / "runs")
    history = [{"_step": step, "_runtime": 1.0, **verl_line(step)} for step in range(STEPS + 1)]
    with serve(HostedRun("gigpo1", VERL_AGENT, history), HostedRun("other", {"lr": 1}, [])) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        data = collect(tmp_path / "runs", ["me/demo"], Settings(cache=tmp_path / "cache"))
    assert set(data.runs["id"]) == {local["id"], "gigpo1"}
    run = data.runs.set_index("id").loc["gigpo1"]
    assert (run.method, run.model, run.env, run.seed, run.scale) == ("gigpo", "1.5B", "alfworld", 1, "paper")
    assert run.finished
    assert data.series("gigpo1", "train/success_rate").at(30) == 0.3
    assert data.series("gigpo1", "val/valid_seen/success_rate").last == STEPS / 200
    assert data.series("gigpo1", "val/valid_seen/pick_and_place_simple/success_rate").last == 0.5
    assert data.series("gigpo1", "val/valid_seen/pick_two_obj_and_place/success_rate").last == 0.25
    assert data.series("gigpo1", "timing_s/step").last == 280.0
    assert not [name for name in data.metric_names("gigpo1") if "test_score" in name]
    assert data.at_scale("paper").sections[0].experiments == ("W&B me/demo",)
    assert [problem.path for problem in data.problems] == ["me/demo/other"]


def test_a_sweeps_runs_keep_row_and_setting_whatever_its_parameters_replaced(tmp_path, monkeypatch):
    history = [{"_step": step, "_runtime": 1.0, "val/valid_seen/success_rate": 0.5} for step in range(STEPS + 1)]

    def swept(seed, run_id, steps, **known):
        ours = {key: value for key, value in config(seed=seed, steps=STEPS).items() if key != "machine"}
        said = {"method": "scpo", "method.shaper.theta": 0.4, "scpo": ours, "run_id": run_id, **known}
        return HostedRun(f"agent{len(steps)}{seed}", ours | said, steps)

    names = [f"alfworld-tiny-scpo-theta0.4-s{seed}-4c541560" for seed in (0, 1)]
    hosted = [swept(0, names[0], history, commit="a"), swept(1, names[1], history, commit="b")]
    hosted.append(swept(1, names[1], history[:3]))  # started again elsewhere
    hosted.append(HostedRun("evil", hosted[0].config | {"run_id": "../x"}, history))
    with serve(*hosted) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        data = collect(tmp_path / "runs", ["me/demo"], Settings(cache=tmp_path / "cache"))
    runs = data.runs.set_index("id")
    assert set(runs.index) == {*names, "evil"}
    assert runs.loc[names[0], "setting"] == runs.loc[names[1], "setting"]
    assert list(runs.loc[names, "commit"]) == ["a", "b"]
    assert runs.loc[names[1], "last_step"] == STEPS
    assert "is alfworld-tiny-scpo-theta0.4-s1-4c541560 again" in data.problems[0].reason
