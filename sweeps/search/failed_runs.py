"""Runs that failed a trial, as they were then: ``retry`` lets the search try its settings again.

A trial that has failed stays failed in the study, and ``retry`` writes to the run only. So the
trial records how its failed runs were, and the next call of the search compares them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import RecordError
from scpo.records import RunFolder, State

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# User attribute of a failed trial: its dead runs that `retry` can clear, by id.
DEAD = "dead"

# Keys of such a run: its number of failures, and whether it waited for `retry` for another cause.
FAILURES, WAITS = "failures", "waits"


def clearable(runs_dir: Path, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The runs among these that ``retry`` can clear, as they are now, for ``DEAD``."""
    records = {}
    for run_id in run_ids:
        folder = RunFolder(runs_dir / run_id)
        try:
            status = folder.read_status()
            # Cancelled, also in the queue, or died without a record.
            waits = _stop_asked(folder) or status.state in (State.CANCELLED, State.RUNNING)
        except RecordError:
            # Damaged, or its folder could not be made: `retry` does not change it.
            continue
        if waits or status.failures:
            records[run_id] = {FAILURES: status.failures, WAITS: waits}
    return records


def any_cleared(runs_dir: Path, trial: "FrozenTrial") -> bool:
    """True if a run that failed a trial may start again since, or is DONE now."""
    dead = trial.user_attrs.get(DEAD, {})
    return any(_cleared(RunFolder(runs_dir / run_id), then) for run_id, then in dead.items())


def _cleared(folder: RunFolder, then: dict[str, Any]) -> bool:
    try:
        now = folder.read_status()
        stop = _stop_asked(folder)
    except RecordError:
        return False
    if now.state is State.DONE or now.failures < then[FAILURES]:
        return True
    may_start = now.state in (State.PENDING, State.INTERRUPTED) and not stop
    return bool(then[WAITS]) and may_start


def _stop_asked(folder: RunFolder) -> bool:
    """True if the run was asked to end for good, as `cancel` asks it."""
    request = folder.read_stop()
    return request is not None and request.state.settled
