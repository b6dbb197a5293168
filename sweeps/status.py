"""``python -m sweeps status``, ``logs`` and ``health``: states, logs and health of runs."""

import argparse
import contextlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from scpo.records import RunFolder, State, code_record, provenance, record_checks, verify
from scpo.records.health import RULES, Remark, examine, never_logged, read_rules, stalled
from scpo.records.logs import SUCCESS, panels, read_present
from scpo.records.wandb_mirror import WANDB_RECORD, url_of
from scpo.suggestions import did_you_mean
from sweeps.launchers.run_process import tail
from sweeps.launchers.slurm.job_records import log_without_run
from sweeps.launchers.slurm.observer import Observer
from sweeps.terminal import coloured, say, say_error, wide

# Seconds between two reads of a log that is followed.
LOG_POLL_S = 0.5

# Keys ``timing_s/<part>`` of timing.jsonl that add up to the time of a training step.
PARTS = ("step", "uncached", "validation", "diagnostics")


@dataclass(frozen=True)
class RunStatus:
    """One line of the table.

    Attributes:
        run_id: Name of its folder.
        state: Its observed state.
        step: Number of finished training steps.
        steps: Number of training steps in all.
        attempt: Number of its newest attempt.
        commit: Commit of the code that its last attempt used.
        train: Last success rate of training rollouts, from 0 to 1; None before the first.
        validation: Last success rate, from 0 to 1, of the first held-out validation panel; if there
            is none, of the panel of tasks that are trained on. None before the first validation.
        panel: Name of the panel of ``validation``.
        left_s: Estimated seconds until the end; None unless the run is running.
        remark: What else a user should know. For DAMAGED and UNREADABLE runs: the reason.
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
        # Checked first, because the error says that the folder is a copy of a run.
        record_checks.check_name(folder)
        seen = observer.observe(folder)
        verify.check_usable(folder, seen.state)
        status = folder.read_status()
        remarks = [status.reason or "", observer.remark(folder, seen), _mirror(folder)]
        remarks += code_record.resumes_by_other_code(folder)
        remarks.append(code_record.without_code(folder) or "")
        remarks.append(provenance.without_provenance(folder) or "")
        remarks += _uncommitted(folder)
        rates, step_s = _Rates(), None
        if damage := verify.rewritten(folder, seen.state):
            remarks.append(damage)
        else:
            rates, step_s = _progress_of(folder)
            for remark in remarks_of(folder, live=seen.state is State.RUNNING):
                remarks.append(f"{remark.level}: {remark}")
    except UnreadableError as error:
        return RunStatus(folder.run_id, State.UNREADABLE, remark=str(error))
    except ScpoError as error:
        return RunStatus(
            folder.run_id, State.DAMAGED, remark=record_checks.explained(folder, error)
        )

    # A job whose process has not begun yet is RUNNING too, but not alive.
    left_s = None
    if seen.state is State.RUNNING and seen.alive and step_s is not None:
        left_s = (status.steps - status.step) * step_s
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
        left_s=left_s,
        remark="; ".join(filter(None, remarks)),
    )


def _mirror(folder: RunFolder) -> str:
    """Address of the run in W&B; empty without one."""
    try:
        return url_of(folder) or ""
    except RecordError:
        # Not DAMAGED: no result depends on wandb.json.
        return (
            f"its address in W&B cannot be read ({WANDB_RECORD}). No result depends on it: restore "
            "it from a copy, or delete it"
        )


def _uncommitted(folder: RunFolder) -> list[str]:
    """A remark if the code of the last attempt had uncommitted changes; else empty."""
    attempts = folder.read_attempts()
    return ["uncommitted changes"] if attempts and attempts[-1].get("dirty") else []


@dataclass
class _Rates:
    """Last success rates; see ``RunStatus``."""

    train: float | None = None
    validation: float | None = None
    panel: str | None = None

    def update(self, record: Mapping[str, Any]) -> None:
        """Take the rates that a line of metrics.jsonl has; it may have both, one or none."""
        rate = record.get(f"train/{SUCCESS}")
        if rate is not None:
            self.train = rate
        found = panels(record)
        if found:
            held_out = [name for name in found if name != TRAINED_ON]
            self.panel = held_out[0] if held_out else TRAINED_ON
            self.validation = found[self.panel]


def _progress_of(folder: RunFolder) -> tuple[_Rates, float | None]:
    """Last success rates, and mean seconds per training step (None before the first)."""
    rates = _Rates()
    for record in read_present(folder, folder.metrics):
        rates.update(record)
    step_seconds = []
    # The first line is step 0, which only validates.
    for line in read_present(folder, folder.timing)[1:]:
        parts = [line.get(f"timing_s/{part}") for part in PARTS]
        step_seconds.append(sum(part for part in parts if part is not None))
    return rates, statistics.fmean(step_seconds) if step_seconds else None


def show_statuses(console: Console, rows: Sequence[RunStatus]) -> None:
    """Print the table of runs and the number of runs in each state."""
    wide(console).print(_table(rows))
    counts = Counter(row.state for row in rows)
    parts = [f"{count} {coloured(state)}" for state, count in sorted(counts.items())]
    console.print(
        f"{counted(len(rows), 'run')}: {', '.join(parts)}" if rows else "no runs", highlight=False
    )


def watch(console: Console, read: Callable[[], Sequence[RunStatus]], seconds: float) -> None:
    """Show the table, refreshed every ``seconds``, until no run waits or runs."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            # Live runs first, because a table longer than the screen is cut off.
            rows = sorted(read(), key=lambda row: not row.state.live)
            live.update(_table(rows), refresh=True)
            if not any(row.state.live or row.state is State.PENDING for row in rows):
                return
            time.sleep(seconds)


