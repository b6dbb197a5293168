"""Tables of settings: what the configurations of finished runs say, one column for each benchmark and model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.naming import names
from analysis.rendering.table import Block, Table
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs

DEFAULT = "scpo"


Config = dict[str, Any]


def at(config: Config, path: str) -> Any:
    """The value at a dotted path; None where a configuration has no such key (another trainer's, a critic)."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@dataclass(frozen=True)
class Entry:
    """One line: what the paper prints and how to find what ran: a path in the configuration, or what reads it."""

    label: str
    paper: str
    read: str | Callable[[Config], Any] = ""
    from_runs: Callable[[Collected, Section], str] | None = None


def settings_table(
    data: Collected, entries: Sequence[Entry], *, shaped: bool, caption: str, label: str
) -> Table:
    """One column for each section with finished runs; values of its runs that differ stand beside each other.

    ``shaped``: of runs with a shaper alone.
    """
    parts = _finished_parts(data, shaped=shaped)
    scale = parts[0][0].scale
    heads = [names.setting(part) for part, _ in parts]
    rows = tuple(
        (entry.label, entry.paper, *(_value(data, entry, *part) for part in parts))
        for entry in entries
    )
    return Table(
        words=("Parameter", "Paper", *heads),
        numbers=(),
        blocks=(Block(f"Finished runs of {scale} scale", rows),),
        caption=caption,
        label=f"{label}-{scale}",
        repeated=2,
    )


def _finished_parts(data: Collected, *, shaped: bool) -> list[tuple[Section, tuple[Row, ...]]]:
    """Sections with the rows that have finished runs of ours (with a shaper, if asked), the default row first."""
    parts = []
    for part in data.sections:
        rows = [
            row
            for row in part.rows
            for run in row.finished[:1]
            if _counts(data, run, shaped=shaped)
        ]
        if rows:
            parts.append((part, tuple(sorted(rows, key=lambda row: row.name != DEFAULT))))
    if not parts:
        raise missing_runs("finished runs", data.sections, "main_table")
    return parts


def _counts(data: Collected, run: str, *, shaped: bool) -> bool:
    known = data.by_id[run]
    return not known.foreign and (not shaped or known.head.method.shaper is not None)


def _value(data: Collected, entry: Entry, part: Section, rows: tuple[Row, ...]) -> str:
    if entry.from_runs:
        return entry.from_runs(data, part) or "–"
    runs = [run for row in rows for run in row.finished]
    data.used.update((run, "config.yaml") for run in runs)
    configs = [data.by_id[run].config for run in runs]
    values = [
        at(config, entry.read) if isinstance(entry.read, str) else entry.read(config)
        for config in configs
    ]
    shown = dict.fromkeys(_text(value) for value in values if value is not None)
    return ", ".join(shown) or "–"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("e-0", "e-") if isinstance(value, float) else str(value)
