"""Credit over training: credited steps per failed trajectory and mean auxiliary reward, by processing order."""

from collections.abc import Iterator

from matplotlib.figure import Figure

from analysis.figures.curves import curve, draw, over_training
from analysis.naming import names
from analysis.naming.line_styles import plot_styles
from analysis.paper.published import credit
from analysis.rendering.style import COLUMN_WIDTH, REMARK, Drawing, house_style
from analysis.rendering.table import NONE, Block, Number, Table, number
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from scpo.intervals import summarise

HEIGHT = 1.9  # inches
ROWS = {"scpo": "reordered (default)", "chronological": "chronological"}
METRICS = {
    "credit/steps": ("credited steps per failed trajectory", "credited steps per\nfailed trajectory", 2),
    "credit/aux_mean": ("mean auxiliary reward", "mean auxiliary\nreward per step", 4),
}
WINDOW = 5  # steps of the moving average (paper, appendix "Step-reward analysis")
FIRST, LAST = 20, 150  # steps over which the paper averages
CAPTION = (
    "Credit over training: mean over the finished seeds at the steps that all of them have, band ± one standard "
    "deviation, moving average over 5 steps. "
    "Failed trajectories are those of active groups, groups with a success and a failure."
)


def build(data: Collected) -> Drawing:
    """One pair of panels; MissingRunsError if no run with credit has finished."""
    part = _choose(data)
    rows = [row for name in ROWS for row in part.rows if row.name == name and row.finished]
    styles = plot_styles(rows)
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, HEIGHT))
        axes = figure.subplots(1, len(METRICS))
        for axis, (metric, (_, label, _)) in zip(axes, METRICS.items(), strict=True):
            for row in rows:
                draw(axis, curve(data, row, metric, window=WINDOW, first=1), styles[row.name] | {"marker": ""})
            axis.set_ylabel(label)
            axis.set_ylim(bottom=0)
            over_training(axis, percent=False)
        handles = [axes[0].plot([], [], **styles[row.name] | {"marker": ""})[0] for row in rows]
        texts = [f"{ROWS[row.name]}, {row.count}" for row in rows]
        figure.legend(handles, texts, loc="outside lower center", ncols=2, handlelength=2.2, columnspacing=1.2)
        figure.suptitle(names.place(part.scale, part.env, part.model), fontsize=7, color=REMARK)
    return Drawing(figure, _numbers(data, part, rows))


def _choose(data: Collected) -> Section:
    """The first section with both orders, else the first with the default."""
    ready = [part for part in data.sections if any(_credited(data, row) for row in part.rows if row.name == "scpo")]
    if not ready:
        raise missing_runs("finished run with credit", data.sections, "ablation_order")
    return max(ready, key=lambda part: sum(bool(row.finished) for row in part.rows if row.name in ROWS))


def _credited(data: Collected, row: Row) -> bool:
    return any(data.series(run, "credit/steps").values for run in row.finished)


def _numbers(data: Collected, part: Section, rows: list[Row]) -> Table:
    paper = part.scale == "paper"
    blocks = [
        Block(f"Measured, {names.place(part.scale, part.env, part.model)}", tuple(_measured(data, rows, paper=paper)))
    ]
    if paper:
        blocks.insert(0, Block("Published, Qwen2.5-1.5B on ALFWorld", tuple(_published())))
    return Table(
        words=("Order", "Seeds", "Steps"),
        numbers=tuple(quantity for quantity, _, _ in METRICS.values()),
        blocks=tuple(blocks),
        caption=names.with_note(CAPTION, part.scale),
        label=f"tab:credit-trend-{part.scale}",
    )


def _published() -> Iterator[tuple[str | Number, ...]]:
    numbers, span = credit(), f"mean over steps {FIRST}-{LAST}"
    for name, label in ROWS.items():
        values = (numbers.get((name, quantity, span)) for quantity, _, _ in METRICS.values())
        yield (label, "3", f"{FIRST}–{LAST}", *(NONE if value is None else Number(f"{value:g}") for value in values))


def _measured(data: Collected, rows: list[Row], *, paper: bool) -> Iterator[tuple[str | Number, ...]]:
    first, last = (FIRST, LAST) if paper else (1, max(data.series(rows[0].finished[0], "credit/steps").steps))
    for row in rows:
        cells = (
            number(summarise(data.series(run, metric).between(first, last).mean for run in row.finished), 1, digits)
            for metric, (_, _, digits) in METRICS.items()
        )
        yield (ROWS[row.name], row.count, f"{first}–{last}", *cells)