def _table(rows: Iterable[RunStatus]) -> Table:
    columns = ("run", "state", "step", "train", "validation", "left", "attempt", "commit", "remark")
    table = Table(*columns, box=None)
    for row in rows:
        step, attempt = f"{row.step}/{row.steps}", str(row.attempt)
        # Unknown for these.
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

    Args:
        folder: The run.
        live: True for a run in state RUNNING, which is also checked for a stall.
        rules: File of the rules.
    """
    by_name = read_rules(rules)
    remarks = examine(read_present(folder, folder.metrics), by_name)
    if live:
        remarks += stalled(read_present(folder, folder.timing), datetime.now(UTC), by_name)
    return remarks


def show_health(
    console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace
) -> bool:
    """Print the remarks on these runs; True if all could be read and none has a remark."""
    if not arguments.rules.is_file():
        raise ConfigError(
            f"--rules {arguments.rules}: there is no such file; {RULES} is one to copy"
        )

    by_run: dict[str, list[Remark]] = {}
    # Metrics that these runs log; collected only to check the user's own rules.
    logged: set[str] = set()
    all_read = True
    for folder in folders:
        try:
            if arguments.rules != RULES:
                logged.update(*read_present(folder, folder.metrics))
            live = folder.read_status().state is State.RUNNING
            by_run[folder.run_id] = remarks_of(folder, live=live, rules=arguments.rules)
        except UnreadableError as error:
            all_read = False
            say_error(console, f"{folder.run_id}: {error}")
        except RecordError as error:
            all_read = False
            say_error(console, str(error))

    # Before the first line of any metrics.jsonl, it is unknown what the runs will log.
    if logged:
        _warn_of_unlogged_metrics(logged, arguments.rules)
    if arguments.json:
        records = {}
        for run_id, remarks in by_run.items():
            records[run_id] = [vars(remark) for remark in remarks]
        console.print_json(json.dumps(records))
    else:
        _print_remarks(console, by_run, arguments.rules)
    return all_read and not any(by_run.values())


def _print_remarks(console: Console, by_run: Mapping[str, list[Remark]], rules: Path) -> None:
    """Print one line for each remark, and the number of runs with remarks."""
    for run_id, remarks in by_run.items():
        for remark in remarks:
            say(console, f"{run_id}: {remark.level}: {remark}")
    with_remarks = sum(1 for remarks in by_run.values() if remarks)
    say(
        console,
        f"{counted(len(by_run), 'run')} looked at, {with_remarks} with remarks ({rules.name})",
    )


def _warn_of_unlogged_metrics(logged: set[str], rules: Path) -> None:
    """Name rules whose metric no run logs: if it is misspelt, the rule never applies."""
    for rule, metric in never_logged(logged, read_rules(rules)):
        say(
            Console(stderr=True),
            f"{rules}: {rule}: none of these runs logs {metric}"
            f"{did_you_mean(metric, sorted(logged))}",
        )


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
class _FollowedLog:
    """Newest log of a run.

    Attributes:
        folder: The run.
        path: The log; another file once the run is started again. None before ``begin``.
        shown: Number of bytes of the log that were shown or skipped.
    """

    folder: RunFolder
    path: Path | None = None
    shown: int = 0

    def begin(self, lines: int) -> list[str]:
        """Return the last lines of the log; ``new_lines`` continues after them."""
        self.path = newest_log(self.folder)
        self.shown = self.path.stat().st_size if self.path.exists() else 0
        return tail(self.path, lines)

    def new_lines(self) -> list[str]:
        """Return complete lines since the last call; all lines of a new attempt."""
        path = newest_log(self.folder)
        # If the run was started again, its new attempt has a log of its own.
        if path != self.path:
            self.path = path
            self.shown = 0
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self.shown)
            data = log.read()
        # The last line may be incomplete; it is left for the next call.
        complete = data[: data.rfind(b"\n") + 1]
        self.shown += len(complete)
        return complete.decode(errors="replace").splitlines()

    @property
    def has_ended(self) -> bool:
        """True if no more lines will come unless the run is started again."""
        try:
            return self.folder.read_status().state not in (State.RUNNING, State.PENDING)
        except ScpoError:
            return True


def newest_log(folder: RunFolder) -> Path:
    """Log of a run's newest attempt, or of its job if the run has written nothing in it yet."""
    path = None
    # If the record of the job is damaged, the log of the run is still useful.
    with contextlib.suppress(RecordError):
        path = log_without_run(folder)
    return path or folder.latest.resolve() / "stdout.log"


