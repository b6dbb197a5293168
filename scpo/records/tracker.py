"""Tracker, which a trainer calls after each step: writes logs, checksums and the W&B mirror."""

import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from scpo.errors import RecordError
from scpo.progress import about
from scpo.records.files import RUN_AGAIN, FileSum, RunningSum
from scpo.records.health import Remark, examine
from scpo.records.logs import SUCCESS, JsonLines, changed_lines, panels
from scpo.records.run_folders import RunFolder, now
from scpo.records.status import State, StopRequest
from scpo.records.wandb_mirror import WandbMirror
from scpo.schema.run import RunConfig

logger = logging.getLogger(__name__)


class Tracker:
    """Logs of one attempt; a context manager, so that W&B is informed of the attempt's end.

    ``metrics.jsonl`` gets one line per step (step 0: validation before training) with deterministic
    values only. Values that depend on the clock or the machine are written to ``timing.jsonl``.
    """

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self.folder = folder
        self._metrics = JsonLines(folder.metrics)
        self._timing = JsonLines(folder.timing)
        self._mirror = WandbMirror(folder, config)
        trained = config.method.kind == "trained"
        self._lines = StepLines(config.trainer.steps) if trained else None
        self._read()
        self._sums = {}
        for log in (self._metrics, self._timing):
            self._sums[log] = RunningSum.of(log.whole_lines())

    @property
    def sums(self) -> dict[str, FileSum]:
        """Checksums of the logs, for checkpoints: a resumed run verifies its logs by them."""
        return {log.path.name: seen.now() for log, seen in self._sums.items()}

    def log(self, step: int, metrics: Mapping[str, float], timing: Mapping[str, float]) -> None:
        """Record a finished step. On return it is on disk; W&B gets it later.

        Args:
            step: Number of the step.
            metrics: Deterministic values.
            timing: Values that depend on the clock or the machine.

        Raises:
            RecordError: ``step`` is not above the last one.
        """
        last = self._records[-1]["step"] if self._records else -1
        if step <= last:
            raise RecordError(
                f"{self.folder.metrics}: step {step} after step {last}; "
                "steps ascend, and a resumed run calls resume_at(step of its checkpoint) first"
            )

        # The timing is written first: a step counts as recorded as soon as its metrics are written.
        host = socket.gethostname()
        self._append(self._timing, {"step": step, "at": now(), "host": host, **timing})
        self._append(self._metrics, {"step": step, **metrics})
        self.folder.note_sums(self.sums, step=step)
        # W&B comes after the disk, so that everything it shows is recorded.
        self._mirror.log(step, {**metrics, **timing})
        self._records.append({"step": step, **metrics})
        self._check_health()
        if self._lines:
            logger.info("%s", self._lines.line(step, metrics))

    def _append(self, log: JsonLines, record: Mapping[str, float | str]) -> None:
        self._sums[log].add(log.append(record))

    def resume_at(self, step: int, known: Mapping[str, FileSum] | None = None) -> None:
        """Drop all lines after ``step``, the step of the checkpoint (-1: drop all lines).

        Args:
            step: The last step to keep.
            known: Checksums of the logs in the checkpoint.

        Raises:
            RecordError: Lines up to ``step`` are missing or changed.
        """
        kept = {log: log.up_to(step) for log in self._sums}
        sums = {log: RunningSum.of(lines) for log, lines in kept.items()}
        # Verified before anything is changed, so that a refused resume leaves the folder as it is.
        self._check_lines(step, kept[self._metrics])
        for log, running in sums.items():
            present = running.now()
            if known is not None and known.get(log.path.name, present) != present:
                raise changed_lines(log.path, step)

        if step < 0 and self._records and self._records[-1]["step"] > 0:
            last = self._records[-1]["step"]
            logger.warning("no checkpoint: the run starts again and repeats its %d steps", last)
        self._sums = sums

        # Recorded before the logs are cut: if the process is killed in between, the checksums are
        # those of the first lines of longer logs, which is valid for an unfinished run.
        self.folder.note_sums(self.sums, step=max(step, 0))
        for log, lines in kept.items():
            log.replace(lines)
        self._read()

    def _check_lines(self, step: int, lines: bytes) -> None:
        """Verify that the kept lines of metrics.jsonl ascend to ``step``, the last one."""
        steps = [record["step"] for record in self._metrics.parse(lines)]
        if step < 0:
            return
        if not steps or steps[-1] != step or steps != sorted(set(steps)):
            end = steps[-1] if steps else "nothing"
            raise RecordError(
                f"{self._metrics.path} ends with {end}, the checkpoint to go on from is of step "
                f"{step}: lines were lost. {RUN_AGAIN}"
            )

    def _read(self) -> None:
        """Read the earlier lines, and the health remarks that were reported with them."""
        self._records: list[Mapping[str, Any]] = list(self._metrics.records())
        self._reported = {_key(remark) for remark in examine(self._records)}

    def _check_health(self) -> None:
        """Report each remark of the health rules once; those of ``level: stop`` end the run."""
        for remark in examine(self._records):
            # Otherwise, a rule that stays violated would be reported at every step.
            if _key(remark) in self._reported:
                continue
            self._reported.add(_key(remark))
            logger.warning("health: %s", remark)
            self._mirror.alert(f"{self.folder.run_id}: {remark.rule}", str(remark))
            if remark.level == "stop":
                # CANCELLED, because a sweep would start an interrupted run again.
                request = StopRequest(state=State.CANCELLED, reason=f"health rule {remark}")
                self.folder.request_stop(request)

    def close(self, failed: bool = False) -> None:
        """Close the logs and let W&B finish, within its time limit."""
        self._metrics.close()
        self._timing.close()
        self._mirror.finish(exit_code=int(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self.close(failed=kind is not None)


def _key(remark: Remark) -> tuple[str, str]:
    """Rule and metric of a remark, without its values."""
    return remark.rule, remark.text.partition(" ")[0]


@dataclass
class StepLines:
    """Log line of a step: ``step 3 of 20: success 41 %, credit on 2.3 steps a failure, 3.0 s``.

    All lines but the first also have an estimate of the time left, from the mean time of a step in
    this attempt, validation included.
    """

    steps: int
    clock: Callable[[], float] = time.monotonic
    _first: tuple[float, int] | None = field(default=None, init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def line(self, step: int, metrics: Mapping[str, float]) -> str:
        """The line of a step that has just ended."""
        present = self.clock()
        parts = [*_summary(metrics), f"{present - self._last:.1f} s"]
        if self._first is None:
            # The first step of an attempt also loads models and games, so it gives no estimate.
            self._first = present, step
        elif step < self.steps:
            started, first_step = self._first
            per_step = (present - started) / (step - first_step)
            parts.append(f"{about(per_step * (self.steps - step))} left")
        self._last = present
        return f"step {step} of {self.steps}: {', '.join(parts)}"


def _summary(metrics: Mapping[str, float]) -> list[str]:
    parts = []
    success = metrics.get(f"train/{SUCCESS}")
    if success is not None:
        parts.append(f"success {100 * success:.0f} %")
    credited = metrics.get("credit/steps")
    if credited:
        parts.append(f"credit on {credited:.1f} steps a failure")
    for panel, rate in panels(metrics).items():
        parts.append(f"{panel} {100 * rate:.1f} %")
    return parts
