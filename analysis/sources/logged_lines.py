"""What a run logged, one mapping a step: from our ``.jsonl`` files, a W&B transaction log, or a W&B download."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.files import read_bytes
from scpo.records.logs import read_whole

from analysis.sources import verl_agent_logs
from analysis.sources.run_records import Run


def read_lines(run: Run, logs: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """``{"step": n, metric: value, ...}`` under our names, file by file; a value may be anything JSON knows.

    Args:
        run: Whose.
        logs: Some of its ``logs``; None: all.

    Raises:
        RecordError: A log is damaged, or not the one that the run wrote.
    """
    for name in run.logs if logs is None else logs:
        for line in _lines(run, run.folder / name):
            yield verl_agent_logs.translate(line, run.config) if run.foreign else line


def _lines(run: Run, path: Path) -> Iterable[dict[str, Any]]:
    if run.damage:
        return []
    if path.suffix == ".wandb":
        from analysis.sources.transaction_log import read_transaction_log

        return read_transaction_log(path).lines
    return read_whole(RunFolder(run.folder), path) if run.project is None else _downloaded(path)


def _downloaded(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of W&B's copy, whose values may be anything."""
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
