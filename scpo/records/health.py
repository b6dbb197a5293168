"""Health rules of conf/health.yaml, applied to the logs of live and finished runs."""

import fnmatch
import functools
import statistics
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from scpo.errors import ConfigError
from scpo.records.user_yaml import read_user_yaml
from scpo.strict import Strict

RULES = Path(__file__).resolve().parents[2] / "conf" / "health.yaml"
Level = Literal["warn", "stop"]


class _OfMetric(Strict, ABC):
    """A rule about the values of a metric; it fires after ``steps`` bad values in a row.

    Attributes:
        metric: Name of the metric; with *, a pattern (see ``_metrics``).
    """

    metric: str
    steps: PositiveInt
    level: Level

    @abstractmethod
    def broken(self, values: Sequence[float]) -> Iterator[str]:
        """Yield for each value, in order, a description of its problem; empty for a good value."""


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
    """The value exceeds ``least`` and ``times`` the median of the ``window`` values before it."""

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
    """The value was ``gain`` above the first one, and is now at most ``margin`` above it."""

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
    """A live run logs nothing for ``least_s`` seconds and ``times`` the mean time between lines."""

    kind: Literal["stalled"]
    times: PositiveFloat
    least_s: PositiveFloat
    level: Level


Rule = Annotated[Outside | Sinks | Rises | Spikes | Lost | Stalled, Field(discriminator="kind")]


@dataclass(frozen=True)
class Remark:
    """A rule that fired, with the step at which it did and a description of the problem."""

    rule: str
    level: Level
    step: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at step {self.step}: {self.text}"


@functools.cache
def read_rules(path: Path = RULES) -> Mapping[str, Any]:
    """Read the rules of a file: name -> rule.

    Raises:
        ConfigError: The file is not YAML, or a rule is invalid.
    """
    try:
        return TypeAdapter(dict[str, Rule]).validate_python(read_user_yaml(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {place}: got {first['input']!r}; {first['msg']}") from None


def examine(
    records: Sequence[Mapping[str, Any]], rules: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Apply the rules to the lines of a metrics.jsonl; values that are not numbers are skipped.

    Returns:
        One remark for each rule and metric for which it fired, at the first step at which it did,
        sorted by step.
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
                if in_a_row == rule.steps:
                    step = int(line["step"])
                    remarks.append(Remark(name, rule.level, step, f"{metric} is {text}"))
                    break
    return sorted(remarks, key=lambda remark: remark.step)


def stalled(
    times: Sequence[Mapping[str, Any]], now: datetime, rules: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Remarks on a live run that has logged nothing for too long.

    Args:
        times: The lines of its timing.jsonl.
        now: Current time.
        rules: Name -> rule; None: those of conf/health.yaml.
    """
    logged = [datetime.fromisoformat(line["at"]) for line in times if "at" in line]
    # At least two intervals: the first step takes longer, because it compiles and fills caches.
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
    """Yield name and metric of each rule whose metric was never logged.

    Metrics of conf/health.yaml are skipped, because some runs do not log them, such as runs without
    credit.
    """
    shipped = {rule.metric for rule in read_rules().values() if not isinstance(rule, Stalled)}
    # `_metrics` finds names in the lines of a log: one line with all logged metrics is enough.
    line = dict.fromkeys(logged)
    for name, rule in rules.items():
        if isinstance(rule, Stalled) or rule.metric in shipped:
            continue
        if not any(metric in line for metric in _metrics([line], rule.metric)):
            yield name, rule.metric


def _metrics(records: Sequence[Mapping[str, Any]], pattern: str) -> list[str]:
    """Logged metrics that match a pattern, in which * matches within one part of a name.

    A pattern without * is returned as it is, even if no such metric is logged.
    """
    if "*" not in pattern:
        return [pattern]
    known = sorted({key for record in records for key in record})
    # The numbers of slashes must be equal, because fnmatch's * matches slashes, too.
    slashes = pattern.count("/")
    candidates = [key for key in known if key.count("/") == slashes]
    return [key for key in candidates if fnmatch.fnmatchcase(key, pattern)]
