"""What a trainer calls after each step: metrics to the truth on disk, timings beside them, a copy to W&B."""

import logging
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from scpo.errors import RecordError
from scpo.schema import RunConfig
from scpo.tracking.folder import RunFolder, now
from scpo.tracking.jsonlines import JsonLines
from scpo.tracking.live import StepLines
from scpo.tracking.mirror import WandbMirror

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
        last = self._metrics.last()
        self._last_step = -1 if last is None else int(last["step"])

    def log(self, step: int, metrics: Mapping[str, float], timing: Mapping[str, float]) -> None:
        """Record a finished step. On return it is on disk; W&B gets it when it can."""
        if step <= self._last_step:
            raise RecordError(
                f"{self.folder.metrics}: step {step} after step {self._last_step}; "
                "steps ascend, and a resumed run calls resume_at(step of its checkpoint) first"
            )
        self._timing.append({"step": step, "at": now(), "host": socket.gethostname(), **timing})
        self._metrics.append({"step": step, **metrics})
        self._last_step = step
        if self.folder.status.exists():
            self.folder.update_status(step=step)
        self._mirror.log(step, {**metrics, **timing})
        if self._lines:
            logger.info("%s", self._lines.line(step, metrics))

    def resume_at(self, step: int) -> None:
        """Forget what was logged after ``step``, the step of the checkpoint that training goes on from (-1: all)."""
        self._metrics.truncate_after(step)
        self._timing.truncate_after(step)
        last = self._metrics.last()
        self._last_step = -1 if last is None else int(last["step"])

    def close(self, failed: bool = False) -> None:
        """Close the logs and let W&B finish, within its time limit."""
        self._metrics.close()
        self._timing.close()
        self._mirror.finish(exit_code=int(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None) -> None:
        self.close(failed=kind is not None)
