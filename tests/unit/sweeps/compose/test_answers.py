"""What people typed and what they were told: before, as it was met, and now. Each wrong command gets the right one."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

import sweep
import train
from sweeps.compose.overrides import CONF

ANSWERS = [
    # (command, what it answered before, what it answers now)
    (
        "sweep +search=scpo +experiment=ablation",
        "runs the search",
        "one call runs one of them; give one after the other",
    ),
    (
        "sweep +experiment=ablation +experiment=cost",
        "runs the last",
        "python sweep.py +experiment=ablation; python sweep",
    ),
    (
        "sweep +search=scpo search.space.theta.high=2 dry_run=true",
        "approves it",
        "search.space.theta: 2.0 cannot run: method.shaper.theta: got 2.0; input should be less than or equal to 1",
    ),
    (
        "sweep +search=scpo search.trials=0",
        "trials.constrained-int: got 0 ... dict[...]",
        "trials: got 0; input should be",
    ),
    ("train --prepare scpo", "prints scpo, exit 0", "the method of that name: python train.py method=scpo"),
    ("train --prepare runs/typo", "prints runs/typo, exit 0", "there is no run folder runs/typo"),
    ("train --dry-run method=scpo", "usage: ...", "python sweep.py +experiment=one method=scpo dry_run=true"),
    ("sweep +experiment=ablation --dry-run", "not needed", "python sweep.py +experiment=ablation dry_run=true"),
    ("sweep +experiment=ablation --cfg job", "not needed", "python train.py --cfg job"),
    ("sweep +experiment=ablation dryrun=true", "unknown key dryrun", "it is called dry_run: dry_run=true"),
    ("sweep +experiment=ablation dry_run", "there is no = in it", "write dry_run=true"),
    ("sweep +experiment=ablation launcher=slurm", "no launcher is called so", "did you mean slurm_a800x4?"),
    ("train method=SCPO", "no method is called so", "did you mean scpo?"),
    ("sweep +experiment=ABLATION", "no experiment is called so", "did you mean ablation?"),
    ("sweep +experiment=ablation seed=0", "axes take values or lists", "write 'seeds=[0]'"),
    (
        "sweep +experiment=ablation hydra/launcher=submitit_slurm",
        "did you mean launcher?",
        "launcher=slurm_a800x4 (Slurm)",
    ),
    ("train trainer.lr=1e-5", "did you mean trainer?", "did you mean trainer.optimizer.learning_rate?"),
    ("train -m method=scpo,gigpo", "usage: ...", "python sweep.py +experiment=one method=scpo,gigpo"),
    ("train method=scpo,gigpo", "a list in quotes", "python sweep.py +experiment=one method=scpo,gigpo"),
    ("sweep -m +experiment=ablation a=1,2", "not needed", "python sweep.py +experiment=ablation a=1,2"),
    ("sweep method=scpo", "lists them; one run alone", "python sweep.py +experiment=one key=value"),
    (
        "sweep +experiment=ablation launcher.partition=gpu",
        "did you mean launcher.warn_s?",
        "slurm/site.yaml: partition",
    ),
    (
        "sweep +experiment=ablation method.shaper.theta=glob(*)",
        "a list in quotes",
        "name the values of an axis one by one",
    ),
]


@pytest.fixture
def answer(monkeypatch, capsys, tmp_path, caplog):
    """Call a script's main in this process: (exit status, all that it said)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")

    def call(words):
        script, *arguments = words.split()
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
        code = sweep.main(arguments) if script == "sweep" else train.main()
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, said=out + err + caplog.text)

    return call


@pytest.mark.parametrize(("command", "before", "now"), ANSWERS, ids=[command for command, _, _ in ANSWERS])
def test_a_wrong_command_is_answered_with_the_right_one(answer, command, before, now):
    found = answer(command)
    assert found.code == 2
    assert now in found.said
    assert before not in found.said
    assert "Traceback" not in found.said


def test_a_key_that_is_given_twice_is_said(answer):
    assert (
        "trainer.steps=3 is replaced by the later trainer.steps=4"
        in answer("sweep +experiment=one seeds=[0] trainer.steps=3 trainer.steps=4 dry_run=true").said
    )


def test_the_whole_configuration_of_a_run_is_shown(answer):
    shown = answer("train method=scpo method.shaper.theta=0.5 --cfg job")
    assert shown.code == 0
    assert "theta: 0.5" in shown.said
    assert "${" not in shown.said


def test_from_another_folder_it_is_said_where_the_runs_are(answer, monkeypatch, tmp_path):
    checkout = tmp_path / "checkout"
    (checkout / "runs" / "x").mkdir(parents=True)
    (checkout / "runs" / "x" / "status.json").write_text("{}")
    monkeypatch.setattr("sweeps.dispatch.CONF", checkout / "conf")
    assert f"so every run is new; those of {checkout / 'runs'}" in answer("sweep +experiment=one dry_run=true").said


def test_verl_agents_entry_says_what_its_environment_lacks(tmp_path):
    folder = answer_folder(tmp_path, "scale=paper", "trainer=verl_agent", "method=scpo")
    command = [sys.executable, "-m", "scpo.integrations.verl_agent", folder]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CONF.parent)
    assert told.returncode == 1
    assert "verl-agent's environment is needed, this one lacks" in told.stderr
    assert "Traceback" not in told.stderr


def answer_folder(tmp_path, *words):
    from sweeps.compose.configuration import compose_run
    from sweeps.records import run_folders as store

    return str(store.ensure(compose_run([*words, f"machine.runs_dir={tmp_path}"])).path)
