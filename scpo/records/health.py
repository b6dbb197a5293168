"""Health rules of conf/health.yaml: functions of a log, applicable to live and finished runs."""

import fnmatch
import functools
import statistics
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from scpo.errors import ConfigError
from scpo.records.files import yaml_problem
from scpo.strict import Strict

RULES = Path(__file__).resolve().parents[2] / "conf" / "health.yaml"
Level = Literal["warn", "stop"]


class _OfMetric(Strict, ABC):
    """A rule about one metric; it fires after ``steps`` bad values in a row."""

    metric: str
    steps: PositiveInt
    level: Level

    @abstractmethod
    def broken(self, values: Sequence[float]) -> Iterator[str]:
        """Yield a description of the problem of each value, in order; empty for a good value."""


class Outside(_OfMetric):
    """The value is below ``low`` or above ``high``."""

    kind: Literal["outside"]
    low: float | None = None
    high: float | None = None

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for value in values:
            if self.low is not None and value < self.low:
                yield f"{value:.3g}, under {self.low:g}"
            elif self.high is not None and value > self.high:
                yield f"{value:.3g}, over {self.high:g}"
            else:
                yield ""


class Sinks(_OfMetric):
    """The value is below a share of the first value."""

    kind: Literal["sinks"]
    share: Annotated[float, Field(gt=0, lt=1)]

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for value in values:
            sunk = value < self.share * values[0]
            yield f"{value:.3g}, at the start {values[0]:.3g}" if sunk else ""


class Rises(_OfMetric):
    """The value is more than ``by`` above the lowest value so far."""

    kind: Literal["rises"]
    by: PositiveFloat

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        lowest = float("inf")
        for value in values:
            lowest = min(lowest, value)
            yield f"{value:.3g}, it was {lowest:.3g}" if value > lowest + self.by else ""


class Spikes(_OfMetric):
    """The value is above ``times`` the median of the ``window`` values before, and ``least``."""

    kind: Literal["spikes"]
    times: PositiveFloat
    window: PositiveInt
    least: NonNegativeFloat = 0.0

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        for index, value in enumerate(values):
            before = values[max(0, index - self.window) : index]
            if len(before) < self.window:
                yield ""
                continue
            usual = statistics.median(before)
            # With a median of 0, every value above ``least`` would be a spike.
            spike = usual > 0 and value > max(self.times * usual, self.least)
            yield f"{value:.3g}, usually {usual:.3g}" if spike else ""


class Lost(_OfMetric):
    """The value is back within ``margin`` of the first one, after it was ``gain`` above it."""

    kind: Literal["lost"]
    gain: PositiveFloat
    margin: NonNegativeFloat

    def broken(self, values: Sequence[float]) -> Iterator[str]:
        best = -float("inf")
        for value in values:
            start = values[0]
            best = max(best, value)
            lost = best >= start + self.gain and value <= start + self.margin
            yield f"{value:.3g}, it was up to {best:.3g} from {start:.3g}" if lost else ""


class Stalled(Strict):
    """A live run has no new line for ``times`` the mean time between lines and ``least_s`` s."""

    kind: Literal["stalled"]
    times: PositiveFloat
    least_s: PositiveFloat
    level: Level


Rule = Annotated[Outside | Sinks | Rises | Spikes | Lost | Stalled, Field(discriminator="kind")]


@dataclass(frozen=True)
class Remark:
    """A rule that fired, with the step and a description."""

    rule: str
    level: Level
    step: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at step {self.step}: {self.text}"


@functools.cache
def read_rules(path: Path = RULES) -> Mapping[str, Any]:
    """Read the rules, by name.

    Raises:
        ConfigError: The file is not YAML, or a rule is invalid.
    """
    try:
        return TypeAdapter(dict[str, Rule]).validate_python(yaml.safe_load(path.read_text()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {place}: got {first['input']!r}; {first['msg']}") from None
    except yaml.YAMLError as error:
        raise ConfigError(yaml_problem(path, error)) from None


def examine(
    records: Sequence[Mapping[str, Any]], rules: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Apply the rules to the lines of a metrics.jsonl.

    Returns:
        One remark for each rule and metric that fired, at the first such step, sorted by step.
        Values that are not numbers are skipped.
    """
    remarks = []
    for name, rule in (read_rules() if rules is None else rules).items():
        if isinstance(rule, Stalled):
            continue
        for metric in _metrics(records, rule.metric):
            logged = [line for line in records if isinstance(line.get(metric), int | float)]
            # Rules get the whole curve, because most compare a value with earlier ones.
            values = [float(line[metric]) for line in logged]
            in_a_row = 0
            for line, text in zip(logged, rule.broken(values), strict=True):
                in_a_row = in_a_row + 1 if text else 0
                # Reported only once, when it first fires.
                if in_a_row == rule.steps:
                    step = int(line["step"])
                    remarks.append(Remark(name, rule.level, step, f"{metric} is {text}"))
                    break
    return sorted(remarks, key=lambda remark: remark.step)


def stalled(
    times: Sequence[Mapping[str, Any]], now: datetime, rules: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Remarks on a live run that has logged nothing for too long, from its timing.jsonl."""
    logged = [datetime.fromisoformat(line["at"]) for line in times if "at" in line]
    # At least two intervals, because the first step compiles and fills caches.
    if len(logged) < 3:
        return []
    silent = (now - logged[-1]).total_seconds()
    usual = (logged[-1] - logged[0]).total_seconds() / (len(logged) - 1)
    remarks = []
    for name, rule in (read_rules() if rules is None else rules).items():
        if isinstance(rule, Stalled) and silent > max(rule.least_s, rule.times * usual):
            text = f"silent for {silent:.0f} s, a step takes {usual:.0f} s"
            remarks.append(Remark(name, rule.level, int(times[-1]["step"]), text))
    return remarks


def never_logged(logged: Collection[str], rules: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and metric of each rule whose metric is not among the logged ones.

    Metrics of conf/health.yaml are passed over: some runs lack them, such as those without credit.
    """
    shipped = {rule.metric for rule in read_rules().values() if not isinstance(rule, Stalled)}
    for name, rule in rules.items():
        if isinstance(rule, Stalled) or rule.metric in shipped:
            continue
        if not any(metric in logged for metric in _metrics([dict.fromkeys(logged)], rule.metric)):
            yield name, rule.metric


def _metrics(records: Sequence[Mapping[str, Any]], pattern: str) -> list[str]:
    """Logged metrics that match a pattern, in which * matches one part of a name."""
    if "*" not in pattern:
        return [pattern]
    known = sorted({key for record in records for key in record})
    parts = pattern.count("/")
    # The number of slashes is compared, because fnmatch's * matches slashes, too.
    return [key for key in known if key.count("/") == parts and fnmatch.fnmatchcase(key, pattern)]
