import re

import pytest

from analysis.sources.collect import collect
from analysis.sources.unrecorded import variant_notes
from analysis.sources.wandb_project import Settings
from scpo.records.identity import identity, recorded_id
from scpo.schema.run import RunConfig
from tests.support.run_records import config, write_experiment, write_run
from tests.support.wandb_server import KEY, HostedRun, serve

pytest.importorskip("wandb", reason="needs wandb: make setup")

STEPS = 60
VERL_AGENT = {
    "algorithm": {"adv_estimator": "gigpo", "gamma": 0.95},
    "env": {"env_name": "alfworld/AlfredTWEnv", "seed": 1, "max_steps": 50, "rollout": {"n": 8}},
    "actor_rollout_ref": {"model": {"path": "Qwen/Qwen2.5-1.5B-Instruct"}},
    "trainer": {"total_epochs": STEPS},
}


def sent(seed):
    """What a run of ours sends to W&B of its configuration."""
    made = config(seed=seed, steps=STEPS)
    made["env"]["validation_panels"] = {"valid_seen": made["env"]["validation_panels"]["valid_seen"]}
    return identity(RunConfig.model_validate(made))


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
        whole = sent(seed)
        said = {"method": "scpo", "method.shaper.theta": 0.4, "scpo": whole, "run_id": run_id, **known}
        return HostedRun(f"agent{len(steps)}{seed}", whole | said, steps)

    names = [recorded_id(sent(seed)) for seed in (0, 1)]
    hosted = [swept(0, names[0], history, commit="a"), swept(1, names[1], history, commit="b")]
    hosted.append(swept(1, names[1], history[:3]))  # started again elsewhere
    hosted.append(HostedRun("evil", hosted[0].config | {"run_id": "../x"}, history))
    with serve(*hosted) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        data = collect(tmp_path / "runs", ["me/demo"], Settings(cache=tmp_path / "cache"))
    runs = data.runs.set_index("id")
    assert set(runs.index) == set(names)
    assert runs.loc[names[0], "setting"] == runs.loc[names[1], "setting"]
    assert list(runs.loc[names, "commit"]) == ["a", "b"]
    assert runs.loc[names[1], "last_step"] == STEPS
    again, evil = data.problems
    assert f"is {names[1]} again" in again.reason
    assert (evil.path, "is not the run that its id names" in evil.reason) == ("me/demo/evil", True)


def as_wandb_stores_it(value):
    """W&B writes 1.0 as 1."""
    if isinstance(value, dict):
        return {key: as_wandb_stores_it(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_wandb_stores_it(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def collected(tmp_path, monkeypatch, *hosted):
    with serve(*hosted) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        return collect(tmp_path / "runs", ["me/demo"], Settings(cache=tmp_path / "cache"))


def ours(seed, wandb_id=None, history=None, edited=None):
    """A run of ours as W&B has it; ``edited`` is what somebody changed there."""
    made = sent(seed)
    run_id = recorded_id(made)
    steps = [{"_step": step, "val/valid_seen/success_rate": 0.5} for step in range(STEPS + 1)]
    told = as_wandb_stores_it(made) | {"run_id": run_id, "commit": "a"} | (edited or {})
    return HostedRun(wandb_id or run_id, told, steps if history is None else history(steps))


def test_a_run_whose_whole_floats_wandb_stores_as_integers_keeps_its_id(tmp_path, monkeypatch):
    hosted = ours(0)
    assert recorded_id({key: hosted.config[key] for key in sent(0)}) != hosted.id
    data = collected(tmp_path, monkeypatch, hosted)
    assert data.problems == ()
    assert data.runs["finished"].all()
    assert data.runs["id"].tolist() == [recorded_id(sent(0))]


@pytest.mark.parametrize(
    ("hosted", "message"),
    [
        (
            lambda: ours(1, edited={"seed": 2}),
            r"its configuration that of alfworld-tiny-scpo-s2-\w+: one of them was edited",
        ),
        (lambda: ours(1, wandb_id="fork1"), "its configuration is that of the run alfworld-tiny-scpo-s1"),
        (lambda: ours(1, edited={"run_id": "alfworld-tiny-scpo-s1-00000000"}), "a copy or a fork"),
        (lambda: ours(1, edited={"method": 7}), "neither scpo's nor verl-agent's"),
    ],
    ids=["an edited seed", "a fork", "another run id", "no method"],
)
def test_a_run_that_is_not_the_one_it_says_is_named_and_left_out(tmp_path, monkeypatch, hosted, message):
    data = collected(tmp_path, monkeypatch, ours(0), hosted())
    assert data.runs["id"].tolist() == [recorded_id(sent(0))]
    (problem,) = data.problems
    assert re.search(message, problem.reason), problem.reason
    assert "left out" not in problem.reason  # in front of it, where it is printed


def test_a_history_without_a_validation_is_named_and_enters_no_number(tmp_path, monkeypatch):
    whole, cut = ours(0), ours(1, history=lambda steps: [row for row in steps if row["_step"] != 20])
    data = collected(tmp_path, monkeypatch, whole, cut)
    (problem,) = data.problems
    assert problem.path == cut.id
    assert "has no number for val/valid_seen/success_rate at step 20" in problem.reason
    assert data.metric_names(cut.id) == ()
    assert data.runs.set_index("id").loc[whole.id, "finished"]


def test_a_step_that_wandb_lacks_between_two_validations_costs_nothing(tmp_path, monkeypatch):
    data = collected(tmp_path, monkeypatch, ours(0, history=lambda steps: [row for row in steps if row["_step"] != 13]))
    assert data.problems == ()
    assert data.runs["finished"].all()


def test_another_configuration_in_a_project_than_in_a_folder_is_another_row(tmp_path, monkeypatch):
    local = write_run(tmp_path / "runs", seed=1, steps=STEPS, overrides=("method.shaper.alpha=2.0",))
    data = collected(tmp_path, monkeypatch, ours(0))
    rows = {run: set(rows) for run, rows in zip(data.runs["id"], data.runs["rows"], strict=True)}
    assert len(rows) == 2
    assert not rows.pop(local["id"]) & set.union(*rows.values())


def test_a_run_of_verl_agent_keeps_the_plain_name_beside_an_experiments_row(tmp_path, monkeypatch):
    planned = write_run(tmp_path / "runs", "gigpo", scale="paper", overrides=("method=gigpo", "model=qwen2_5_1_5b"))
    write_experiment(tmp_path / "runs", {"gigpo": [planned]}, scale="paper")
    data = collected(tmp_path, monkeypatch, HostedRun("gigpo1", VERL_AGENT, [{"_step": STEPS, **verl_line(STEPS)}]))
    assert set(data.runs["model"]) == {"1.5B"}
    assert [list(rows) for rows in data.runs["rows"]] == [["gigpo"], ["gigpo"]]
    assert variant_notes(data.by_id, data.experiments) == {}
