"""Beyond the paper: interquartile means, performance profiles and steps to a success rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import trim_mean

from analysis import names
from analysis.figures.curves import (
    FEWEST,
    Styles,
    draw_band,
    percentage_limits,
    row_styles,
)
from analysis.names import Footnotes, compared, left_out
from analysis.rendering.style import (
    NARROW,
    PAGE_WIDTH,
    REMARK,
    SMALL,
    Drawing,
    canvas_width,
    characters,
    house_style,
    legend_below,
    legend_lines,
    new_figure,
    remark,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, number, percent
from analysis.sources.collected import Collected, MissingRunsError, missing_runs
from analysis.sources.rows import Row, Section
from analysis.stats.measures import LEVELS, reaches, steps_to
from scpo.benchmarks import with_families
from scpo.intervals import Summary, decimal, summarise
from scpo.schema.env import FAMILIES

# Heights in inches.
HEIGHT = 0.9  # a line of panels without rows
LINE = 0.14  # each row

LEGEND_HEIGHT = 0.16  # a line of the legend
PROFILE_HEIGHT = 1.5  # a profile below the other panels, in a narrow figure

# A panel is at least as high as one with this number of rows.
FEWEST_LINES = 7

# Largest number of models on a page.
MOST = 2
TAUS = np.linspace(0, 1, 101)

# The axis of profiles begins where the first row falls below this percentage of pairs.
NEARLY_ALL = 97

# Share of the rates that an interquartile mean cuts off at each end.
CUT = 0.25

# Fill styles of the markers of LEVELS.
FILLS = ("full", "none")
CAPTION = (
    "Over seeds and task families of {panel}, at the last checkpoint. Interquartile mean: of a "
    "seed's families, the mean of the middle {middle} of their {families} success rates, then the "
    "mean over seeds with its 95 % Student interval, cut off at 0 and 100 %, as those of the "
    "profiles are; its axis and that of τ need not begin at 0. Profiles: share of (seed, family) "
    "pairs above τ, one line a method (legend below), with the same kind of interval from three "
    "seeds on. Training steps: until success on all held-out games first reaches 50 and 80 %, on "
    "the straight lines between validations, mean over seeds; a seed that does not reach it "
    "counts with its last step, and how many do is printed where not all do; a level that no seed "
    "reaches has no point. A bootstrap over seeds is not used: at three seeds its 95 % intervals "
    "cover about 71 %."
)


@dataclass(frozen=True)
class Line:
    """One method.

    Attributes:
        row: Its row.
        other_seeds: Note on its seeds if none is among the main table's (``Section.aside``).
        rate_SF: Success rates of shape (seeds, families).
        steps: Level -> steps until it is reached, summarised over all seeds. A seed that does not
            reach it counts with its last step (``analysis.stats.measures.steps_to``).
        reached: Level -> number of seeds that reach it.
    """

    row: Row
    other_seeds: str
    rate_SF: np.ndarray
    steps: dict[float, Summary]
    reached: dict[float, int]

    @property
    def iqm(self) -> Summary:
        """Summary over seeds of each seed's interquartile mean over families.

        The source (arXiv 2108.13264) pools all seeds and families instead. That mean can lie
        outside of the interval, which is computed from the seeds' means.
        """
        return summarise(trim_mean(self.rate_SF, CUT, axis=1))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, within [0, 1]; NaN for one seed."""
        # np.clip keeps the NaN of a single seed.
        low, high = np.clip(self.iqm.interval(), 0, 1)
        return float(low), float(high)

    def reaching(self, level: float) -> str:
        """Number of seeds that reach a level, and of all seeds, as ``2/3``."""
        return f"{self.reached[level]}/{len(self.rate_SF)}"

    def profile(self) -> list[Summary]:
        """Share of families above each τ, summarised over seeds."""
        # Shape (taus, seeds): the mean over families is one profile per seed.
        share_TS = (self.rate_SF[None] > TAUS[:, None, None]).mean(axis=2)
        return [summarise(shares.tolist()) for shares in share_TS]


