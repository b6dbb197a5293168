"""Ablation and controls: success by task family, published and measured."""

from collections.abc import Iterator, Sequence

from analysis import names
from analysis.names import ABLATION, CONTROLS, Footnotes
from analysis.paper.published import ablation
from analysis.rendering.table import NONE, Block, Cells, Table, difference, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import Row, Section, seed_list
from analysis.tables.comparison import episode_counts, minus
from scpo.benchmarks import with_families

EXPERIMENT = "ablation"
DEFAULT = ABLATION[0]
NAMES = (*ABLATION, *CONTROLS)

# Rows that most experiments have.
SHARED = (DEFAULT, "gigpo")

# Name of the column of differences among the published numbers.
PRINTED = "All minus default"
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
    ready: list[Section] = []
    for whole in parts:
        for part in whole.by_seeds():
            if _is_ablation(part) and _has_results(part, whole):
                ready.append(part)
    if not ready:
        needed = "finished ablation runs"
        if parts:
            raise missing_runs(needed, parts)
        raise missing_runs(needed, data.sections, EXPERIMENT)

    scale = ready[0].scale
    notes = Footnotes()
    measured: list[Block] = []
    for part in ready:
        measured += _measured(data, part, notes)
    return Table(
        words=("Variant", "Checkpoint", "Seeds"),
        numbers=(*names.COLUMNS, BEST, DIFFERENCE),
        blocks=(_published(ready, scale), *measured),
        caption=names.with_note(f"{CAPTION}{notes.text}", scale),
        label=f"tab:ablation-{scale}",
        footnotes=notes.texts,
    )


def _rows(part: Section) -> tuple[Row, ...]:
    return tuple(row for row in part.rows if row.name in NAMES)


def _is_ablation(part: Section) -> bool:
    """True if the section belongs to an ablation, or has variants.

    The second condition is for runs from W&B, which have no experiment.
    """
    for experiment in part.experiments:
        if experiment.startswith(EXPERIMENT) or experiment == "controls":
            return True
    return any(row.name not in SHARED for row in _rows(part))


def _has_results(part: Section, whole: Section) -> bool:
    """True if a variant has a finished run, or any row of a section that has not been split."""
    rows = _rows(part)
    if part.rows != whole.rows:
        rows = tuple(row for row in rows if row.name not in SHARED)
    return any(row.finished for row in rows)


def _seeds(part: Section) -> str:
    """The block's seeds, if they are others than the main table's; they are in its title."""
    other = {run.seed for row in _rows(part) for run in row.runs if part.aside(row)}
    return f", {seed_list(other)}" if other else ""


def _published(parts: Sequence[Section], scale: str) -> Block:
    numbers = ablation()
    labels: dict[str, str] = {}
    for part in parts:
        labels |= {row.name: row.label for row in _rows(part)}
    lines: list[Cells] = []
    for name, label in labels.items():
        if (name, names.ALL) in numbers:
            cells = [numbers[name, column] for column in names.COLUMNS]
            printed = numbers.get((name, PRINTED), NONE)
            lines.append((label, "as printed", "3", *cells, NONE, printed))
    remark = "" if scale == "paper" else ": another model and another scale"
    title = f"Published, Qwen2.5-1.5B at paper scale, valid_seen{remark}"
    return Block(title, tuple(lines))


def _measured(data: Collected, part: Section, notes: Footnotes) -> Iterator[Block]:
    """Yield one block per validation panel."""
    rows = _rows(part)
    panels: set[str] = set()
    for row in rows:
        for run in row.finished:
            panels.update(data.panels(run))

    for panel in names.panel_order(panels):
        lines: list[Cells] = []
        for row in rows:
            lines += _before_and_last(data, part, row, panel, notes)
        title = (
            f"Measured, {part.scale} scale, {names.setting(part)}: {names.panel_label(panel)}"
            f"{_seeds(part)}{episode_counts(data, rows, panel)}"
        )
        yield Block(title, tuple(lines))


def _before_and_last(
    data: Collected,
    part: Section,
    row: Row,
    panel: str,
    notes: Footnotes,
) -> Iterator[Cells]:
    before, last = [], []
    for column in names.COLUMNS:
        metric = names.success_metric(panel, column)
        before.append(percent(data.summary(row, metric, "before")))
        last.append(percent(data.summary(row, metric, "last")))
    overall = names.success_metric(panel)
    best = percent(data.summary(row, overall, "best"))
    gain = difference(minus(data, part, row.name, DEFAULT, overall))
    label = f"{row.label}{notes.mark(row.differs)}"
    yield (label, "before training", row.count, *before, NONE, NONE)
    yield (label, "last", row.count, *last, best, gain)
