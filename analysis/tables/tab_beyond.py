"""What the paper's table lacks: every method by panel with avg@k and pass@k, errored episodes, and SCPO's margin.

One block for each benchmark, model, setting and validation panel; one line for each method.
"""

import re
from collections.abc import Iterator

from scpo.intervals import Summary, summarise

from analysis.naming import names
from analysis.naming.methods import in_order, is_method, method_of
from analysis.naming.names import Footnotes
from analysis.rendering.table import (
    NONE,
    Block,
    Number,
    Table,
    difference,
    number,
    percent,
    with_columns,
)
from analysis.sources.collect import Collected
from analysis.sources.rows import DEFAULT, Row, Section, missing_runs
from analysis.tables.comparison import episode_counts, minus, state_key, value

WORDS = ("Method", "State key", "Seeds")
COLUMNS = (
    "avg@k, last",
    "avg@k, best",
    "pass@k, last",
    "Score, last",
    "Errored episodes",
    "SCPO − method",
)
CAPTION = (
    "Every method by validation panel, mean ± standard deviation over the finished seeds (seeds: "
    "finished/planned). avg@k is the success rate (%) over all k episodes of every task of the "
    "panel, at the last checkpoint and at each run's best, which is optimistic; pass@k the share "
    "of tasks (%) of whose k episodes at least one was won, where a panel repeats its tasks. "
    "Errored episodes were broken by the environment and played again; they count once. The last "
    "column is SCPO minus the method in points of avg@k at the last checkpoint, paired by seed, "
    "with its 95 % Student-t interval. State key: what an estimator tells states apart by."
)
Cells = tuple[str | Number, ...]


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no method has finished runs."""
    notes = Footnotes()
    blocks = [block for part in data.sections for block in _blocks(data, part, notes)]
    if not blocks:
        raise missing_runs("finished runs of methods", data.sections, "main_table")
    columns = list(
        zip((*WORDS, *COLUMNS), *(row for block in blocks for row in block.rows), strict=True)
    )
    shown = [
        k
        for k, (_, *cells) in enumerate(columns)
        if k < len(WORDS) or any(cell != NONE for cell in cells)
    ]
    scale = data.scales[0]
    return Table(
        words=WORDS,
        numbers=tuple(COLUMNS[k - len(WORDS)] for k in shown[len(WORDS) :]),
        blocks=with_columns(blocks, shown),
        caption=names.with_note(f"{CAPTION}{notes.text}", scale),
        label=f"tab:beyond-{scale}",
    )


def _blocks(data: Collected, part: Section, notes: Footnotes) -> Iterator[Block]:
    methods = [name for name in in_order(part.rows) if part.row(name).finished]
    if not methods or not any(is_method(row) for row in part.rows):
        return
    runs = [run for name in methods for run in part.row(name).finished]
    place = f"{part.scale} scale, {names.setting(part)}"
    for panel in names.panel_order({panel for run in runs for panel in data.panels(run)}):
        repeats = _repeats(data, runs, panel)
        title = f"{place}: {names.panel_label(panel)}, k = {repeats or 1}{episode_counts(data, part.rows, panel)}"
        judge = (panel, f"val/{panel}/pass_at_{repeats}")
        yield Block(title, tuple(_line(data, part, name, judge, notes) for name in methods))


def _repeats(data: Collected, runs: list[str], panel: str) -> int | None:
    """Episodes of a task, as the name of the metric says; None where none was repeated."""
    found = (
        re.fullmatch(rf"val/{panel}/pass_at_(\d+)", name)
        for run in runs
        for name in data.metric_names(run)
    )
    return next((int(one[1]) for one in found if one), None)


def _line(
    data: Collected, part: Section, name: str, judge: tuple[str, str], notes: Footnotes
) -> Cells:
    """A method's cells; ``judge``: the panel and its metric of pass@k."""
    panel, passed = judge
    row, judged = part.row(name), names.success_metric(panel)
    label = f"{method_of(row).label}{notes.mark(row.differs)}"
    return (
        label,
        state_key(data, [row]),
        row.count,
        value(data, row, judged, judged, "last"),
        value(data, row, judged, judged, "best"),
        percent(data.summary(row, passed, "last")),
        percent(data.summary(row, f"val/{panel}/score", "last")),
        number(_errored(data, row, panel), 1, 1),
        difference(minus(data, part, DEFAULT, name, judged)),
    )


def _errored(data: Collected, row: Row, panel: str) -> Summary:
    """Episodes over all validations of a run; a run of before they were counted has no number."""
    found = (data.series(run, f"val/{panel}/errored").values for run in row.finished)
    return summarise(sum(values) if values else None for values in found)
