import math
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from scpo.records import State
from scpo.records.status import Observed
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.console import show_experiments, show_files, show_matrix, show_submitted, show_summary
from sweeps.dispatch import launcher_of
from sweeps.launchers.run_process import Outcome
from sweeps.launchers.slurm.cluster_settings import Site
from sweeps.launchers.slurm.submission import by_request
from sweeps.records.reconcile import Action, Decision
from sweeps.resources import disk_gib, resources


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


PAGE = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text()


def test_the_dry_run_of_the_page_on_clusters_is_that_of_the_program():
    """It had 605 GiB, as the program had it before."""
    call, shown = PAGE[PAGE.index("## 2. First dry run") :].split("```")[1:4:2]
    _, _, experiment, *overrides, _ = shlex.split(call.removeprefix("bash"))
    matrix = expand(experiment.removeprefix("+experiment="), overrides)
    decisions = dict.fromkeys(matrix.runs, Decision(Action.START, "first start"))
    console = Console(width=300, record=True)
    show_matrix(console, matrix, dict.fromkeys(matrix.runs, Observed(State.NEW)), decisions, None)
    printed = console.export_text().splitlines()
    *lines, empty, jobs, array, dots = shown.strip().splitlines()
    assert len(lines) == 3
    assert all(line in printed for line in lines)
    ((request, members),) = by_request(matrix.runs, launcher_of(matrix), Site()).items()
    assert jobs == f"{len(members)} jobs of at most {request.limit_h} h; sbatch would read:"
    assert (empty, array, dots) == ("", f"#SBATCH --array=0-{len(members) - 1}%{len(members)}", "...")


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (
            ("trainer=local",),
            "| evaluation, or `trainer=local`, of a Hugging Face model | {gpus} | {cpus} | {memory} |",
        ),
        (
            (),
            "| `trainer=verl` | `trainer.verl.gpus` (paper: {gpus}), on each of `trainer.verl.nodes` (paper: {nodes}) "
            "| 8 a GPU, 16 at least | {memory}, on each node |",
        ),
    ],
)
def test_the_page_on_clusters_has_what_a_job_asks_for(words, row):
    asked = [resources(compose_run([*words, "scale=paper", f"model=qwen2_5_{size}"])) for size in ("1_5b", "7b")]
    memory = "{} GB (1.5B), {} GB (7B)".format(*(one.memory_gb for one in asked))
    first = asked[0]
    assert row.format(nodes=first.nodes, gpus=first.gpus, cpus=first.cpus, memory=memory) in PAGE