Model: TypeAlias = tuple[Section, list[Line]]


def build(data: Collected) -> Drawing:
    """Three panels for each model on ALFWorld; MissingRunsError if no run has families."""
    models = _models(data)
    # Rows that the user chose are drawn under any setting.
    usual = [model for model in models if data.chosen or not model[0].differs]
    drawn = (usual or models)[:MOST]
    notes = Footnotes()
    with house_style():
        figure = _draw(data, drawn, notes)
        panel = names.PANELS[names.JUDGED[drawn[0][0].scale]]
        settings = (names.setting(replace(part, differs="")) for part, _ in drawn)
        place = f"{drawn[0][0].scale} scale, {'; '.join(settings)}"
        remark(
            figure,
            f"{place}: {panel}, last checkpoint (steps: all held-out games); "
            f"seeds: finished/planned.{notes.text}",
        )
    others = [model for model in models if model not in drawn]
    return Drawing(figure, _numbers(data, models, others, notes))


# Data


def _models(data: Collected) -> list[Model]:
    """Sections with task families: usual settings first, then those with most rows."""
    models = []
    for part in data.sections:
        lines = list(_lines(data, part)) if with_families(part.env) else []
        if lines:
            models.append((part, lines))
    if not models:
        _refuse_other_benchmarks(data)
        raise missing_runs("finished ALFWorld runs with families", data.sections, "main_table")
    return sorted(models, key=lambda model: (bool(model[0].differs), -len(model[1])))


def _refuse_other_benchmarks(data: Collected) -> None:
    """Raise MissingRunsError if the user's choice of benchmarks leaves out all with families."""
    shown = {part.env for part in data.sections}
    others = {part.env for part in data.unselected if with_families(part.env)} - shown
    if others and not any(map(with_families, shown)):
        chosen = ", ".join(names.benchmark(env) for env in sorted(shown))
        options = " or ".join(f"--env {env}" for env in sorted(others))
        raise MissingRunsError(
            f"task families on {chosen}, which --env or --experiment chooses: only ALFWorld has "
            "them",
            f"{options}, or a choice with runs on it",
        )


def _lines(data: Collected, part: Section) -> Iterator[Line]:
    trained = [row for row in part.rows if row.finished and data.is_trained(row)]
    for row in compared(trained, data.chosen):
        line = _line(data, part, row)
        if line:
            yield line


def _line(data: Collected, part: Section, row: Row) -> Line | None:
    """The row's seeds with a rate in every family; None without any."""
    panel = names.JUDGED[part.scale]
    rates: list[list[float]] = []
    runs: list[str] = []
    for run in row.finished:
        families = [data.series(run, names.success_metric(panel, name)).last for name in FAMILIES]
        known = [rate for rate in families if rate is not None]
        # Means over fewer families are not comparable with the others.
        if len(known) == len(families):
            rates.append(known)
            runs.append(run)

    if not rates:
        return None
    steps = {}
    reached = {}
    for level in LEVELS:
        measure = steps_to(level)
        steps[level] = summarise(measure.of(data, run) for run in runs)
        reached[level] = sum(reaches(data, run, level) for run in runs)
    return Line(row, part.aside(row), np.array(rates, dtype=float), steps, reached)


# Drawing


