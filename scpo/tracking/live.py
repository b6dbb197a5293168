"""What a person reads while a run goes on and when it is over, made of what is recorded anyway."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scpo.progress import about

SUCCESS = "success_rate"


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


def panels(record: Mapping[str, Any]) -> dict[str, float]:
    """Validation panel -> its success rate, of a line of metrics.jsonl that has any."""
    keys = [key.split("/") for key in record]
    names = [key[1] for key in keys if len(key) == 3 and key[0] == "val" and key[2] == SUCCESS]
    return {name: record[f"val/{name}/{SUCCESS}"] for name in names if record[f"val/{name}/{SUCCESS}"] is not None}


def before_after(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each validation panel: ``valid_seen: 3.3 % -> 51.7 % of 60 episodes (step 0 -> step 25)``."""
    measured = [record for record in records if panels(record)]
    if not measured:
        return []
    first, last = measured[0], measured[-1]
    lines = []
    for panel, rate in panels(last).items():
        episodes = last.get(f"val/{panel}/episodes")
        of = f" of {episodes:g} episodes" if episodes else ""
        start = panels(first).get(panel)
        if start is None or panels(first) == panels(last):
            lines.append(f"{panel}: success {100 * rate:.1f} %{of}")
        else:
            steps = f"step {first['step']} -> step {last['step']}"
            lines.append(f"{panel}: success {100 * start:.1f} % -> {100 * rate:.1f} %{of} ({steps})")
    return lines
