"""Lines and measures that a run's configuration asks for and its log does not have.

A checksum shows that a file is as it was written. It shows nothing to someone who removes a line
and writes the checksum anew, or about a program that forgot to log: a mean over the values that
are left would look like any other. What a run logs follows from its configuration, so a gap is
found without a checksum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from scpo.errors import RecordError
from scpo.records.files import RUN_AGAIN
from scpo.records.ranges import complaint

TRAIN, VALIDATION = "train/", "val/"
SUCCESS_RATE = "success_rate"


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Validation(_Lenient):
    every: PositiveInt


class _Trainer(_Lenient):
    name: str
    steps: PositiveInt
    validation: _Validation


class _Method(_Lenient):
    kind: str = "trained"


class _Env(_Lenient):
    validation_panels: dict[str, Any]


class _Plan(_Lenient):
    """The part of a configuration that decides what is logged at which step."""

    trainer: _Trainer
    method: _Method
    env: _Env

    @property
    def prompted(self) -> bool:
        return self.method.kind == "prompted"

    @property
    def every_step(self) -> bool:
        """Return True if each step has a line: verl may log every few, prompted methods log two."""
        return self.trainer.name == "local" and not self.prompted

    def validations(self, last: int) -> set[int]:
        """Steps up to ``last`` at which it validates."""
        if self.prompted:
            return {0, last}
        due = set(range(0, last + 1, self.trainer.validation.every))
        return due | {last} if last == self.trainer.steps else due


def is_due(metric: str) -> bool:
    """Return True for a metric of training or validation, which each line of its kind has."""
    return metric.startswith((TRAIN, VALIDATION))


def numbers_by_metric(records: Iterable[Mapping[str, Any]]) -> dict[str, set[int]]:
    """Metric of training or validation -> steps at which the lines have a number for it."""
    found: dict[str, set[int]] = {}
    for record in records:
        for metric, value in record.items():
            # null is what a mean over nothing is logged as
            if is_due(metric) and isinstance(value, (int, float)):
                found.setdefault(metric, set()).add(record["step"])
    return found


def gap(
    config: Mapping[str, Any],
    steps: Collection[int],
    numbers: Mapping[str, Collection[int]],
    *,
    every_line: bool = True,
) -> str | None:
    """Describe the first gap in what a run logged.

    Args:
        config: The run's configuration. One that does not tell what is logged at which step, as of
            another program, has no gap.
        steps: The steps that have a line, in ascending order.
        numbers: See :func:`numbers_by_metric`.
        every_line: Whether a missing line between two others is a gap, too. W&B drops what a
            resumed run logs again.

    Returns:
        For example ``has no number for val/test/success_rate at step 20, which a validation logs:
        it was lost``; None without a gap.
    """
    try:
        plan = _Plan.model_validate(config)
    except ValidationError:
        return None
    if not steps:
        return None
    last = max(steps)
    if every_line and plan.every_step and len(steps) != last + 1:
        missing = next(step for step in range(last + 1) if step not in steps)
        return f"has no line of step {missing}, and later ones: lines were lost"
    due = plan.validations(last)
    wanted = {f"{VALIDATION}{panel}/{SUCCESS_RATE}" for panel in plan.env.validation_panels}
    wanted |= {metric for metric in numbers if metric.startswith(VALIDATION)}
    for metric in sorted(wanted):
        if lacking := due.difference(numbers.get(metric, ())):
            return _missing(metric, min(lacking), "a validation")
    if every_line and plan.every_step:
        trained = set(steps) - {0}
        for metric in sorted(numbers):
            if metric.startswith(TRAIN) and (lacking := trained.difference(numbers[metric])):
                return _missing(metric, min(lacking), "a step of training")
    return None


def check(log: Path, config: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
    """Verify that a metrics.jsonl has no gap, and rates of training and validation in their range.

    Args:
        log: The file, for the message.
        config: The run's configuration.
        records: The lines of the file.

    Raises:
        RecordError: A number made of what is there would look like that of a whole run.
    """
    for record in records:
        for metric, value in record.items():
            if not is_due(metric) or not isinstance(value, (int, float)):
                continue
            if reason := complaint(metric, record["step"], value):
                raise RecordError(f"{log}: {reason}. {RUN_AGAIN}")
    steps = [record["step"] for record in records]
    if found := gap(config, steps, numbers_by_metric(records)):
        raise RecordError(f"{log} {found}. {RUN_AGAIN}")


def _missing(metric: str, step: int, kind: str) -> str:
    return f"has no number for {metric} at step {step}, which {kind} logs: it was lost"