def _draw(data: Collected, drawn: Sequence[Model], notes: Footnotes) -> Figure:
    width = canvas_width(PAGE_WIDTH)
    narrow = width < NARROW
    rows = {line.row.name: line.row for _, lines in drawn for line in lines}
    styles = row_styles(data, (line.row for _, lines in drawn for line in lines))
    labels = [row.label for row in rows.values()]
    heights = []
    for _, lines in drawn:
        height = HEIGHT + LINE * max(FEWEST_LINES, len(lines))
        if narrow:
            # The means and the steps of the rows, and the profiles, are below each other.
            height = 2 * height + PROFILE_HEIGHT
        if len(drawn) > 1:
            # The name of the model above its panels.
            height += LEGEND_HEIGHT
        heights.append(height)
    figure = new_figure(width, sum(heights) + LEGEND_HEIGHT * legend_lines(labels, width))
    parts = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
    for (section, lines), part in zip(drawn, parts, strict=True):
        if len(drawn) > 1:
            label = names.setting(replace(section, differs="")) + notes.mark(section.differs)
            part.suptitle(label, fontsize=SMALL)
        if narrow:
            means, steps, profiles = part.subplots(3, 1)
        else:
            means, profiles, steps = part.subplots(1, 3, width_ratios=(1.25, 1.2, 1))
        _draw_means(means, lines, styles)
        _draw_profiles(profiles, lines, styles)
        _draw_steps(steps, lines, styles, narrow=narrow)
        _name_rows(means, lines, notes)
        _name_rows(steps, lines, notes)
        if not narrow:
            # The rows are the same as on the left.
            steps.set_yticklabels([])

    handles = [Line2D([], [], **styles[name]) for name in rows]
    legend_below(figure, handles, labels, handlelength=3.2)
    return figure


def _draw_means(axis: Axes, lines: Sequence[Line], styles: Styles) -> None:
    lowest = 1.0
    for place, line in enumerate(lines):
        style = styles[line.row.name]
        if line.iqm.n > 1:
            low, high = line.interval
            axis.plot(
                [100 * low, 100 * high],
                [place, place],
                color=style["color"],
                linewidth=2.5,
                alpha=0.4,
            )
            lowest = min(lowest, low)
        axis.plot(
            100 * line.iqm.mean,
            place,
            color=style["color"],
            marker=style["marker"],
            markersize=4,
        )
        lowest = min(lowest, line.iqm.mean)

    axis.set_xlabel("interquartile mean (%)")
    axis.set_xlim(*percentage_limits(100 * lowest))


def _draw_profiles(axis: Axes, lines: Sequence[Line], styles: Styles) -> None:
    # Index of the first τ at which a row falls below NEARLY_ALL.
    first_fall = len(TAUS)
    for line in lines:
        style = dict(styles[line.row.name])
        style["marker"] = ""
        style["linewidth"] *= 0.7
        profile = line.profile()
        shares = [100 * share.mean for share in profile]
        axis.plot(100 * TAUS, shares, **style)
        if len(line.rate_SF) >= FEWEST:
            bounds = np.clip([share.interval() for share in profile], 0, 1)
            low, high = 100 * bounds.T
            draw_band(axis, list(100 * TAUS), low, high, style, crowd=len(lines))
        for place, share in enumerate(shares):
            if share < NEARLY_ALL:
                first_fall = min(first_fall, place)
                break

    axis.set_xlabel("success rate τ (%)")
    axis.set_ylabel("pairs above τ (%)")
    axis.set_xlim(percentage_limits(100 * float(TAUS[first_fall]))[0], 100)
    axis.set_ylim(0, 102)


