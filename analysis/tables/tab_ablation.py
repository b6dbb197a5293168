"""Ablation and controls: success by task family, published and measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analysis import names
from analysis.names import ABLATION, CONTROLS, Footnotes
from analysis.paper.published import ablation
from analysis.rendering.table import NONE, Block, Cells, Table, difference, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import Family, Row, Section, seed_list
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
    "the difference to the default, paired by seed, with its 95 % Student-t interval, "
    "each by itself and not corrected for their number."
)


@dataclass(frozen=True)
class _Ablation:
    """Rows that are shown together, with the default that the others are compared with.

    Attributes:
        part: Their section, with these rows in this order.
        default: Name of the default row.
        experiment: Experiment that the user chose; empty for the paper's ablation and the controls.
    """

    part: Section
    default: str = DEFAULT
    experiment: str = ""


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no ablation run has finished.

    Rows of the paper's ablation and of the controls are recognised by their names. Experiments that
    the user chose are shown with all of their rows.
    """
    ready = _finished(data)
    scale = ready[0].part.scale
    notes = Footnotes()
    measured: list[Block] = []
    defaults: dict[str, None] = {}
    for shown in ready:
        measured += _measured(data, shown, notes)
        if shown.experiment:
            label = shown.part.row(shown.default).label
            defaults[f" Of {shown.experiment}, the default is {label}."] = None
    # In an experiment that the user chose, a row of a published name may have other settings.
    printed = [shown.part for shown in ready if not shown.experiment]
    remarks = "".join(defaults) + names.more_seeds_of((part, part.rows) for part in printed)
    return Table(
        words=("Variant", "Checkpoint", "Seeds"),
        numbers=(*names.COLUMNS, BEST, DIFFERENCE),
        blocks=(*_published(printed, scale), *measured),
        caption=names.with_note(f"{CAPTION}{remarks}{notes.text}", scale),
        label=f"tab:ablation-{scale}",
        footnotes=notes.texts,
    )


def _finished(data: Collected) -> list[_Ablation]:
    """The ablations with finished runs, those of chosen experiments last.

    Raises:
        MissingRunsError: No ablation has finished runs.
    """
    with_columns = [part for part in data.sections if with_families(part.env)]
    chosen = [shown for part in with_columns for shown in _chosen(data, part)]
    known = [_without_chosen(data, part) for part in with_columns]
    parts = [part for part in known if _is_ablation(part)]
    ready: list[_Ablation] = []
    for whole in parts:
        for part in whole.by_seeds():
            if _is_ablation(part) and _has_results(part, whole):
                ready.append(_Ablation(replace(part, rows=_rows(part))))
    ready += [shown for shown in chosen if any(row.finished for row in shown.part.rows)]
    if ready:
        return ready
    needed = "finished ablation runs"
    if data.sections and not with_columns:
        # The rows that were read or chosen are of another benchmark.
        needed += " on ALFWorld, by whose task families this table is"
    elif not data.asked:
        needed += " (--experiment NAME shows the rows of another experiment)"
    if parts or chosen:
        raise missing_runs(needed, [*parts, *(shown.part for shown in chosen)])
    raise missing_runs(needed, data.sections, EXPERIMENT)


def _chosen(data: Collected, part: Section) -> Iterator[_Ablation]:
    """Yield the experiments of a section that the user chose, except for those of known rows."""
    for family in part.families:
        if family.experiment not in data.asked or _is_known(family):
            continue
        # --rows also orders the section's rows.
        order = [row.name for row in part.rows] if data.asked_rows else family.rows
        rows = []
        for name in order:
            row = part.row(name) if data.common_seeds else family.row(name)
            if name in family.rows and row.runs:
                rows.append(row)
        if not rows:
            continue
        default = _default(data, family, rows)
        rows.sort(key=lambda row: row.name != default)
        own = replace(part, rows=tuple(rows), families=(family,), experiments=(family.experiment,))
        yield _Ablation(own, default, family.experiment)


