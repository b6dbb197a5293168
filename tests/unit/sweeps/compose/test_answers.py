"""What people typed and what they were told: before, as it was met, and now. Each wrong command gets the right one."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import sweep
import train
from analysis import __main__ as analysis_commands
from scpo.errors import ConfigError
from scpo.records import run_config
from sweeps import __main__ as sweeps_commands
from sweeps.compose.configuration import compose_run
from sweeps.compose.overrides import CONF

DOCUMENT = CONF.parent / "docs" / "answers.md"


def documented():
    """(command, what it answered before, what it answers now) of every row of the document's table."""
    rows = [line.strip("| \n").split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    return [tuple(cell.strip().strip("`") for cell in row) for row in rows]


ANSWERS = documented()
MAINS = {
    "sweep.py": sweep.main,
    "train.py": lambda _: train.main(),
    "sweeps": sweeps_commands.main,
    "analysis": analysis_commands.main,
}


def test_the_document_tells_what_users_met():
    assert len(ANSWERS) >= 23
    assert all(command.startswith("python ") and now for command, _, now in ANSWERS)


@pytest.fixture
def answer(monkeypatch, capsys, tmp_path, caplog):
    """Call a script's main in this process: (exit status, all that it said)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")

    def call(words):
        script, *arguments = words.removeprefix("python ").removeprefix("-m ").split()
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        try:
            code = MAINS[script](arguments)
        except SystemExit as end:  # as argparse ends on an option that there is not
            code = end.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, said=out + err + caplog.text)

    return call


@pytest.mark.parametrize(("command", "before", "now"), ANSWERS, ids=[command for command, _, _ in ANSWERS])
def test_a_wrong_command_is_answered_with_the_right_one(answer, command, before, now):
    found = answer(command)
    assert found.code == 2
    assert now in found.said
    assert not before or before not in found.said
    assert "Traceback" not in found.said
    assert not list(Path("runs").glob("*"))  # refused before a folder is made


def test_a_run_folder_with_overrides_is_answered_with_what_to_do(answer, tmp_path):
    """Without them, it goes on."""
    folder = run_config.ensure(compose_run(["method=grpo", f"machine.runs_dir={tmp_path / 'runs'}"])).path
    found = answer(f"train.py {folder} trainer.steps=8")
    assert found.code == 2
    assert f"'{folder}' is a run folder, which goes on alone, with the settings that it has" in found.said


@pytest.mark.parametrize(("place", "word"), [(".", "."), (".", "./"), ("attempt_1", ".."), (".", "attempt_1/..")])
def test_a_run_folder_is_known_by_its_name_from_within_it(answer, tmp_path, monkeypatch, place, word):
    """`.` ended in a traceback, and `..` in the advice to rename the folder."""
    folder = run_config.ensure(compose_run(["method=grpo", f"machine.runs_dir={tmp_path / 'runs'}"])).path
    (folder / "attempt_1").mkdir()
    monkeypatch.chdir(folder / place)
    found = answer(f"train.py --prepare {word}")
    assert (found.code, found.said) == (0, f"{folder}\n")


def test_the_advice_for_a_folder_that_is_no_run_lists_runs(answer, tmp_path):
    """It was `sweeps status --runs-dir .`, which found none."""
    words = ["method=grpo", f"machine.runs_dir={tmp_path / 'runs'}"]
    folder = run_config.ensure(compose_run(words)).path
    advice = "is no run folder; `python -m sweeps status` lists those there are"
    assert advice in answer("train.py runs").said
    (tmp_path / "other").mkdir()
    assert advice in answer("train.py other").said
    (folder.parent / "empty").mkdir()
    assert advice in answer("train.py runs/empty").said
    assert f"`python -m sweeps status --runs-dir {tmp_path / 'runs'}`" in answer("train.py .").said
    folder.parent.rename(tmp_path / "elsewhere")
    assert "`python -m sweeps status --runs-dir elsewhere`" in answer("train.py elsewhere").said
    assert "`python -m sweeps status --runs-dir elsewhere`" in answer("train.py elsewhere/typo").said
    with pytest.raises(ConfigError, match="'' is no run folder; `python -m sweeps status` lists"):
        train.open_run([""])


def test_a_default_folder_that_is_not_there_is_named(answer, tmp_path, monkeypatch):
    """It was "no runs"."""
    # A checkout may have runs of its own, to which the commands would point.
    monkeypatch.setattr(sweeps_commands, "REPOSITORY", tmp_path / "checkout")
    for command in ("status", "verify"):
        found = answer(f"sweeps {command}")
        assert (found.code, f"there is no folder runs/ here ({tmp_path})" in found.said) == (0, True)
    (tmp_path / "runs").mkdir()
    assert "no folder" not in answer("sweeps status").said


def test_a_key_that_is_given_twice_is_said(answer):
    assert (
        "trainer.steps=3 is replaced by the later trainer.steps=4"
        in answer("sweep.py +experiment=one seeds=[0] trainer.steps=3 trainer.steps=4 dry_run=true").said
    )


def test_the_whole_configuration_of_a_run_is_shown(answer):
    shown = answer("train.py method=scpo method.shaper.theta=0.5 --cfg job")
    assert shown.code == 0
    assert "theta: 0.5" in shown.said
    assert "${" not in shown.said


def test_the_configuration_shows_no_secret_of_the_environment(answer, monkeypatch):
    monkeypatch.setenv("MY_DB_PASSWORD", "hunter2-sesame-77")
    refused = answer("train.py method=scpo wandb.entity=xhunter2-sesame-77 --cfg job")
    assert (refused.code, "contains that of $MY_DB_PASSWORD" in refused.said) == (2, True)
    monkeypatch.setenv("WANDB_ENTITY", "xhunter2-sesame-77")
    shown = answer("train.py method=scpo --cfg job")
    assert (shown.code, "entity: x[redacted]" in shown.said) == (0, True)
    assert "hunter2" not in refused.said + shown.said


WORDS = [
    "",
    "seeds=[3,4]",
    "trainer.steps=3,4",
    "dry_run=true",
    "env=[webshop]",
    "launcher=slurm_a800x4",
    "scale=study",
]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("start", ["", "+experiment=ablation ", "+search=scpo search.trials=3 "])
def test_the_command_that_shows_a_configuration_works(answer, start, word):
    told = answer(f"sweep.py {start}{word} --cfg job")
    assert told.code == 2
    named = told.said.strip().partition("it shows the configuration of one run: python ")[2]
    shown = answer(named.replace("'", ""))
    assert shown.code == 0, named
    assert "method:" in shown.said
    assert "seed: 3" in shown.said or "seeds" not in word


def test_from_another_folder_it_is_said_where_the_runs_are(answer, monkeypatch, tmp_path):
    checkout = tmp_path / "checkout"
    (checkout / "runs" / "x").mkdir(parents=True)
    (checkout / "runs" / "x" / "status.json").write_text("{}")
    monkeypatch.setattr("sweeps.dispatch.CONF", checkout / "conf")
    assert f"so every run is new; those of {checkout / 'runs'}" in answer("sweep.py +experiment=one dry_run=true").said


def test_verl_agents_entry_says_what_its_environment_lacks(tmp_path):
    folder = answer_folder(tmp_path, "scale=paper", "trainer=verl_agent", "method=scpo")
    command = [sys.executable, "-m", "scpo.integrations.verl_agent", folder]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CONF.parent)
    assert told.returncode == 1
    assert "verl-agent's environment is needed, this one lacks" in told.stderr
    assert "Traceback" not in told.stderr


def answer_folder(tmp_path, *words):
    from sweeps.compose.configuration import compose_run

    return str(run_config.ensure(compose_run([*words, f"machine.runs_dir={tmp_path}"])).path)
