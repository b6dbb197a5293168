"""Ablation table: success by task family, published beside measured, before training and at the last checkpoint."""

from collections.abc import Iterable

from analysis.collect import Collected
from analysis.families import ALL, COLUMNS, MINI_NOTE, panel_label, panel_order, success_metric
from analysis.missing import MissingRunsError
from analysis.published import ablation
from analysis.rows import Row, Section
from analysis.stats import summarise
from analysis.table import NONE, Block, Number, Table, percent

PREFIX = "ablation"
BEST = "All, best"
CAPTION = (
    "Ablation on ALFWorld: success rate (%) by task family and overall, mean ± standard deviation over the finished "
    "seeds (seeds: finished/planned). Comparisons use the last checkpoint; the column “All, best” takes each run's "
    "best checkpoint instead and is optimistic."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no ablation run has finished."""
    parts = [part for part in data.sections if any(name.startswith(PREFIX) for name in part.experiments)]
    ready = [part for part in parts if any(row.finished for row in part.rows)]
    if not ready:
        command = "\n".join(dict.fromkeys(part.command for part in parts)) or "python sweep.py +experiment=ablation"
        raise MissingRunsError("finished ablation runs", command)
    scale = ready[0].scale
    measured = [block for part in ready for block in _measured(data, part, distinct=len(ready) > 1)]
    return Table(
        words=("Variant", "Checkpoint", "Seeds"),
        numbers=(*COLUMNS, BEST),
        blocks=(_published(ready, scale), *measured),
        caption=f"{CAPTION} {MINI_NOTE}" if scale == "mini" else CAPTION,
        label=f"tab:ablation-{scale}",
    )


def _published(parts: Iterable[Section], scale: str) -> Block:
    numbers = ablation()
    labels = {row.name: row.label for part in parts for row in part.rows}
    rows = (
        (label, "as printed", "3", *(numbers[name, column] for column in COLUMNS), NONE)
        for name, label in labels.items()
        if (name, ALL) in numbers
    )
    remark = "" if scale == "paper" else ": another model and another scale"
    return Block(f"Published, Qwen2.5-1.5B at paper scale, valid_seen{remark}", tuple(rows))


def _measured(data: Collected, part: Section, *, distinct: bool) -> Iterable[Block]:
    runs = [run for row in part.rows for run in row.finished]
    setting = f", setting {part.setting}" if distinct else ""
    for panel in panel_order({panel for run in runs for panel in data.panels(run)}):
        title = f"Measured, {part.scale} scale, {part.env}, {part.model}{setting}: {panel_label(panel)}"
        rows = [line for row in part.rows for line in _before_and_last(data, row, panel)]
        yield Block(f"{title}{_episodes(data, runs, panel)}", tuple(rows))


def _before_and_last(data: Collected, row: Row, panel: str) -> Iterable[tuple[str | Number, ...]]:
    series = {name: [data.series(run, success_metric(panel, name)) for run in row.finished] for name in COLUMNS}
    before = [percent(summarise(one.at(0) for one in series[name])) for name in COLUMNS]
    last = [percent(summarise(one.last for one in series[name])) for name in COLUMNS]
    best = percent(summarise(one.best for one in series[ALL]))
    yield (row.label, "before training", row.count, *before, NONE)
    yield (row.label, "last", row.count, *last, best)


def _episodes(data: Collected, runs: Iterable[str], panel: str) -> str:
    counts = {count for run in runs if (count := data.series(run, f"val/{panel}/episodes").last) is not None}
    return f", {'/'.join(f'{count:.0f}' for count in sorted(counts))} episodes at the last checkpoint" if counts else ""
