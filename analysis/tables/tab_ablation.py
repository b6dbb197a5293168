"""Ablation table and our controls: success by task family, published and measured, before training and at the end."""

from collections.abc import Iterable

from scpo.benchmarks import with_families

from analysis.naming import names
from analysis.naming.methods import ABLATION, CONTROLS
from analysis.naming.names import Footnotes
from analysis.paper.published import ablation
from analysis.rendering.table import NONE, Block, Number, Table, difference, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from analysis.tables.comparison import episode_counts, minus

EXPERIMENT = "ablation"
DEFAULT = ABLATION[0]
NAMES = (*ABLATION, *CONTROLS)
PRINTED = "All minus default"  # the difference as the published numbers name it
BEST, DIFFERENCE = "All, best", "Δ All"
CAPTION = (
    "Ablation on ALFWorld: success rate (%) by task family and overall, mean ± standard deviation "
    "over the finished seeds (seeds: finished/planned). Comparisons use the last checkpoint; the "
    "column “All, best” takes each run's best checkpoint instead and is optimistic. “Δ All” is "
    "the difference to the default, paired by seed, with its 95 % Student-t interval."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no ablation run has finished."""
    parts = [part for part in data.sections if with_families(part.env) and _is_ablation(part)]
    ready = [part for part in parts if any(row.finished for row in _rows(part))]
    if not ready:
        raise missing_runs(
            "finished ablation runs", parts or data.sections, *(() if parts else ("ablation",))
        )
    scale, notes = ready[0].scale, Footnotes()
    measured = [block for part in ready for block in _measured(data, part, notes)]
    return Table(
        words=("Variant", "Checkpoint", "Seeds"),
        numbers=(*names.COLUMNS, BEST, DIFFERENCE),
        blocks=(_published(ready, scale), *measured),
        caption=names.with_note(f"{CAPTION}{notes.text}", scale),
        label=f"tab:ablation-{scale}",
    )


def _rows(part: Section) -> tuple[Row, ...]:
    return tuple(row for row in part.rows if row.name in NAMES)


def _asks_for_variants(experiment: str) -> bool:
    return experiment.startswith(EXPERIMENT) or experiment == "controls"


def _is_ablation(part: Section) -> bool:
    """By its experiment; one that was read from W&B by what it has beside the default and the host."""
    named = any(map(_asks_for_variants, part.experiments))
    return named or any(row.name not in (DEFAULT, "gigpo") for row in _rows(part))


def _published(parts: Iterable[Section], scale: str) -> Block:
    numbers = ablation()
    labels = {row.name: row.label for part in parts for row in _rows(part)}
    rows: Iterable[tuple[str | Number, ...]] = (
        (
            label,
            "as printed",
            "3",
            *(numbers[name, column] for column in names.COLUMNS),
            NONE,
            numbers.get((name, PRINTED), NONE),
        )
        for name, label in labels.items()
        if (name, names.ALL) in numbers
    )
    remark = "" if scale == "paper" else ": another model and another scale"
    return Block(f"Published, Qwen2.5-1.5B at paper scale, valid_seen{remark}", tuple(rows))


def _measured(data: Collected, part: Section, notes: Footnotes) -> Iterable[Block]:
    rows = _rows(part)
    for panel in names.panel_order(
        {panel for row in rows for run in row.finished for panel in data.panels(run)}
    ):
        title = f"Measured, {part.scale} scale, {names.setting(part)}: {names.panel_label(panel)}"
        lines = [line for row in rows for line in _before_and_last(data, part, row, panel, notes)]
        yield Block(f"{title}{episode_counts(data, rows, panel)}", tuple(lines))


def _before_and_last(
    data: Collected, part: Section, row: Row, panel: str, notes: Footnotes
) -> Iterable[tuple[str | Number, ...]]:
    metrics, overall = (
        [names.success_metric(panel, name) for name in names.COLUMNS],
        names.success_metric(panel),
    )
    before = (percent(data.summary(row, metric, "before")) for metric in metrics)
    last = (percent(data.summary(row, metric, "last")) for metric in metrics)
    best, gain = (
        percent(data.summary(row, overall, "best")),
        minus(data, part, row.name, DEFAULT, overall),
    )
    label = f"{row.label}{notes.mark(row.differs)}"
    yield (label, "before training", row.count, *before, NONE, NONE)
    yield (label, "last", row.count, *last, best, difference(gain))
