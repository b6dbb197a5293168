"""What a search says on the console."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from sweeps.compose.gpu_hours import gpu_hours
from sweeps.search.plan import Plan
from sweeps.search.proposals import first
from sweeps.search.space import Params, describe
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


def opening(console: Console, plan: Plan, trials: "Sequence[FrozenTrial]") -> None:
    """What is searched for, and how far it has come."""
    seeds = ", ".join(map(str, plan.seeds))
    say(console, f"{plan.search.title}, scale={plan.scale}: {plan.trials} settings x seeds {seeds}")
    say(console, f"maximised: mean of {plan.metric} at the last step; sampler: {plan.search.sampler.name}")
    total, _ = gpu_hours([plan.base] * plan.trials * len(plan.seeds))
    if total:
        say(console, f"at most {total:,.0f} GPU-hours (4 x A800, from the paper's SCPO runs: appendix A.2)")
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
