"""``python -m sweeps status``, ``logs`` and ``health``: states, output and remarks of runs."""

import argparse
import contextlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from scpo.benchmarks import TRAINED_ON
from scpo.errors import ConfigError, RecordError, ScpoError, UnreadableError
from scpo.progress import about, counted
from scpo.records import RunFolder, State, code_record, record_checks, verify
from scpo.records.health import RULES, Remark, examine, never_logged, read_rules, stalled
from scpo.records.logs import SUCCESS, panels, read_present
from scpo.records.wandb_mirror import url_of
from scpo.suggestions import did_you_mean
from sweeps.launchers.run_process import tail
from sweeps.launchers.slurm.job_records import log_without_run
from sweeps.launchers.slurm.observer import Observer
from sweeps.terminal import coloured, say, say_error, wide

LOG_POLL_S = 0.5

# Parts of a step's time, as trainers log them.
PARTS = ("step", "uncached", "validation", "diagnostics")


@dataclass(frozen=True)
class RunStatus:
    """One line of the table; the remark of a DAMAGED or UNREADABLE run is the reason.

    Attributes:
        train: Last success rate of training rollouts, from 0 to 1; None before the first.
        validation: That of the first held-out validation panel; of tasks that are trained on only
            if there is no other.
        panel: Name of that panel.
        left_s: Estimated seconds until the end; None unless the run is running.
    """

    run_id: str
    state: State
    step: int = 0
    steps: int = 0
    attempt: int = 0
    commit: str | None = None
    train: float | None = None
    validation: float | None = None
    panel: str | None = None
    left_s: float | None = None
    remark: str = ""


def statuses(folders: Iterable[RunFolder], observer: Observer) -> list[RunStatus]:
    """State of each run, as a line of the table."""
    return [_status(folder, observer) for folder in folders]


def _status(folder: RunFolder, observer: Observer) -> RunStatus:
    try:
        # First, so that a copy of a run is named as one.
        record_checks.check_name(folder)
        seen = observer.observe(folder)
        verify.check_usable(folder, seen.state)
        status = folder.read_status()
        remarks = [status.reason or "", observer.remark(folder, seen), _mirror(folder)]
        remarks += code_record.resumes_by_other_code(folder)
        rates, step_s = _progress_of(folder)
        remarks += _uncommitted(folder)
        for remark in remarks_of(folder, live=seen.state is State.RUNNING):
            remarks.append(f"{remark.level}: {remark}")
    except UnreadableError as error:
        return RunStatus(folder.run_id, State.UNREADABLE, remark=str(error))
    except ScpoError as error:
        return RunStatus(folder.run_id, State.DAMAGED, remark=str(error))

    # Only a running run has a time left; that of a job whose process has not begun is unknown.
    running = seen.state is State.RUNNING and seen.alive and step_s is not None
    return RunStatus(
        run_id=folder.run_id,
        state=seen.state,
        step=status.step,
        steps=status.steps,
        attempt=status.attempt,
        commit=status.commit,
        train=rates.train,
        validation=rates.validation,
        panel=rates.panel,
        left_s=(status.steps - status.step) * (step_s or 0.0) if running else None,
        remark="; ".join(filter(None, remarks)),
    )


def _mirror(folder: RunFolder) -> str:
    """Address of the run in W&B; no number depends on the record of it."""
    try:
        return url_of(folder) or ""
    except RecordError:
        return "its address in W&B cannot be read (wandb.json)"


def _uncommitted(folder: RunFolder) -> list[str]:
    """Remark on a last attempt whose code had uncommitted changes; empty without any."""
    attempts = folder.read_attempts()
    return ["uncommitted changes"] if attempts and attempts[-1].get("dirty") else []


