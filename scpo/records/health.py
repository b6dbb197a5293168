"""Rules that say when a run needs a look: functions of what it has logged, so they can be replayed on any run."""

import fnmatch
import functools
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, TypeAdapter, ValidationError

from scpo.errors import ConfigError, first_line
from scpo.strict import Strict

RULES = Path(__file__).resolve().parents[2] / "conf" / "health.yaml"


Level = Literal["warn", "stop"]


class _OfMetric(Strict, ABC):
    """A rule about one metric; it speaks once it has held for ``steps`` logged values in a row."""

    metric: str
    steps: PositiveInt
    level: Level

    @abstractmethod
    def broken(self, values: Sequence[float]) -> Iterator[str]:
        """For each value, in order, what is wrong with it; empty: nothing."""


class Outside(_OfMetric):
    """Below ``low`` or above ``high``."""

    kind: Literal["outside"]
    low: float | None = None
    high: float | None = None

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for value in values:
            under, over = self.low is not None and value < self.low, self.high is not None and value > self.high
            bound = f"under {self.low:g}" if under else f"over {self.high:g}" if over else ""
            yield f"{value:.3g}, {bound}" if bound else ""


class Sinks(_OfMetric):
    """Below a share of the first value."""

    kind: Literal["sinks"]
    share: Annotated[float, Field(gt=0, lt=1)]

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for value in values:
            yield f"{value:.3g}, at the start {values[0]:.3g}" if value < self.share * values[0] else ""


class Rises(_OfMetric):
    """More than ``by`` above the lowest value so far."""

    kind: Literal["rises"]
    by: PositiveFloat

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        lowest = float("inf")
        for value in values:
            lowest = min(lowest, value)
            yield f"{value:.3g}, it was {lowest:.3g}" if value > lowest + self.by else ""


class Spikes(_OfMetric):
    """More than ``times`` the median of the ``window`` values before, and more than ``least``."""

    kind: Literal["spikes"]
    times: PositiveFloat
    window: PositiveInt
    least: NonNegativeFloat = 0.0

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for at, value in enumerate(values):
            before = values[max(0, at - self.window) : at]
            usual = statistics.median(before) if len(before) == self.window else None
            high = usual is not None and usual > 0 and value > max(self.times * usual, self.least)
            yield f"{value:.3g}, usually {usual:.3g}" if high else ""


class Lost(_OfMetric):
    """Back within ``margin`` of the first value after it was ``gain`` above it."""

    kind: Literal["lost"]
    gain: PositiveFloat
    margin: NonNegativeFloat

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        best = -float("inf")
        for value in values:
            start, best = values[0], max(best, value)
            lost = best >= start + self.gain and value <= start + self.margin
            yield f"{value:.3g}, it was up to {best:.3g} from {start:.3g}" if lost else ""


class Stalled(Strict):
    """No line for ``times`` the mean time between lines, and ``least_s`` seconds; asked of runs that are live."""

    kind: Literal["stalled"]
    times: PositiveFloat
    least_s: PositiveFloat
    level: Level


Rule = Annotated[Outside | Sinks | Rises | Spikes | Lost | Stalled, Field(discriminator="kind")]


@dataclass(frozen=True)
class Remark:
    """What a rule says of a run, and from which step on it held."""

    rule: str
    level: Level
    step: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at step {self.step}: {self.text}"


@functools.cache
def read_rules(path: Path = RULES) -> Mapping[str, Any]:
    """The rules by name; ConfigError that names the file and what is wrong in it."""
    try:
        return TypeAdapter(dict[str, Rule]).validate_python(yaml.safe_load(path.read_text()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {place}: got {first['input']!r}; {first['msg']}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {first_line(error)}") from None


def examine(records: Sequence[Mapping[str, Any]], rules: Mapping[str, Any] | None = None) -> list[Remark]:
    """What the rules say of the lines of a metrics.jsonl: of each rule and metric, when it first held."""
    remarks = []
    for name, rule in (read_rules() if rules is None else rules).items():
        if isinstance(rule, Stalled):
            continue
        for metric in _metrics(records, rule.metric):
            logged = [one for one in records if one.get(metric) is not None]
            row = 0  # it holds once it has held for as long as it must
            for one, text in zip(logged, rule.broken([float(one[metric]) for one in logged]), strict=True):
                row = row + 1 if text else 0
                if row == rule.steps:
                    remarks.append(Remark(name, rule.level, int(one["step"]), f"{metric} is {text}"))
                    break
    return sorted(remarks, key=lambda remark: remark.step)


def stalled(times: Sequence[Mapping[str, Any]], now: datetime, rules: Mapping[str, Any] | None = None) -> list[Remark]:
    """Whether a live run has been silent for too long, by the lines of its timing.jsonl."""
    at = [datetime.fromisoformat(line["at"]) for line in times if "at" in line]
    if len(at) < 3:
        return []
    silent, usual = (now - at[-1]).total_seconds(), (at[-1] - at[0]).total_seconds() / (len(at) - 1)
    return [
        Remark(name, rule.level, int(times[-1]["step"]), f"silent for {silent:.0f} s, a step takes {usual:.0f} s")
        for name, rule in (read_rules() if rules is None else rules).items()
        if isinstance(rule, Stalled) and silent > max(rule.least_s, rule.times * usual)
    ]


def _metrics(records: Sequence[Mapping[str, Any]], pattern: str) -> list[str]:
    """The logged metrics that it names; * stands for one part."""
    if "*" not in pattern:
        return [pattern]
    known = sorted({key for record in records for key in record})
    parts = pattern.count("/")
    return [key for key in known if key.count("/") == parts and fnmatch.fnmatchcase(key, pattern)]
