import math
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from scpo.records import State
from scpo.records.status import Observed
from sweeps.compose.matrix import expand
from sweeps.console import show_experiments, show_files, show_matrix, show_submitted, show_summary
from sweeps.launchers.run_process import Outcome
from sweeps.records.reconcile import Action, Decision
from sweeps.resources import disk_gib


@pytest.mark.parametrize(
    ("runs_dir", "rest"),
    [("runs", []), ("/data/my runs [a]", ["--runs-dir", "/data/my runs [a]"])],
)
def test_the_command_to_follow_jobs_looks_where_their_runs_are(runs_dir, rest):
    console = Console(width=40, record=True)
    show_submitted(console, ["7_0", "7_1"], "ablation", Path(runs_dir))
    submitted, follow = console.export_text().strip().splitlines()
    assert submitted == "submitted 2 runs as jobs 7 (2 runs)"
    words = shlex.split(follow.partition("shell:")[2])
    assert words == ["python", "-m", "sweeps", "status", "ablation", "--watch", *rest]


@pytest.mark.parametrize(
    ("runs_dir", "command"),
    [
        ("runs", "make figures,"),
        ("my runs", "python -m analysis figures --runs-dir 'my runs',"),
        ("/a [b]", "python -m analysis figures --runs-dir '/a [b]',"),
    ],
)
@pytest.mark.parametrize("width", [200, 40])
def test_a_sweep_ends_with_the_command_for_figures_of_its_own_folder(width, runs_dir, command):
    """On a terminal of 80 columns the command was broken in two, and failed when it was copied."""
    console = Console(width=width, record=True)
    show_files(console, Path(runs_dir))
    assert f"figures and tables: {command} into paper_figures/" in console.export_text()


def test_the_list_of_experiments_ends_with_whole_commands():
    console = Console(width=40, record=True)
    show_experiments(console, [])
    run, look = console.export_text().splitlines()[-2:]
    assert run.split(":")[1].split() == ["python", "sweep.py", "+experiment=<name>"]
    assert look.split(":")[1].split() == ["python", "sweep.py", "+experiment=<name>", "dry_run=true"]


def test_a_dry_run_has_the_disk_of_the_runs_to_start_where_it_is_large():
    matrix = expand("ablation", ["scale=paper", "seeds=[0]"])
    decisions = dict.fromkeys(matrix.runs, Decision(Action.SKIP, "done"))
    seen = dict.fromkeys(matrix.runs, Observed(State.NEW))
    console = Console(width=300, record=True)
    show_matrix(console, matrix, seen, decisions, None)
    assert "disk:" not in console.export_text()
    decisions = dict.fromkeys(matrix.runs, Decision(Action.START, "first start"))
    show_matrix(console, matrix, seen, decisions, None)
    needed = math.ceil(sum(disk_gib(config) for config in matrix.runs.values()))
    assert f"disk: up to {needed} GiB in machine.runs_dir, most of it checkpoints" in console.export_text()


def test_the_summary_of_a_stopped_sweep_counts_the_runs_that_it_did_not_come_to():
    console = Console(width=200, record=True)
    show_summary(console, dict.fromkeys("ab", Outcome(State.INTERRUPTED)), not_started=2)
    assert console.export_text().strip() == "4 runs: 2 INTERRUPTED, 2 not started"


@pytest.mark.parametrize("before", ["", "not resumed: ", "ValueError: loss is nan; then not resumed: "])
def test_the_reason_of_a_failure_is_shown_once_and_its_traceback_stays(tmp_path, before):
    refusal = "run-1 stopped at step 2 under other code (see docs)"
    log = tmp_path / "log"
    log.write_text(
        f"2026 ERROR sweeps.records.attempt: {refusal}\n2026 INFO sweeps.records.attempt: run-1: FAILED "
        f"({before}ConfigError: {refusal})\n"
    )
    console = Console(width=200, record=True)
    show_summary(console, {"run-1": Outcome(State.FAILED, f"{before}ConfigError: {refusal}", log)})
    assert console.export_text().count(refusal) == 1

    log.write_text(
        "2026 ERROR sweeps.records.attempt: Traceback (most recent call last):\n  line\nKeyError: 'lr'\n"
        "2026 INFO sweeps.records.attempt: run-1: FAILED (KeyError: 'lr')\n"
    )
    show_summary(console, {"run-1": Outcome(State.FAILED, "KeyError: 'lr'", log)})
    said = console.export_text()
    assert "Traceback" in said
    assert said.count("KeyError: 'lr'") == 2
