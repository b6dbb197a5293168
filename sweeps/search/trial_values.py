"""Values of complete trials, compared with the logs of their runs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError
from scpo.records import RunFolder, State
from scpo.schema.run import RunConfig
from sweeps.search.plan import Plan
from sweeps.search.study import BY_SEED
from sweeps.search.trial_runs import read_curve

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def value_notes(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[str]:
    """Notes on complete trials whose recorded values are not those of their runs any more.

    The study keeps the value that it has recorded. Runs that were deleted or go on are left out.
    """
    notes = []
    for trial in trials:
        if trial.state.name != "COMPLETE":
            continue
        for run_id, config in plan.runs(trial.params).items():
            recorded = trial.user_attrs[BY_SEED][str(config.seed)]
            damage = _disagreement(plan, run_id, config, recorded)
            if damage is not None:
                notes.append(
                    f"the recorded value of trial {trial.number} can no longer be checked against "
                    f"{run_id}: {damage}"
                )
    return notes


def _disagreement(plan: Plan, run_id: str, config: RunConfig, recorded: float) -> str | None:
    """Why a finished run does not show the value that was recorded; None if it does."""
    folder = RunFolder(Path(plan.base.machine.runs_dir) / run_id)
    if not folder.path.exists():
        return None
    try:
        if folder.read_status().state is not State.DONE:
            return None
        curve = read_curve(folder, config, plan.metric, finished=True)
    except RecordError as error:
        return str(error)
    last = curve[max(curve)] if curve else math.nan
    if last == recorded:
        return None
    return f"its last {plan.metric} is {last}, and {recorded} was recorded"