def _draw_steps(axis: Axes, lines: Sequence[Line], styles: Styles, *, narrow: bool) -> None:
    last = 0.0
    for place, line in enumerate(lines):
        color = styles[line.row.name]["color"]
        for level, filling in zip(LEVELS, FILLS, strict=True):
            if not line.reached[level]:
                continue
            steps = line.steps[level].mean
            last = max(last, steps)
            axis.plot(steps, place, color=color, marker="o", fillstyle=filling, markersize=4)
            if line.reached[level] < len(line.rate_SF):
                axis.annotate(
                    f" {line.reaching(level)}",
                    (steps, place),
                    (3, -2),
                    textcoords="offset points",
                    fontsize=SMALL,
                )

    # One of three panels in a row, or as wide as the figure.
    share = 0.9 if narrow else 0.16
    axis.set_xlabel(fill("training steps to reach", characters(canvas_width(PAGE_WIDTH), share)))
    # Room on the right for the annotations.
    axis.set_xlim(0, 1.25 * last or 1)
    if not last:
        axis.set_xticks([])
        axis.grid(visible=False)
        axis.text(
            0.5,
            0.5,
            f"no seed reaches {100 * LEVELS[0]:.0f} %",
            ha="center",
            transform=axis.transAxes,
        )
    handles = []
    for filling in FILLS:
        handles.append(Line2D([], [], color=REMARK, marker="o", fillstyle=filling, linestyle=""))
    axis.legend(
        handles,
        [f"{100 * level:.0f} %" for level in LEVELS],
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=2,
        handletextpad=0.1,
        columnspacing=1,
    )


def _name_rows(axis: Axes, lines: Sequence[Line], notes: Footnotes) -> None:
    labels = [f"{_label(line, notes)}, {line.row.count}" for line in lines]
    axis.set_yticks(range(len(lines)), labels)
    axis.set_ylim(len(lines) - 0.5, -0.5)


def _label(line: Line, notes: Footnotes) -> str:
    row = line.row
    return f"{row.label}{notes.mark(row.differs)}{notes.mark(line.other_seeds)}"


# Numbers


def _numbers(
    data: Collected,
    models: Sequence[Model],
    others: Sequence[Model],
    notes: Footnotes,
) -> Table:
    scale = models[0][0].scale
    blocks = []
    for part, lines in models:
        rows = tuple(_cells(line, notes) for line in lines)
        blocks.append(Block(f"{scale} scale, {names.setting(part)}", rows))
    caption = CAPTION.format(
        panel=names.PANELS[names.JUDGED[scale]],
        middle=len(FAMILIES) - 2 * int(CUT * len(FAMILIES)),
        families=len(FAMILIES),
    )
    caption += f"{notes.text}{names.own_seeds(part for part, _ in models)}"
    caption += names.more_seeds_of((part, [line.row for line in lines]) for part, lines in models)
    return Table(
        words=("Method", "Seeds", "Seeds that reach 50 %, 80 %"),
        numbers=("IQM (%)", "Steps to 50 %", "Steps to 80 %"),
        blocks=tuple(blocks),
        caption=names.with_note(f"{caption}{_not_drawn(data, models, others)}", scale),
        label=f"tab:profiles-{scale}",
        footnotes=notes.texts,
    )


def _cells(line: Line, notes: Footnotes) -> Cells:
    iqm = percent(line.iqm, spread=False)
    if line.iqm.n > 1:
        low, high = (decimal(100 * bound, 1) for bound in line.interval)
        iqm = replace(iqm, interval=(low, high))
    return (
        _label(line, notes),
        line.row.count,
        ", ".join(line.reaching(level) for level in LEVELS),
        iqm,
        *(_steps(line, level) for level in LEVELS),
    )


def _steps(line: Line, level: float) -> Number:
    """Steps until a level; a dash if no seed reaches it, as in ``tab_study``."""
    return number(line.steps[level], 1, 0) if line.reached[level] else NONE


def _not_drawn(data: Collected, models: Sequence[Model], others: Sequence[Model]) -> str:
    """Sentences about settings and rows that are not drawn."""
    text = ""
    if others:
        settings = [names.model(part.model) + part.apart for part, _ in others]
        text += f" Not drawn, in the table: {', '.join(settings)}."
    without_families = [part for part in data.sections if not with_families(part.env)]
    if any(row.finished for part in without_families for row in part.rows):
        text += " WebShop has no task families: it is not drawn here."
    rows = []
    for part, _ in models:
        rows += [row for row in part.rows if row.finished and data.is_trained(row)]
    return text + left_out(rows, (line.row for _, lines in models for line in lines))
