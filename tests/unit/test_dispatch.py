import subprocess
import sys
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.tracking import State
from sweeps.dispatch import exit_status, read_words
from sweeps.local import Outcome
from tests import fake_runs as fake

ROOT = Path(__file__).parents[2]


def call(script, *words, cwd, python=()):
    command = [sys.executable, *python, str(ROOT / script), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_words_are_experiment_overrides_and_dry_run():
    request = read_words(["+experiment=ablation", "seeds=[0]", "dry_run=true", "+trainer.steps=3"])
    assert (request.experiment, request.overrides, request.dry_run) == (
        "ablation",
        ("seeds=[0]", "+trainer.steps=3"),
        True,
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["experiment=ablation"], r"write \+experiment=ablation"),
        (["+experiment=ablation", "-m"], "-m: not needed"),
        (["--multirun", "+experiment=ablation"], "--multirun: not needed"),
        (["method=scpo"], "which experiment"),
        (["+experiment=ablation", "dry_run=maybe"], "true or false"),
    ],
)
def test_habits_from_hydra_get_a_hint(words, hint):
    with pytest.raises(ConfigError, match=hint):
        read_words(words)


@pytest.mark.parametrize(
    ("states", "code"), [("DD", 0), ("", 0), ("DF", 1), ("FI", 1), ("DI", 130), ("DR", 3), ("RI", 130)]
)
def test_the_exit_status_is_that_of_the_worst_run(states, code):
    by_letter = {str(state)[0]: state for state in (State.DONE, State.FAILED, State.INTERRUPTED, State.RUNNING)}
    assert exit_status([Outcome(by_letter[letter]) for letter in states]) == code


def test_sweep_alone_lists_the_experiments_and_writes_nothing(tmp_path):
    done = call("sweep.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "ablation_monotonicity" in done.stdout
    assert "Ablation: monotonic crediting" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_dry_run_shows_the_matrix_writes_nothing_and_imports_nothing_heavy(tmp_path):
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]")
    done = call("sweep.py", *words, cwd=tmp_path, python=("-X", "importtime"))
    assert done.returncode == 0
    assert "no_monotonicity-s0-" in done.stdout
    assert done.stdout.count("start (first start)") == 2
    assert not list(tmp_path.iterdir())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pydantic" in imported
    assert not imported & {"torch", "numpy", "transformers", "wandb", "pandas", "textworld"}


def test_a_dry_run_tells_what_is_finished(tmp_path):
    folder = fake.make_run(tmp_path)
    folder.update_status(state=State.DONE)
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]", f"machine.runs_dir={tmp_path}")
    done = call("sweep.py", *words, *fake.QUICK, cwd=tmp_path)
    assert "skip (finished)" in done.stdout
    assert "start (first start)" in done.stdout


@pytest.mark.parametrize("script", ["sweep.py", "train.py"])
def test_help_and_mistakes_take_no_stack_trace(script, tmp_path):
    assert f"python {script}" in call(script, "--help", cwd=tmp_path).stdout
    words = ["+experiment=ablation", "method=scop"] if script == "sweep.py" else ["method=scop"]
    done = call(script, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean scpo?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_train_refuses_a_folder_that_is_none(tmp_path):
    done = call("train.py", "runs/nothing", cwd=tmp_path)
    assert (done.returncode, "no run folder runs/nothing" in done.stderr) == (2, True)


def test_status_shows_runs_lost_ones_and_damaged_ones(tmp_path):
    lost, damaged = fake.make_run(tmp_path), fake.make_run(tmp_path, "seed=1")
    lost.update_status(state=State.RUNNING, step=2)
    damaged.status.write_text("{")
    command = [sys.executable, "-m", "sweeps", "status", "*-s?-*", "--runs-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "LOST" in lines[lost.run_id]
    assert "2/4" in lines[lost.run_id]
    assert "DAMAGED" in lines[damaged.run_id]
