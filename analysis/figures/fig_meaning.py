"""Area under validation over the share of reworded observations, one line per state identity."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.line_styles import LineStyle
from analysis.names import STUDY_TITLE, with_note
from analysis.rendering.style import (
    NARROW,
    PAGE_WIDTH,
    REMARK,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    legend_lines,
    new_figure,
    remark,
    remark_lines,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, difference, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import first_names, seed_list
from analysis.sources.run_records import Run
from analysis.stats.comparisons import compare
from analysis.stats.measures import AREA, over_seeds
from analysis.stats.study_rows import (
    MEANING,
    StudyRow,
    on_common_seeds,
    rate_text,
    reported,
    shown_rows,
    started,
)
from scpo.schema.method import METHOD_LABELS

SCALE = "study"
ENV = "alfworld"

# GRPO compares no states, so the identity does not affect it.
BASELINE = "grpo"
# An experiment on seeds of its own, whose rows cannot be paired with those of the others.
FRESH = "meaning_fresh"

# The default of env.wordings. Only these arms were run at several doses.
ARMS = ["paraphrase", "order"]

# Heights in inches.
PANEL_HEIGHT = 2.1
LOW_PANEL_HEIGHT = 1.4  # of panels below each other
MARGIN = 0.5
LEGEND_LINE = 0.17

# Style of each identity, by its label in the experiments' rows and in the order of the legend.
STYLES = {
    "oracle": LineStyle("#000000", "*", (1, 1)),
    "facts": LineStyle("#7A5195", "D", (6, 1.5)),
    "history": LineStyle("#D55E00", "o"),
    "learned": LineStyle("#0072B2", "s", (4, 1.2)),
    "effects": LineStyle("#117733", "D"),
    "entities": LineStyle("#009E73", "^", (2, 1)),
    "closure": LineStyle("#B8A000", "v", (4, 1, 1, 1)),
    "MiniLM": LineStyle("#C019AA", "P", (8, 1.5)),
    "lexical": LineStyle("#8C6D31", "X", (1, 2)),
    "TF-IDF": LineStyle("#56B4E9", "<", (4, 1, 1, 1, 1, 1)),
    "difflib": LineStyle("#F2A65A", ">", (8, 1, 1, 1)),
    "equal texts": LineStyle("#5A5A5A", "p", (3, 1)),
    "perfect scorer": LineStyle("#000000", "h", (1, 1)),
    "effects in matcher and host": LineStyle("#117733", "d", (2, 2)),
    "oracle in matcher and host": LineStyle("#000000", "H", (4, 2)),
}
# End of the labels of rows that compare observations instead of states. They are only in the table,
# because their areas would compress the axis of all others.
BY_OBSERVATION = ", by observation"
OTHER = LineStyle("#999999", ".")
CAPTION = (
    "Area under validation (mean held-out success over training, %) on ALFWorld by the share of "
    "observations that credit reads in other words (eight wordings of each sentence, drawn "
    "independently, and lists in another order); the policy reads the usual texts. CRBC and "
    "GraphGPO compare the environment's state, told in sentences: the observation, the place, "
    "what is held and what was moved; so does a matcher of SCPO with states; all others compare "
    "observations. A line is one identity, the rule by which two texts count as one state. Mean "
    "± standard deviation over seeds; in the figure, bars are 95 % Student intervals of the "
    "mean. GRPO compares no states. Rows by observation are in the table alone. “Minus GRPO”: at "
    "the highest share, paired by seed, with its 95 % interval, not corrected."
)
FRESH_CAPTION = (
    "The same on seeds that no run before these had (the experiment meaning_fresh), so that "
    "differences are paired among these rows. 0 %: the usual texts."
)


@dataclass(frozen=True)
class Line:
    """One method with one identity.

    Attributes:
        method: Name of the method.
        identity: Label of the identity.
        rows: Dose -> its row.
    """

    method: str
    identity: str
    rows: dict[float, StudyRow]

    @property
    def highest(self) -> StudyRow:
        """Its row at the highest dose."""
        return self.rows[max(self.rows)]


def build(data: Collected) -> Drawing:
    """Draw a panel per method that ran at several doses.

    Raises:
        MissingRunsError: No run of the experiments on reworded observations has finished.
    """
    found = lines(data)
    shown = [line for line in found if not line.identity.endswith(BY_OBSERVATION)]
    if all(line.method == BASELINE for line in shown):
        needed = f"finished runs of a method that compares states, under the arms {', '.join(ARMS)}"
        raise missing_runs(
            needed + _other_arms(data, start="; not shown: "), data.sections, MEANING
        )
    methods = _drawn_methods(shown)
    drawn = [line for line in shown if line.method in methods]
    with house_style():
        figure = _draw(data, methods, drawn, _baseline(found))
    not_drawn = {line.method: None for line in shown if line.method not in (*methods, BASELINE)}
    return Drawing(figure, _table(data, found, _caption(data, not_drawn)))


def _drawn_methods(shown: Sequence[Line]) -> list[str]:
    """Methods that ran at several doses, in the order of their lines.

    If none did, the method with most identities, whose areas are then drawn as points.
    """
    varied = {line.method for line in shown if len(line.rows) > 1} - {BASELINE}
    if varied:
        in_order = dict.fromkeys(line.method for line in shown)
        return [method for method in in_order if method in varied]
    comparing = [line.method for line in shown if line.method != BASELINE]
    return [max(comparing, key=comparing.count)]


def _caption(data: Collected, not_drawn: Iterable[str]) -> str:
    """Caption of the figure; ``not_drawn``: methods that are only in the table."""
    caption = CAPTION
    if others := [METHOD_LABELS.get(name, name) for name in not_drawn]:
        caption += f" Not drawn, in the table: {', '.join(others)}."
    if left_out := _other_arms(data, start=" Not shown: "):
        caption += f"{left_out}."
    if of_fresh := _fresh(data):
        caption += f" Not shown: {of_fresh}."
    return caption


def numbers(data: Collected, *, fresh: bool = False) -> Table:
    """Table of the figure's numbers; MissingRunsError if no run has finished.

    ``fresh``: take the experiment on seeds of its own instead of all others.
    """
    return _table(data, lines(data, fresh=fresh), FRESH_CAPTION if fresh else CAPTION)


# Data


def lines(data: Collected, *, fresh: bool = False) -> list[Line]:
    """Every method and identity with a finished run, under the default arms of rewording.

    ``fresh``: take the experiment on seeds of its own instead of all others.
    """
    by_name: dict[tuple[str, str], dict[float, StudyRow]] = {}
    placed: list[tuple[Run, StudyRow]] = []
    for row in _rows(data, fresh=fresh):
        run = started(data, row.row)
        if run is not None and row.row.finished and not _has_other_arms(run):
            placed.append((run, row))
    if data.common_seeds:
        common = on_common_seeds(data, [row for _, row in placed])
        placed = [(run, row) for (run, _), row in zip(placed, common, strict=False)]
    for run, row in placed:
        wordings = _wordings(run)
        # Labels are "method, identity"; a method that compares no states has no second part.
        identity = row.row.label.partition(", ")[2] or row.row.label
        key = (run.head.method.name, identity)
        by_name.setdefault(key, {})[float(wordings.get("dose", 0))] = row
    if not by_name:
        of_fresh = "" if fresh else _fresh(data)
        needed = "finished runs on reworded texts"
        needed += f" among the chosen ones; not shown: {of_fresh}" if of_fresh else ""
        raise missing_runs(needed, data.sections, MEANING)
    return [Line(method, identity, rows) for (method, identity), rows in by_name.items()]


def _wordings(run: Run) -> dict[str, Any]:
    return (run.config.get("env") or {}).get("wordings") or {}


def _has_other_arms(run: Run) -> bool:
    """True if a run has other arms of rewording than the default; at dose 0 a run has all arms."""
    return bool(_wordings(run).get("dose", 0)) and _wordings(run).get("arms") != ARMS


def _other_arms(data: Collected, start: str) -> str:
    """``start``, then the rows that have no place on the axis of doses; empty without any."""
    labels: dict[str, None] = {}
    for row in _rows(data, fresh=False):
        run = started(data, row.row)
        if run is not None and row.row.finished and _has_other_arms(run):
            labels[row.row.label] = None
    if not labels:
        return ""
    return f"{start}rows under other arms of rewording (env.wordings.arms): {first_names(labels)}"


def _fresh(data: Collected) -> str:
    """Note on the chosen rows of the experiment on seeds of its own; empty if none is chosen."""
    labels = [row.row.label for row in _rows(data, fresh=True)] if FRESH in data.asked else []
    if not labels:
        return ""
    return f"rows of {FRESH}, which is on seeds of its own: {first_names(labels)}"


def _baseline(found: Sequence[Line]) -> Line | None:
    return next((line for line in found if line.method == BASELINE), None)


def _rows(data: Collected, *, fresh: bool) -> list[StudyRow]:
    rows: list[StudyRow] = []
    for record in reported(data, meaning=True):
        if (record.experiment == FRESH) == fresh:
            rows += [row for row in shown_rows(data, record) if row.env == ENV]
    return rows


# Drawing


def _draw(
    data: Collected, methods: Sequence[str], drawn: Sequence[Line], baseline: Line | None
) -> Figure:
    """Draw a panel per method, and a line in each for the baseline."""
    width = canvas_width(PAGE_WIDTH)
    columns = 1 if width < NARROW else len(methods)
    panel_rows = math.ceil(len(methods) / columns)
    identities = {line.identity for line in drawn}
    entries = [name for name in STYLES if name in identities]
    entries += sorted(identities - set(STYLES))
    if baseline:
        entries.append(METHOD_LABELS[BASELINE])

    height = (PANEL_HEIGHT if panel_rows == 1 else LOW_PANEL_HEIGHT) * panel_rows + MARGIN
    height += LEGEND_LINE * (legend_lines(entries, width) + remark_lines(STUDY_TITLE, width))
    figure = new_figure(width, height)
    axes = figure.subplots(panel_rows, columns, squeeze=False, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for axis, method in zip(axes.flat, methods, strict=False):
        handles |= _draw_method(data, axis, method, drawn, baseline)
    for left in axes[:, 0]:
        left.set_ylabel("area (%)")
    for bottom in axes[-1]:
        bottom.set_xlabel("reworded observations (%)")
    legend_below(figure, [handles[name] for name in entries if name in handles], entries)
    remark(figure, STUDY_TITLE)
    return figure


def _draw_method(
    data: Collected, axis: Axes, method: str, drawn: Sequence[Line], baseline: Line | None
) -> dict[str, Any]:
    """Draw a method's lines; returns the legend's artists by label."""
    handles: dict[str, Any] = {}
    if baseline is not None:
        mean = 100 * over_seeds(data, baseline.highest.row, AREA).mean
        label = METHOD_LABELS[BASELINE]
        handles[label] = axis.axhline(mean, color=REMARK, linewidth=0.8, zorder=1)
    for line in drawn:
        if line.method != method:
            continue
        doses = sorted(line.rows)
        areas = [over_seeds(data, line.rows[dose].row, AREA) for dose in doses]
        halves = []
        for area in areas:
            low, high = area.interval()
            # Half of the interval's width, in percent; one seed has no interval.
            halves.append(50 * (high - low) if math.isfinite(high - low) else 0.0)
        style = STYLES.get(line.identity, OTHER)
        handles[line.identity] = axis.errorbar(
            [100 * dose for dose in doses],
            [100 * area.mean for area in areas],
            yerr=halves,
            elinewidth=0.6,
            markersize=4,
            **style.line(),
        )

    axis.set_title(METHOD_LABELS.get(method, method))
    axis.set_xticks([0, 25, 50, 75, 100])
    return handles


# Numbers


def _table(data: Collected, found: Sequence[Line], caption: str) -> Table:
    baseline = _baseline(found)
    doses = sorted({dose for line in found for dose in line.rows})
    blocks = []
    for method in dict.fromkeys(line.method for line in found):
        rows: list[Cells] = []
        for line in found:
            if line.method != method:
                continue
            counts = sorted({len(row.row.finished) for row in line.rows.values()})
            rows.append(
                (
                    line.identity if method != BASELINE else "–",
                    "/".join(map(str, counts)),
                    *(_cell(data, line, dose) for dose in doses),
                    _minus(data, line, baseline),
                )
            )
        blocks.append(Block(METHOD_LABELS.get(method, method), tuple(rows)))

    return Table(
        words=("Identity", "Seeds"),
        numbers=(*(f"Area at {100 * dose:g} % reworded (%)" for dose in doses), "Minus GRPO"),
        blocks=tuple(blocks),
        caption=with_note(f"{caption} {_seeds_and_rates(found)}", SCALE),
        label=f"tab:meaning-{SCALE}",
    )


def _seeds_and_rates(found: Sequence[Line]) -> str:
    """Sentence such as ``Seeds 30 to 39; learning rates: 2e-3 of GRPO; 4e-3 of CRBC, SCPO.``."""
    seeds: set[int] = set()
    rates: dict[float, dict[str, None]] = {}
    for line in found:
        for row in line.rows.values():
            seeds |= row.row.finished_seeds
            if row.learning_rate is not None:
                method = METHOD_LABELS.get(line.method, line.method)
                rates.setdefault(row.learning_rate, {})[method] = None
    text = seed_list(seeds).capitalize()
    of_rates = [f"{rate_text(rate)} of {', '.join(rates[rate])}" for rate in sorted(rates)]
    return f"{text}; learning rates: {'; '.join(of_rates)}." if of_rates else f"{text}."


def _cell(data: Collected, line: Line, dose: float) -> Number:
    if dose not in line.rows:
        return NONE
    return percent(over_seeds(data, line.rows[dose].row, AREA))


def _minus(data: Collected, line: Line, baseline: Line | None) -> Number:
    if baseline is None or line.method == BASELINE:
        return NONE
    return difference(compare(data, line.highest, baseline.highest, AREA)[1].difference)