def _default(data: Collected, family: Family, rows: Sequence[Row]) -> str:
    """The row that several named comparisons share, or else the first trained or first row."""
    pairs = family.primary.comparisons if family.primary else ()
    common = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
    trained = [row for row in rows if data.is_trained(row)]
    first = (trained or rows)[0]
    return next((row for row in rows if row.name in common), first).name


def _is_known(family: Family) -> bool:
    """True if an experiment's rows are those of the paper's ablation or the controls.

    An experiment with only ``SHARED`` rows counts only by its name (``_is_named``).
    """
    if not set(family.rows) <= set(NAMES):
        return False
    return _is_named(family.experiment) or not set(family.rows) <= set(SHARED)


def _without_chosen(data: Collected, part: Section) -> Section:
    """The section without the experiments that ``_chosen`` yields."""
    if not data.asked:
        return part
    families = tuple(filter(_is_known, part.families))
    left = {name for family in families for name in family.rows}
    return replace(
        part,
        rows=tuple(row for row in part.rows if row.name in left),
        families=families,
        experiments=tuple(family.experiment for family in families),
    )


def _rows(part: Section) -> tuple[Row, ...]:
    return tuple(row for row in part.rows if row.name in NAMES)


def _is_ablation(part: Section) -> bool:
    """True if the section belongs to an ablation, or has variants.

    The second condition is for runs from W&B, which have no experiment.
    """
    if any(map(_is_named, part.experiments)):
        return True
    return any(row.name not in SHARED for row in _rows(part))


def _is_named(experiment: str) -> bool:
    return experiment.startswith(EXPERIMENT) or experiment == "controls"


def _has_results(part: Section, whole: Section) -> bool:
    """True if a variant has a finished run; any row counts if the section was not split."""
    rows = _rows(part)
    if part.rows != whole.rows:
        rows = tuple(row for row in rows if row.name not in SHARED)
    return any(row.finished for row in rows)


def _seeds(part: Section) -> str:
    """Part of the block's title: seeds of rows without any seed of the main table; else empty."""
    other = {run.seed for row in part.rows for run in row.runs if part.aside(row)}
    return f", {seed_list(other)}" if other else ""


def _published(parts: Sequence[Section], scale: str) -> Iterator[Block]:
    """Yield one block of published numbers, or nothing if these rows have none."""
    numbers = ablation()
    labels: dict[str, str] = {}
    for part in parts:
        labels |= {row.name: row.label for row in part.rows}
    lines: list[Cells] = []
    for name, label in labels.items():
        if (name, names.ALL) in numbers:
            cells = [numbers[name, column] for column in names.COLUMNS]
            printed = numbers.get((name, PRINTED), NONE)
            lines.append((label, "as printed", "3", *cells, NONE, printed))
    remark = "" if scale == "paper" else ": another model and another scale"
    title = f"Published, Qwen2.5-1.5B at paper scale, valid_seen{remark}"
    if lines:
        yield Block(title, tuple(lines))


def _measured(data: Collected, shown: _Ablation, notes: Footnotes) -> Iterator[Block]:
    """Yield one block per validation panel."""
    part = shown.part
    rows = part.rows
    panels: set[str] = set()
    for row in rows:
        for run in row.finished:
            panels.update(data.panels(run))

    of = f"{shown.experiment}, " if shown.experiment else ""
    for panel in names.panel_order(panels):
        lines: list[Cells] = []
        for row in rows:
            lines += _before_and_last(data, shown, row, panel, notes)
        title = (
            f"Measured, {part.scale} scale, {of}{names.setting(part)}: {names.panel_label(panel)}"
            f"{_seeds(part)}{episode_counts(data, rows, panel)}"
        )
        yield Block(title, tuple(lines))


def _before_and_last(
    data: Collected,
    shown: _Ablation,
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
    gain = difference(minus(data, shown.part, row.name, shown.default, overall))
    label = f"{row.label}{notes.mark(row.differs)}"
    yield (label, "before training", row.count, *before, NONE, NONE)
    yield (label, "last", row.count, *last, best, gain)