def why_ended(folder: RunFolder, observer: Observer, log: Sequence[str]) -> list[str]:
    """One line with state, reason and job of a run that ended before it was DONE; else empty.

    Also empty if a line of ``log`` has the reason already.
    """
    try:
        seen = observer.observe(folder)
        reason = folder.read_status().reason or ""
        if seen.state not in (State.FAILED, State.INTERRUPTED, State.LOST, State.CANCELLED):
            return []
        parts = [reason, observer.remark(folder, seen, log=False)]
    except ScpoError:
        # `sweeps verify` reports damaged records; this command shows the log nevertheless.
        return []
    if reason and any(reason in line for line in log):
        return []
    return [f"{seen.state}: {'; '.join(filter(None, parts))}"] if any(parts) else []


def follow_logs(console: Console, folders: Sequence[RunFolder], lines: int) -> None:
    """Show the last ``lines`` of each log, and new lines until all runs have ended.

    Each line is prefixed with the run id.
    """
    logs = [_FollowedLog(folder) for folder in folders]
    for log in logs:
        _show_lines(console, log, log.begin(lines))
    while True:
        # Checked before the logs are read, because a run writes its last lines before it records
        # its end.
        all_ended = all(log.has_ended for log in logs)
        for log in logs:
            _show_lines(console, log, log.new_lines())
        if all_ended:
            return
        time.sleep(LOG_POLL_S)


def _show_lines(console: Console, log: _FollowedLog, lines: Sequence[str]) -> None:
    for line in lines:
        say(console, f"{log.folder.run_id}  {line}")
