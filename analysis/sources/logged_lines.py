"""What a run logged, one mapping a step: from our ``.jsonl`` files, a W&B transaction log, or a W&B download."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.sources import verl_agent_logs
from analysis.sources.run_records import Run


def read_lines(run: Run) -> Iterator[dict[str, Any]]:
    """``{"step": n, metric: value, ...}`` under our names, file by file; a value may be anything JSON knows."""
    for name in run.logs:
        for line in _lines(run.folder / name):
            yield verl_agent_logs.translate(line, run.config) if run.foreign else line


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".wandb":
        from analysis.sources.transaction_log import read_transaction_log

        return iter(read_transaction_log(path).lines)
    return read_metrics(path)


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a ``.jsonl`` file that carry a step; a line torn by a crash is skipped."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(entry, dict) and isinstance(entry.get("step"), int):
                yield entry
