"""Lines that a run logged, in its folder or in the local copy of its W&B history."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.sources import verl_agent_logs
from analysis.sources.run_records import LOGS, Run
from scpo.errors import RecordError
from scpo.records import RunFolder, log_gaps
from scpo.records.files import read_bytes
from scpo.records.logs import read_whole


def read_lines(run: Run, logs: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield ``{"step": n, metric: value, ...}`` under our metric names, file by file.

    Args:
        run: The run; one with ``damage`` yields nothing.
        logs: Some of its ``logs``; None: all.

    Raises:
        RecordError: A log is damaged, or not the one that the run wrote.
    """
    if run.damage:
        return
    for name in run.logs if logs is None else logs:
        path = run.folder / name
        if run.project is None:
            lines = read_whole(RunFolder(run.folder), path)
            if name == LOGS[0]:
                log_gaps.check(path, run.config, lines)
        else:
            lines = list(_downloaded(path))
            if run.foreign:
                lines = [verl_agent_logs.translate(line, run.config) for line in lines]
            else:
                _check_downloaded(path, run.config, lines)
        yield from lines


def _check_downloaded(
    path: Path, config: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse a history without a validation: W&B drops what a resumed run logs twice."""
    numbers = log_gaps.numbers_by_metric(lines)
    steps = [line["step"] for line in lines]
    if found := log_gaps.gap(config, steps, numbers, every_line=False):
        raise RecordError(
            f"{path} {found}. Read the run's folder instead, or send it again (`python -m sweeps "
            "sync`) and --refresh"
        )


def _downloaded(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of the local copy of a W&B run, whose values may be any JSON."""
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or type(entry.get("step")) is not int:
                raise TypeError("not a JSON object with an integer `step`")
        except (ValueError, TypeError, RecursionError) as error:
            raise RecordError(
                f"{path}, line {number} is damaged: {error}. Delete its folder and --refresh"
            ) from error
        yield entry
