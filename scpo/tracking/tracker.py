"""What a trainer calls after each step: metrics to the truth on disk, timings beside them, a copy to W&B."""

import logging
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from scpo.errors import RecordError
from scpo.schema import RunConfig
from scpo.tracking.folder import RunFolder, StopRequest, now
from scpo.tracking.health import examine
from scpo.tracking.jsonlines import JsonLines
from scpo.tracking.live import StepLines
from scpo.tracking.mirror import WandbMirror
from scpo.tracking.states import State

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
        self._read()

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
        self._records.append({"step": step, **metrics})
        self._look_at_health()
        if self._lines:
            logger.info("%s", self._lines.line(step, metrics))

    def resume_at(self, step: int) -> None:
        """Forget what was logged after ``step``, the step of the checkpoint that training goes on from (-1: all)."""
        self._metrics.truncate_after(step)
        self._timing.truncate_after(step)
        last = self._metrics.last()
        self._last_step = -1 if last is None else int(last["step"])
        self._read()

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
