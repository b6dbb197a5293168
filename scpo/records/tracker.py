"""Tracker: what a trainer calls after each step; it writes the logs, the checksums and the W&B mirror."""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from scpo.errors import RecordError
from scpo.progress import about
from scpo.records.files import RUN_AGAIN, FileSum, RunningSum
from scpo.records.health import examine
from scpo.records.logs import SUCCESS, JsonLines, panels
from scpo.records.run_folders import RunFolder, now
from scpo.records.status import State, StopRequest
from scpo.records.wandb_mirror import WandbMirror
from scpo.schema import RunConfig

logger = logging.getLogger(__name__)


class Tracker:
    """Logs of one attempt; use it as a context manager, so that the W&B mirror is told how the attempt ended.

    ``metrics.jsonl`` gets one line a step (step 0: validation before training) with deterministic values only; what
    depends on the clock or the machine belongs into ``timing``.
    """

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self.folder = folder
        self._metrics = JsonLines(folder.metrics)
        self._timing = JsonLines(folder.timing)
        self._mirror = WandbMirror(folder, config)
        self._lines = StepLines(config.trainer.steps) if config.method.kind == "trained" else None
        self._read()
        self._sums = {log: RunningSum.of(log.whole_lines()) for log in (self._metrics, self._timing)}

    @property
    def sums(self) -> dict[str, FileSum]:
        """The logs as they are now: a checkpoint keeps them, so that a resumed run knows its own lines again."""
        return {log.path.name: seen.now() for log, seen in self._sums.items()}

    def log(self, step: int, metrics: Mapping[str, float], timing: Mapping[str, float]) -> None:
        """Record a finished step. On return it is on disk; W&B gets it when it can."""
        last = self._records[-1]["step"] if self._records else -1
        if step <= last:
            raise RecordError(
                f"{self.folder.metrics}: step {step} after step {last}; "
                "steps ascend, and a resumed run calls resume_at(step of its checkpoint) first"
            )
        self._append(self._timing, {"step": step, "at": now(), "host": socket.gethostname(), **timing})
        self._append(self._metrics, {"step": step, **metrics})
        self.folder.note_sums(self.sums, step=step)
        self._mirror.log(step, {**metrics, **timing})
        self._records.append({"step": step, **metrics})
        self._look_at_health()
        if self._lines:
            logger.info("%s", self._lines.line(step, metrics))

    def _append(self, log: JsonLines, record: Mapping[str, float | str]) -> None:
        self._sums[log].add(log.append(record))

    def resume_at(self, step: int, known: Mapping[str, FileSum] | None = None) -> None:
        """Forget what was logged after ``step``, the step of the checkpoint that training goes on from (-1: all).

        Args:
            step: The last one to keep.
            known: The logs as they were when the checkpoint was written, where it says so.

        Raises:
            RecordError: What was logged up to ``step`` is not all there: the run would end with other numbers.
        """
        kept = {log: log.up_to(step) for log in self._sums}
        seen = {log: RunningSum.of(lines) for log, lines in kept.items()}
        self._check_lines(step, kept[self._metrics])
        for log, one in seen.items():
            if known is not None and known.get(log.path.name, one.now()) != one.now():
                raise RecordError(
                    f"{log.path}: the lines up to step {step} are not those that were there when the checkpoint of "
                    f"that step was written. Restore the file, or d{RUN_AGAIN[1:]}"
                )
        self._sums = seen
        self.folder.note_sums(self.sums, step=max(step, 0))  # first: they hold for the longer logs too
        for log, lines in kept.items():
            log.replace(lines)
        self._read()

    def _check_lines(self, step: int, lines: bytes) -> None:
        steps = [record["step"] for record in self._metrics.parse(lines)]
        if step >= 0 and (not steps or steps[-1] != step or steps != sorted(set(steps))):
            end = steps[-1] if steps else "nothing"
            raise RecordError(
                f"{self._metrics.path} ends with {end}, the checkpoint to go on from is of step {step}: lines were "
                f"lost. Restore the file, or d{RUN_AGAIN[1:]}"
            )

    def _read(self) -> None:
        """What the rules of health look at, and what they have said of it before."""
        self._records: list[Mapping[str, Any]] = list(self._metrics.records())
        self._said = {(remark.rule, remark.text.partition(" ")[0]) for remark in examine(self._records)}

    def _look_at_health(self) -> None:
        """Say what the rules of conf/health.yaml find, each once; a rule with ``level: stop`` ends the run."""
        for remark in examine(self._records):
            if (remark.rule, remark.text.partition(" ")[0]) in self._said:
                continue
            self._said.add((remark.rule, remark.text.partition(" ")[0]))
            logger.warning("health: %s", remark)
            self._mirror.alert(f"{self.folder.run_id}: {remark.rule}", str(remark))
            if remark.level == "stop":
                self.folder.request_stop(StopRequest(state=State.CANCELLED, reason=f"health rule {remark}"))

    def close(self, failed: bool = False) -> None:
        """Close the logs and let W&B finish, within its time limit."""
        self._metrics.close()
        self._timing.close()
        self._mirror.finish(exit_code=int(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None) -> None:
        self.close(failed=kind is not None)


@dataclass
class StepLines:
    """A line for each step: ``step 3 of 20: success 41 %, credit on 2.3 steps a failure, 3.1 s, about 50 s left``.

    ``steps``: of the whole run; the time left is from the mean time a step of this attempt, validation
    included; its first line has none.
    """

    steps: int
    clock: Callable[[], float] = time.monotonic
    _first: tuple[float, int] | None = field(default=None, init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def line(self, step: int, metrics: Mapping[str, float]) -> str:
        """The line of a step that has just ended."""
        now = self.clock()
        parts = [*_told(metrics), f"{now - self._last:.1f} s"]
        if self._first is None:
            self._first = now, step
        elif step < self.steps:
            started, before = self._first
            parts.append(f"{about((now - started) / (step - before) * (self.steps - step))} left")
        self._last = now
        return f"step {step} of {self.steps}: {', '.join(parts)}"


def _told(metrics: Mapping[str, float]) -> Iterator[str]:
    if (success := metrics.get(f"train/{SUCCESS}")) is not None:
        yield f"success {100 * success:.0f} %"
    if credited := metrics.get("credit/steps"):
        yield f"credit on {credited:.1f} steps a failure"
    for panel, rate in panels(metrics).items():
        yield f"{panel} {100 * rate:.1f} %"
