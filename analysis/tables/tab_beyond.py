"""Beyond the paper's main table: every panel with avg@k, pass@k, errors, and SCPO's differences.

One block for each benchmark, model, setting and validation panel; one line for each method.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from analysis import names
from analysis.names import Footnotes, in_order, method_of, method_rows
from analysis.rendering.table import NONE, Block, Cells, Table, difference, number, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import DEFAULT, Row, Section, compared_with_present, with_new_runs
from analysis.tables.comparison import episode_counts, minus, state_key, value
from scpo.intervals import Summary, summarise

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
    "Errored episodes were broken by the environment and played again; they count once. State "
    "key: what an estimator compares states by."
)
MARGIN = (
    " The last column is SCPO minus the method in points of avg@k at the last checkpoint, paired "
    "by seed, with its 95 % Student-t interval, each by itself and not corrected for their number."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no method has finished runs."""
    notes = Footnotes()
    blocks: list[Block] = []
    finished = [part for part in data.sections if _shown(data, part)]
    ready = with_new_runs(finished, lambda part: _shown(data, part))
    for part in compared_with_present(ready):
        blocks += _blocks(data, part, notes)
    if not blocks:
        raise missing_runs("finished runs of methods", data.sections, "main_table")
    scale = data.scales[0]
    table = Table(
        words=WORDS,
        numbers=COLUMNS,
        blocks=tuple(blocks),
        caption="",
        label=f"tab:beyond-{scale}",
    ).without_empty_columns()
    margin = MARGIN if COLUMNS[-1] in table.numbers else ""
    more = names.own_seeds(ready)
    more += names.more_seeds_of((part, _shown(data, part)) for part in ready)
    if not data.chosen:
        more += names.variants(finished)
    caption = names.with_note(f"{CAPTION}{margin}{notes.text}{more}", scale)
    return replace(table, caption=caption, footnotes=notes.texts)


def _shown(data: Collected, part: Section) -> list[Row]:
    """Finished rows of a section: those that the user chose, else the methods."""
    if data.chosen:
        return [row for name in data.chosen if (row := part.row(name)).finished]
    finished = [row for row in method_rows(part) if row.finished]
    return [part.row(name) for name in in_order(finished)]


def _blocks(data: Collected, part: Section, notes: Footnotes) -> Iterator[Block]:
    rows = _shown(data, part)
    runs = [run for row in rows for run in row.finished]
    panels = {panel for run in runs for panel in data.panels(run)}
    for panel in names.panel_order(panels):
        repeats = _repeats(data, runs, panel)
        passed = f"val/{panel}/pass_at_{repeats}"
        lines = [_line(data, part, row, panel, passed=passed, notes=notes) for row in rows]
        title = (
            f"{part.scale} scale, {names.setting(part)}{names.asked_by(part, rows)}: "
            f"{names.panel_label(panel)}, "
            f"k = {repeats or 1}{episode_counts(data, rows, panel)}"
        )
        yield Block(title, tuple(lines))


def _repeats(data: Collected, runs: list[str], panel: str) -> int | None:
    """Number k of episodes per task, from the metric's name; None if tasks were not repeated."""
    for run in runs:
        for name in data.metric_names(run):
            if repeats := re.fullmatch(rf"val/{panel}/pass_at_(\d+)", name):
                return int(repeats[1])
    return None


def _line(
    data: Collected,
    part: Section,
    row: Row,
    panel: str,
    *,
    passed: str,
    notes: Footnotes,
) -> Cells:
    """Cells of a method on a panel; ``passed``: the panel's metric of pass@k."""
    success = names.success_metric(panel)
    # A prompting method is evaluated once, so it has no best checkpoint.
    prompting = method_of(row).kind == names.PROMPTING
    best = NONE if prompting else value(data, row, success, success, "best")
    return (
        f"{method_of(row).label}{notes.mark(row.differs)}{notes.mark(part.aside(row))}",
        state_key(data, [row]),
        row.count,
        value(data, row, success, success, "last"),
        best,
        percent(data.summary(row, passed, "last")),
        percent(data.summary(row, f"val/{panel}/score", "last")),
        number(_errored(data, row, panel), 1, 1),
        difference(minus(data, part, DEFAULT, row.name, success)),
    )


def _errored(data: Collected, row: Row, panel: str) -> Summary:
    """Summary over runs of the errored episodes in all validations of a run."""
    totals = []
    for run in row.finished:
        values = data.series(run, f"val/{panel}/errored").values
        # None and not 0 if the run did not log it.
        totals.append(sum(values) if values else None)
    return summarise(totals)