@dataclass
class _Rates:
    """Last success rates; see ``RunStatus``."""

    train: float | None = None
    validation: float | None = None
    panel: str | None = None

    def read(self, record: Mapping[str, Any]) -> None:
        """Take the rates of a line of metrics.jsonl, where it has any."""
        rate = record.get(f"train/{SUCCESS}")
        self.train = self.train if rate is None else rate
        found = panels(record)
        held_out = [name for name in found if name != TRAINED_ON]
        for name in [*held_out, *found][:1]:
            self.validation, self.panel = found[name], name


def _progress_of(folder: RunFolder) -> tuple[_Rates, float | None]:
    """Last success rates, and mean seconds per training step (None before the first)."""
    rates = _Rates()
    for record in read_present(folder, folder.metrics):
        rates.read(record)
    seconds = []
    # The first line is step 0, which only validates.
    for line in read_present(folder, folder.timing)[1:]:
        seconds.append(sum(line.get(f"timing_s/{part}") or 0.0 for part in PARTS))
    return rates, statistics.fmean(seconds) if seconds else None


def show_statuses(console: Console, rows: Sequence[RunStatus]) -> None:
    """Print the table of runs and the number of runs in each state."""
    wide(console).print(_table(rows))
    counts = Counter(row.state for row in rows)
    parts = [f"{count} {coloured(state)}" for state, count in sorted(counts.items())]
    console.print(
        f"{counted(len(rows), 'run')}: {', '.join(parts)}" if rows else "no runs", highlight=False
    )


def watch(console: Console, read: Callable[[], Sequence[RunStatus]], seconds: float) -> None:
    """Refresh the table every ``seconds`` until no run waits or runs."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            # Live runs first, because a long table is cut at the end of the screen.
            rows = sorted(read(), key=lambda row: not row.state.live)
            live.update(_table(rows), refresh=True)
            if not any(row.state.live or row.state is State.PENDING for row in rows):
                return
            time.sleep(seconds)


def _table(rows: Iterable[RunStatus]) -> Table:
    table = Table(
        "run",
        "state",
        "step",
        "train",
        "validation",
        "left",
        "attempt",
        "commit",
        "remark",
        box=None,
    )
    for row in rows:
        step, attempt = f"{row.step}/{row.steps}", str(row.attempt)
        if row.state in (State.DAMAGED, State.UNREADABLE):
            step, attempt = "", ""
        left = "" if row.left_s is None else about(row.left_s).removeprefix("about ")
        commit = escape((row.commit or "")[:8])
        table.add_row(
            escape(row.run_id),
            coloured(row.state),
            step,
            _percent(row.train),
            f"{_percent(row.validation)} {escape(row.panel or '')}".strip(),
            left,
            attempt,
            commit,
            escape(row.remark),
        )
    return table


def _percent(rate: float | None) -> str:
    return "" if rate is None else f"{100 * rate:.0f} %"


def remarks_of(folder: RunFolder, *, live: bool, rules: Path = RULES) -> list[Remark]:
    """Remarks of the health rules on a run; RecordError if its logs are damaged.

    ``live``: also look for a stall, which a run that has ended cannot have.
    """
    by_name = read_rules(rules)
    remarks = examine(read_present(folder, folder.metrics), by_name)
    if live:
        remarks += stalled(read_present(folder, folder.timing), datetime.now(UTC), by_name)
    return remarks


def show_health(
    console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace
) -> bool:
    """Print one line for each remark; True if there are none and every run could be read."""
    if not arguments.rules.is_file():
        raise ConfigError(
            f"--rules {arguments.rules}: there is no such file; {RULES} is one to copy"
        )

    by_run: dict[str, list[Remark]] = {}
    logged: set[str] = set()
    unread: list[str] = []
    for folder in folders:
        try:
            if arguments.rules != RULES:
                logged.update(*read_present(folder, folder.metrics))
            live = folder.read_status().state is State.RUNNING
            by_run[folder.run_id] = remarks_of(folder, live=live, rules=arguments.rules)
        except UnreadableError as error:
            unread.append(folder.run_id)
            say_error(console, f"{folder.run_id}: {error}")
        except RecordError as error:
            unread.append(folder.run_id)
            say_error(console, str(error))

    # A rule with a misspelt metric would never fire. Runs without a line do not show what they log.
    for name, metric in never_logged(logged, read_rules(arguments.rules)) if logged else ():
        say(
            Console(stderr=True),
            f"{arguments.rules}: {name}: none of these runs logs {metric}"
            f"{did_you_mean(metric, sorted(logged))}",
        )

    if arguments.json:
        records = {}
        for name, remarks in by_run.items():
            records[name] = [vars(remark) for remark in remarks]
        console.print_json(json.dumps(records))
    else:
        for name, remarks in by_run.items():
            for remark in remarks:
                say(console, f"{name}: {remark.level}: {remark}")
        marked = sum(map(bool, by_run.values()))
        say(
            console,
            f"{counted(len(by_run), 'run')} looked at, {marked} with remarks "
            f"({arguments.rules.name})",
        )
    return not unread and not any(by_run.values())


def add_health_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``health``, apart from the patterns."""
    parser.add_argument(
        "--rules",
        type=Path,
        default=RULES,
        help="another file of rules (default: conf/health.yaml)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


@dataclass
class _Followed:
    """Newest log of a run, and the number of bytes shown."""

    folder: RunFolder
    path: Path | None = field(default=None)
    shown: int = 0

    def begin(self, lines: int) -> list[str]:
        """Return the end of the log and skip the rest of it."""
        self.path = self._newest()
        self.shown = self.path.stat().st_size if self.path.exists() else 0
        return tail(self.path, lines)

    def new(self) -> list[str]:
        """Return complete lines since the last call; all lines of a new attempt."""
        path = self._newest()
        # If the run was started again, its new attempt has a log of its own.
        if path != self.path:
            self.path = path
            self.shown = 0
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self.shown)
            data = log.read()
        # A line that is still being written is shown with the next call.
        whole = data[: data.rfind(b"\n") + 1]
        self.shown += len(whole)
        return whole.decode(errors="replace").splitlines()

    @property
    def over(self) -> bool:
        """True if no more lines will come unless the run is started again."""
        try:
            return self.folder.read_status().state not in (State.RUNNING, State.PENDING)
        except ScpoError:
            return True

    def _newest(self) -> Path:
        return newest_log(self.folder)


