import shutil

import pytest

from analysis.sources.collect import collect
from analysis.sources.transaction_log import BLOCK, read_transaction_log
from analysis.sources.wandb_project import Settings
from scpo.errors import RecordError
from tests.support.run_records import config, write_run
from tests.support.wandb_server import KEY, HostedRun, serve

wandb = pytest.importorskip("wandb", reason="needs wandb: make setup")

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
        "padding/" + "x" * 800: float(step),  # so that the log fills several blocks
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One offline run of verl-agent and one of ours, as wandb itself writes them."""
    root = tmp_path_factory.mktemp("wandb")
    ours = {key: value for key, value in config(row="no_monotonicity", steps=STEPS).items() if key != "machine"}
    name = "alfworld-tiny-scpo-no_monotonicity-s0-4c541560"
    quiet = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True)
    for run_id, logged in (("gigpo1", VERL_AGENT), (name, ours)):
        with wandb.init(mode="offline", dir=root, id=run_id, project="demo", config=logged, settings=quiet) as run:
            for step in range(STEPS + 1):
                run.log(verl_line(step) if run_id == "gigpo1" else {"val/valid_seen/success_rate": 0.01}, step=step)
    wandb.teardown()  # a run that is finished is not yet closed: W&B's service does that on its own time
    return root / "wandb"


def log_of(folder, run_id="gigpo1"):
    (path,) = folder.glob(f"*/run-{run_id}.wandb")
    return path


def test_an_offline_run_of_verl_agent_reads_in_our_words(recorded):
    data = collect(recorded)
    run = data.runs.set_index("id").loc["gigpo1"]
    assert (run.method, run.model, run.env, run.seed, run.scale) == ("gigpo", "1.5B", "alfworld", 1, "paper")
    assert run.finished
    assert data.series("gigpo1", "train/success_rate").at(30) == 0.3
    assert data.series("gigpo1", "val/valid_seen/success_rate").last == STEPS / 200
    assert data.series("gigpo1", "val/valid_seen/pick_and_place_simple/success_rate").last == 0.5
    assert data.series("gigpo1", "val/valid_seen/pick_two_obj_and_place/success_rate").last == 0.25
    assert data.series("gigpo1", "timing_s/step").last == 280.0
    assert not [name for name in data.metric_names("gigpo1") if "test_score" in name]


def test_an_offline_run_of_ours_keeps_its_row(recorded):
    data = collect(recorded)
    (section,) = data.at_scale("mini").sections
    assert [(row.name, row.label, row.count) for row in section.rows] == [("no_monotonicity", "− monotonicity", "1/1")]


def test_a_run_killed_in_the_middle_is_read_up_to_there(recorded, tmp_path):
    shutil.copytree(recorded, tmp_path / "wandb", symlinks=True)
    path = log_of(tmp_path / "wandb")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    data = collect(tmp_path / "wandb")
    assert 10 < data.series("gigpo1", "train/success_rate").steps[-1] < STEPS
    assert data.runs.set_index("id").loc["gigpo1"].state == "KILLED"
    assert [problem.path for problem in data.problems] == [path.parent.name]
    assert data.at_scale("paper").sections[0].rows[0].count == "0/1"


def test_a_damaged_block_costs_no_more_than_what_it_holds(recorded, tmp_path):
    whole = read_transaction_log(log_of(recorded))
    data = bytearray(log_of(recorded).read_bytes())
    data[BLOCK + 100] ^= 0xFF
    (tmp_path / "run-x.wandb").write_bytes(data)
    damaged = read_transaction_log(tmp_path / "run-x.wandb")
    assert damaged.damaged == 1
    assert damaged.config == whole.config
    assert damaged.lines[-1] == whole.lines[-1]
    assert 0 < len(whole.lines) - len(damaged.lines) < BLOCK // 800


@pytest.mark.parametrize("length", [0, 3, 7, 8, 200])
def test_a_log_cut_near_its_start_is_no_crash(recorded, tmp_path, length):
    (tmp_path / "run-cut.wandb").write_bytes(log_of(recorded).read_bytes()[:length])
    data = collect(tmp_path)
    assert data.problems
    assert data.runs.empty


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "run-x.wandb").write_bytes(b"something else")
    with pytest.raises(RecordError, match=r"run-x\.wandb is no W&B log"):
        read_transaction_log(tmp_path / "run-x.wandb")


def test_a_resumed_run_is_one_run_and_its_later_part_stands(recorded, tmp_path):
    first = tmp_path / "wandb" / "offline-run-20250101_000000-gigpo1"
    shutil.copytree(recorded, tmp_path / "wandb", symlinks=True)
    shutil.copytree(log_of(recorded).parent, first)
    path = first / "run-gigpo1.wandb"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    data = collect(tmp_path / "wandb")
    assert data.series("gigpo1", "train/success_rate").steps == tuple(range(STEPS + 1))
    assert data.runs.set_index("id").loc["gigpo1"].finished


def test_a_project_and_a_folder_of_run_folders_stand_in_one_table(tmp_path, monkeypatch):
    local = write_run(tmp_path / "runs")
    history = [{"_step": step, "_runtime": 1.0, **verl_line(step)} for step in range(STEPS + 1)]
    with serve(HostedRun("gigpo1", VERL_AGENT, history), HostedRun("other", {"lr": 1}, [])) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        data = collect(tmp_path / "runs", ["me/demo"], Settings(cache=tmp_path / "cache"))
    assert set(data.runs["id"]) == {local["id"], "gigpo1"}
    assert data.series("gigpo1", "train/success_rate").at(30) == 0.3
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
