"""What a search says on the console."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scpo.progress import about
from scpo.schema import SlurmLauncher
from sweeps.compose.identity import run_id
from sweeps.compose.resources import cost_lines
from sweeps.local.slot_pool import refused_here
from sweeps.records.past_times import PastTimes
from sweeps.search.plan import Plan
from sweeps.search.proposals import first
from sweeps.search.space import Params, describe
from sweeps.slurm.launcher import Cluster
from sweeps.slurm.preview import show_submissions
from sweeps.slurm.scheduler import Slurm
from sweeps.slurm.submission import call_sbatch
from sweeps.terminal import say, wide

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

PREVIEWED = 3


def preview(console: Console, plan: Plan) -> None:
    """What the search would do; nothing is written."""
    opening(console, plan, [])
    default = plan.default() or {}
    table = Table("parameter", "key", "values", "without a search", box=None)
    for name, dimension in plan.search.space.items():
        table.add_row(name, dimension.key, describe(dimension), str(default.get(name, "outside")))
    wide(console).print(table)
    for number, params in enumerate(first(plan, PREVIEWED)):
        say(console, f"trial {number}: {shown(params)}")
    say(console, f"folder: {plan.folder}" + (" (there already)" if plan.folder.exists() else ""))
    launcher, runs_dir = plan.base.launcher, Path(plan.base.machine.runs_dir)
    if isinstance(launcher, SlurmLauncher):  # every trial is submitted by itself, and asks for the same
        cluster = Cluster(launcher, runs_dir, Slurm(), call_sbatch)
        show_submissions(console, list(cluster.planned({run_id(plan.base): plan.base})))
    elif reason := refused_here([plan.base]):
        say(console, f"note: would be refused on this machine: {reason}")


def opening(console: Console, plan: Plan, trials: "Sequence[FrozenTrial]") -> None:
    """What is searched for, and how far it has come."""
    seeds = ", ".join(map(str, plan.seeds))
    say(console, f"{plan.search.title}, scale={plan.scale}: {plan.trials} settings x seeds {seeds}")
    tuning = plan.tuning
    where = "of the games that trials train on" if tuning.trained_on else "of the training split, held out of training"
    say(console, f"maximised: mean of {plan.metric} at the last step; sampler: {plan.search.sampler.name}")
    say(console, f"judged on {tuning.tasks} tasks {where}; no reported panel is tuned on")
    runs = [plan.base] * plan.trials * len(plan.seeds)
    for line in cost_lines(runs, runs):
        say(console, line)
    if plan.scale != "paper":
        seconds = PastTimes(Path(plan.base.machine.runs_dir)).seconds(plan.base)
        told = (
            f"{about(seconds * len(runs))} of one slot, as runs of their kind took on this machine" if seconds else ""
        )
        say(console, f"time of all {len(runs)} runs: {told or 'unknown, none of their kind was finished here yet'}")
    if trials:
        say(console, f"so far: {counts(trials)}")


def ending(console: Console, plan: Plan, trials: "Sequence[FrozenTrial]", files: Sequence[Path]) -> None:
    """How it went, and where to read on."""
    say(console, f"{plan.study_id}: {counts(trials)}")
    for path in files:
        say(console, f"    {path}")


def counts(trials: "Sequence[FrozenTrial]") -> str:
    """For example ``7 COMPLETE, 2 PRUNED``."""
    found = Counter(trial.state.name for trial in trials)
    return ", ".join(f"{count} {state}" for state, count in found.items()) or "no trials"


def shown(params: Params) -> str:
    """A trial's values in one line."""
    return " ".join(f"{name}={value}" for name, value in params.items())
