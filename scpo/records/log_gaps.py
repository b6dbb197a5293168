"""Detect lines and measures that are missing in a log.

A checksum detects later changes of a file. It does not detect a removed line if the checksum was
computed again, nor a value that was never logged, and a mean over the remaining values would look
normal. The configuration determines the lines and values of a log, so gaps can be found without a
checksum.
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
    """The part of a configuration that determines what is logged at which step."""

    trainer: _Trainer
    method: _Method
    env: _Env

    @property
    def prompted(self) -> bool:
        return self.method.kind == "prompted"

    @property
    def every_step(self) -> bool:
        """True if each step has a line; verl may log every few steps, prompting methods log two."""
        return self.trainer.name == "local" and not self.prompted

    def validations(self, last: int) -> set[int]:
        """Steps up to ``last`` at which the run validates."""
        if self.prompted:
            return {0, last}
        due = set(range(0, last + 1, self.trainer.validation.every))
        return due | {last} if last == self.trainer.steps else due


def is_due(metric: str) -> bool:
    """True for a metric of training or validation, which all lines of its kind have."""
    return metric.startswith((TRAIN, VALIDATION))


def numbers_by_metric(records: Iterable[Mapping[str, Any]]) -> dict[str, set[int]]:
    """Metric of training or validation -> steps at which the lines have a number for it."""
    found: dict[str, set[int]] = {}
    for record in records:
        for metric, value in record.items():
            # The value may be null, which is logged for a mean over nothing.
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
    """Describe the first gap in a run's log.

    Args:
        config: The run's configuration. If it lacks the needed keys, as that of another program
            does, no gap is reported.
        steps: The steps that have a line, in ascending order.
        numbers: See :func:`numbers_by_metric`.
        every_line: True if a missing line between others is a gap, too. False for W&B, which drops
            steps that a resumed run repeats.

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
    """Verify that a metrics.jsonl has no gap, and that its metrics are in their ranges.

    Args:
        log: The file, for the message.
        config: The run's configuration.
        records: The lines of the file.

    Raises:
        RecordError: A line or a number is missing, or a value is out of range.
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
