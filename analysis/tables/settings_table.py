"""Tables of the settings of finished runs, with one column per section."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from analysis import names
from analysis.rendering.table import Block, Table
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.configurations import is_prompted
from analysis.sources.rows import DEFAULT, Row, Section

Config: TypeAlias = dict[str, Any]


def at(config: Config, path: str) -> Any:
    """Value at a dotted path; None if the configuration has no such key.

    Keys depend on the trainer and the method.
    """
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Attributes:
        label: Name of the setting.
        paper: The paper's value, as printed.
        read: Path in the configuration, or function of the configuration.
        from_runs: Function of a section and its rows, used instead of ``read`` if given.
    """

    label: str
    paper: str
    read: str | Callable[[Config], Any] = ""
    from_runs: Callable[[Collected, Section, tuple[Row, ...]], str] | None = None


def settings_table(
    data: Collected,
    entries: Sequence[Entry],
    *,
    shaped: bool,
    caption: str,
    label: str,
) -> Table:
    """Table with one column per section that has finished runs which train.

    Rows that only prompt are left out: the scale's settings of training are recorded for them, too,
    and no update has used them. If a value differs between the runs of a section, the cell lists
    all values.

    Args:
        data: Data of one scale.
        entries: Lines of the table.
        shaped: Use runs with a shaper only.
        caption: Caption.
        label: LaTeX label without the scale.
    """
    parts = _finished_parts(data, shaped=shaped)
    scale = parts[0][0].scale
    lines = []
    for entry in entries:
        values = [_value(data, entry, part, rows) for part, rows in parts]
        lines.append((entry.label, entry.paper, *values))
    return Table(
        words=("Parameter", "Paper", *(names.setting(part) for part, _ in parts)),
        numbers=(),
        blocks=(Block(f"Finished runs of {scale} scale", tuple(lines)),),
        caption=caption + names.more_seeds_of(parts),
        label=f"{label}-{scale}",
        repeated=2,
    )


def _finished_parts(
    data: Collected,
    *,
    shaped: bool,
) -> list[tuple[Section, tuple[Row, ...]]]:
    """Sections with finished rows that train, the default row first; without verl-agent's runs."""
    parts = []
    for part in data.sections:
        rows = []
        for row in part.rows:
            if row.finished and _is_read(data, row.finished[0], shaped=shaped):
                rows.append(row)
        if rows:
            rows.sort(key=lambda row: row.name != DEFAULT)
            parts.append((part, tuple(rows)))
    if not parts:
        raise missing_runs("finished runs that train", data.sections, "main_table")
    return parts


def _is_read(data: Collected, run: str, *, shaped: bool) -> bool:
    known = data.by_id[run]
    if known.foreign:
        # verl-agent's configuration has other keys.
        return False
    if is_prompted(known.config):
        return False
    return not shaped or known.head.method.shaper is not None


def _value(data: Collected, entry: Entry, part: Section, rows: tuple[Row, ...]) -> str:
    if entry.from_runs:
        return entry.from_runs(data, part, rows) or "–"
    shown: dict[str, None] = {}
    for row in rows:
        for run in row.finished:
            data.used.add((run, "config.yaml"))
            config = data.by_id[run].config
            value = at(config, entry.read) if isinstance(entry.read, str) else entry.read(config)
            if value is not None:
                shown[_text(value)] = None
    return ", ".join(shown) or "–"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # Papers print 5e-05 as 5e-5.
        return str(value).replace("e-0", "e-")
    return str(value)
