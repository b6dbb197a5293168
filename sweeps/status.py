"""``python -m sweeps status``: where each run stands."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from scpo.errors import RecordError
from scpo.tracking import RunFolder, State
from sweeps.slurm.observer import Observer
from sweeps.terminal import coloured, wide


@dataclass(frozen=True)
class RunStatus:
    """One line of the table. A DAMAGED run has the reason as its remark."""

    run_id: str
    state: State
    step: int = 0
    steps: int = 0
    attempt: int = 0
    commit: str | None = None
    remark: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def statuses(folders: Iterable[RunFolder], observer: Observer) -> list[RunStatus]:
    """One for each run."""
    return [_status(folder, observer) for folder in folders]


def _status(folder: RunFolder, observer: Observer) -> RunStatus:
    try:
        seen, status = observer.observe(folder), folder.read_status()
        remarks = [status.reason or "", observer.remark(folder, seen)]
    except RecordError as error:
        return RunStatus(folder.run_id, State.DAMAGED, remark=str(error))
    return RunStatus(
        run_id=folder.run_id,
        state=seen.state,
        step=status.step,
        steps=status.steps,
        attempt=status.attempt,
        commit=status.commit,
        remark="; ".join(filter(None, remarks)),
    )


def show_statuses(console: Console, rows: Sequence[RunStatus]) -> None:
    """One line a run, and how many are in which state."""
    wide(console).print(_table(rows))
    counts = Counter(row.state for row in rows)
    parts = [f"{count} {coloured(state)}" for state, count in sorted(counts.items())]
    console.print(f"{len(rows)} runs: {', '.join(parts)}" if rows else "no runs", highlight=False)


def watch(console: Console, read: Callable[[], Sequence[RunStatus]], seconds: float) -> None:
    """Show the table again and again until no run waits or runs."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            rows = read()
            live.update(_table(rows), refresh=True)
            if not any(row.state.live or row.state is State.PENDING for row in rows):
                return
            time.sleep(seconds)


def _table(rows: Iterable[RunStatus]) -> Table:
    table = Table("run", "state", "step", "attempt", "commit", "remark", box=None)
    for row in rows:
        known = row.state is not State.DAMAGED
        step, attempt = (f"{row.step}/{row.steps}", str(row.attempt)) if known else ("", "")
        table.add_row(row.run_id, coloured(row.state), step, attempt, (row.commit or "")[:8], escape(row.remark))
    return table