def newest_log(folder: RunFolder) -> Path:
    """Log of a run's newest attempt, or of its job if that has not come to an attempt."""
    path = None
    # The log of a run is of use when another record of it is damaged.
    with contextlib.suppress(RecordError):
        path = log_without_run(folder)
    return path or folder.latest.resolve() / "stdout.log"


def why_ended(folder: RunFolder, observer: Observer, log: Sequence[str]) -> list[str]:
    """State, reason and job of a run that ended before it was done, if ``log`` has no reason."""
    try:
        seen = observer.observe(folder)
        reason = folder.read_status().reason or ""
        if seen.state not in (State.FAILED, State.INTERRUPTED, State.LOST, State.CANCELLED):
            return []
        parts = [reason, observer.remark(folder, seen, log=False)]
    except ScpoError:
        # `verify` names what is damaged; the log may be of use.
        return []
    if reason and any(reason in line for line in log):
        return []
    return [f"{seen.state}: {'; '.join(filter(None, parts))}"] if any(parts) else []


def follow_logs(console: Console, folders: Sequence[RunFolder], lines: int) -> None:
    """Show the ends of the logs and new lines, prefixed with the run id, until all runs end."""
    followed = [_Followed(folder) for folder in folders]
    for log in followed:
        _show_lines(console, log, log.begin(lines))
    while True:
        # Before the logs are read: a run writes its last lines before it records its end.
        over = all(log.over for log in followed)
        for log in followed:
            _show_lines(console, log, log.new())
        if over:
            return
        time.sleep(LOG_POLL_S)


def _show_lines(console: Console, log: _Followed, lines: Sequence[str]) -> None:
    for line in lines:
        say(console, f"{log.folder.run_id}  {line}")
