import json

from sweeps.compose.matrix import expand
from sweeps.records import manifest
from sweeps.records import run_folders as store


def update(runs_dir, *words, folders=True):
    matrix = expand("ablation_monotonicity", [f"machine.runs_dir={runs_dir}", *words])
    for config in matrix.runs.values() if folders else ():
        store.ensure(config)
    manifest.update(runs_dir, matrix)
    return json.loads(path_of(runs_dir, matrix.scale).read_text())


def path_of(runs_dir, scale="mini"):
    return manifest.manifest_path(runs_dir, "ablation_monotonicity", scale)


def seeds(recorded):
    return [[run["seed"] for run in row["runs"]] for row in recorded["rows"]]


def test_the_manifest_says_which_run_is_which_row(tmp_path):
    recorded = update(tmp_path, "seeds=[0]")
    assert (recorded["experiment"], recorded["scale"]) == ("ablation_monotonicity", "mini")
    assert [row["name"] for row in recorded["rows"]] == ["scpo", "no_monotonicity"]
    run = recorded["rows"][1]["runs"][0]
    assert (run["env"], run["model"], run["seed"]) == ("alfworld", "tiny", 0)
    assert (tmp_path / run["id"]).is_dir()


def test_other_seeds_join_what_is_there(tmp_path):
    update(tmp_path, "seeds=[1,2]")
    assert seeds(update(tmp_path, "seeds=[0,1]", "wandb.mode=disabled")) == [[0, 1, 2], [0, 1, 2]]


def test_runs_whose_folder_is_gone_leave(tmp_path):
    update(tmp_path, "seeds=[1]", folders=False)
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]


def test_runs_with_other_settings_do_not_mix(tmp_path):
    update(tmp_path, "seeds=[1]", "trainer.steps=2")
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]


def test_each_scale_has_a_manifest_of_its_own(tmp_path):
    update(tmp_path, "seeds=[0]")
    assert seeds(update(tmp_path, "seeds=[2]", "scale=paper")) == [[2], [2]]
    assert seeds(json.loads(path_of(tmp_path).read_text())) == [[0], [0]]


def test_runs_of_an_earlier_default_do_not_mix(tmp_path):
    recorded = update(tmp_path, "seeds=[0,1]")
    path = path_of(tmp_path)
    for row in recorded["rows"]:
        for run in row["runs"]:
            run["settings"] = "00000000"
    path.write_text(json.dumps(recorded))
    assert seeds(update(tmp_path, "seeds=[0]")) == [[0], [0]]
