import pytest
import yaml

import sweep
from scpo.records import run_config
from sweeps import __main__ as command_line
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import parse_all
from sweeps.export import _nearest as nearest
from sweeps.export import experiment_yaml
from tests.support.searches import plan_in

RUNS = {
    "the default": [],
    "another method and text": [
        "method=scpo",
        "scorer=exact",
        "method.shaper.theta=0.5",
        "method.shaper.states=exact",
    ],
    "another environment": ["env=webshop", "scale=study", "method=gigpo", "seed=7"],
    "another host": ["method=scpo", "method.host=hgpo"],
    "another trainer": ["scale=paper", "trainer=verl_1gpu", "env.games=generated"],
    "a prompted model": ["scale=paper", "method=react", "model=gpt_4o"],
    "without a panel": ["method=grpo", "~env.validation_panels.valid_seen", "trainer.groups=2"],
    "a panel of its own": [
        "+env.validation_panels.tuning={split: train, games: 4, seed: 1, held_out: true}",
    ],
    "a list": ["method=grpo", "trainer.steps=3", "env.validation_panels.valid_seen.games=5"],
}


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_the_experiment_of_a_run_is_that_run(overrides, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = run_config.ensure(compose_run(overrides))
    assert command_line.main(["export", folder.run_id, "-o", "mine.yaml"]) == 0
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("mine.yaml: python sweep.py +experiment=mine.yaml scale=")
    written = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert len(written["experiment"]["rows"]) == 1
    scale = run_config.read_config(folder).scale
    matrix = expand("mine.yaml", parse_all([f"scale={scale}"]))
    assert list(matrix.runs) == [folder.run_id]


def test_a_run_is_exported_with_its_own_method_however_many_settings_differ():
    """Another method may differ in fewer keys, because its section ``shaper`` is null as a whole."""
    words = ["soft_base=0.2", "alpha=0.9", "matcher=forward", "reference=shortest"]
    config = compose_run(["scale=study", "method=scpo", *(f"method.shaper.{word}" for word in words)])
    assert nearest(config, "method", ["scale=study", "scorer=exact"]) == "scpo"


@pytest.mark.parametrize("scale", ["mini", "study"])
def test_a_trial_is_exported_with_the_tasks_that_it_is_judged_on(scale, tmp_path):
    plan = plan_in(tmp_path, f"scale={scale}")
    run, config = next(iter(plan.runs(plan.default()).items()))
    (tmp_path / "mine.yaml").write_text(experiment_yaml(run_config.ensure(config)))
    matrix = expand(str(tmp_path / "mine.yaml"), parse_all([f"scale={plan.scale}"]))
    assert list(matrix.runs) == [run]
    (made,) = matrix.runs.values()
    assert list(made.env.validation_panels) == ["tuning"]


def test_one_run_at_a_time_and_no_file_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = run_config.ensure(compose_run(["seed=0"]))
    run_config.ensure(compose_run(["seed=1"]))
    assert command_line.main(["export", "alfworld*"]) == 2
    assert "export takes one run" in capsys.readouterr().err
    (tmp_path / "there.yaml").write_text("mine")
    assert command_line.main(["export", first.run_id, "-o", "there.yaml"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == "error: -o there.yaml: the file exists already; name another file"
    assert (tmp_path / "there.yaml").read_text() == "mine"
    assert command_line.main(["export", first.run_id, "-o", "mine.txt"]) == 2
    assert "end in .yaml; name mine.yaml" in capsys.readouterr().err
    assert command_line.main(["export", first.run_id, "-o", "a b/c/mine.yaml"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == "error: -o a b/c/mine.yaml: there is no folder a b/c: `mkdir -p 'a b/c'` first"
    assert not (tmp_path / "a b").exists()
    assert command_line.main(["export", first.run_id]) == 0
    assert "experiment:" in capsys.readouterr().out


def test_an_exported_experiment_whose_files_have_changed_since_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = run_config.ensure(compose_run(["method=gigpo", "scale=study", "seed=1"]))
    assert command_line.main(["export", folder.run_id, "-o", "mine.yaml"]) == 0
    for given in ([], ["seeds=[1,2]"], ["seeds=[5]"], ["machine.runs_dir=elsewhere"]):
        assert expand("mine.yaml", parse_all(["scale=study", *given])).notes == []

    # As if a file of conf/ had another value than at the export.
    changed = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    changed["experiment"]["rows"][0]["overrides"].append("method.estimator.omega=0.5")
    (tmp_path / "mine.yaml").write_text("# @package _global_\n" + yaml.safe_dump(changed))
    for given in ([], ["seeds=[5]"], ["machine.runs_dir=elsewhere"]):
        (note,) = expand("mine.yaml", parse_all(["scale=study", *given])).notes
        assert note.startswith(f"mine.yaml is no longer the configuration of run {folder.run_id}: a file of conf/")
        here = " --runs-dir elsewhere" if "machine.runs_dir=elsewhere" in given else ""
        assert f"python -m sweeps export {folder.run_id}{here}; if the change is meant, delete of_run" in note
    # Other values were asked for.
    assert expand("mine.yaml", parse_all(["scale=study", "trainer.steps=3"])).notes == []
    capsys.readouterr()
    assert sweep.main(["+experiment=mine.yaml", "scale=study", "dry_run=true"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("is no longer the configuration of run") == 1
