"""Area under validation of each trained method by learning rate."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes

from analysis.names import STUDY_TITLE, with_note
from analysis.rendering.style import (
    ACCENT,
    PAGE_WIDTH,
    REMARK,
    Drawing,
    canvas_width,
    house_style,
    new_figure,
    points,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, percent
from analysis.sources.collected import Collected, MissingRunsError, missing_runs
from analysis.sources.rows import seed_list
from analysis.stats.measures import AREA, by_seed
from analysis.stats.study_rows import (
    TUNING,
    StudyRow,
    on_common_seeds,
    rate_text,
    rows_of,
    shown_rows,
    study_rows,
)
from scpo.intervals import Summary, summarise
from scpo.schema.method import METHOD_LABELS

SCALE = "study"

# Number of panels per line.
COLUMNS = 4

# Least width for four panels with their ticks, in inches.
LEAST_WIDTH = 6.5

# Heights in inches.
PANEL_HEIGHT = 1.25
MARGIN = 0.55

# Separates method and rate in a row's name.
OF_RATE = "_lr_"

# Number of rows that a remedy names.
NAMED = 3
CAPTION = (
    "Area under validation (mean held-out success over training, %) by learning rate: mean ± "
    "standard deviation over the finished tuning runs, on {seeds}; small dots: seeds. Filled, and "
    "bold in the table: the rate of the method's row in the main table, or else in the first "
    "other experiment that has one; further rows of the method may train at another rate."
)


@dataclass(frozen=True)
class Sweep:
    """One method.

    Attributes:
        method: Name, with the number of siblings where that is not the default: ``gigpo_4``.
        label: Label in print.
        areas: Learning rate -> areas of its tuning seeds.
        seeds: Its tuning seeds with finished runs.
        envs: The environments of these runs.
        chosen: Rate of its own row in the reported experiments; None if these have no such row.
        not_shown: Rate -> areas of finished tuning runs that the choice of rows leaves out.
    """

    method: str
    label: str
    areas: dict[float, list[float]]
    seeds: frozenset[int]
    envs: frozenset[str]
    chosen: float | None
    not_shown: Mapping[float, Sequence[float]] = field(default_factory=dict)

    def at(self, rate: float) -> Summary:
        """Summary over seeds at a rate."""
        return summarise(self.areas.get(rate, ()))

    @property
    def every(self) -> dict[float, Sequence[float]]:
        """``areas`` with those of the rates that are not shown."""
        return {**self.not_shown, **self.areas}

    @property
    def best(self) -> float:
        """Rate with the largest mean, the lowest of several; it may be one that is not shown."""
        every = self.every
        return max(sorted(every), key=lambda rate: summarise(every[rate]).mean)

    @property
    def at_the_edge(self) -> bool:
        """True if the largest mean is at the lowest or the highest rate."""
        return self.best in (min(self.every), max(self.every))


def build(data: Collected) -> Drawing:
    """One panel per method; MissingRunsError if no run of the sweep has finished."""
    methods = sweeps(data)
    rates = _rates(methods)
    lines = math.ceil(len(methods) / COLUMNS)
    with house_style():
        figure = new_figure(canvas_width(PAGE_WIDTH, LEAST_WIDTH), PANEL_HEIGHT * lines + MARGIN)
        axes = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True, sharey=True)
        for place, axis in enumerate(axes.flat):
            if place >= len(methods):
                axis.set_axis_off()
                continue
            _draw(axis, methods[place], rates)
            if place + COLUMNS >= len(methods):
                # The lowest panel of a column labels the shared axis.
                axis.tick_params(labelbottom=True)
                axis.set_xlabel("learning rate")
        for left in axes[:, 0]:
            left.set_ylabel("area (%)")
        # In two lines, which also fit with a larger font.
        text = (
            f"{STUDY_TITLE};\nfilled: the rate of the method's first row in the study, dots: seeds"
        )
        figure.suptitle(text, fontsize=points(7), color=REMARK)
    return Drawing(figure, _table(methods))


def numbers(data: Collected) -> Table:
    """Table of the figure's numbers; MissingRunsError if no run of the sweep has finished."""
    return _table(sweeps(data))


# Data


def sweeps(data: Collected) -> list[Sweep]:
    """Every method of the tuning experiments that has a finished run."""
    areas: dict[str, dict[float, list[float]]] = {}
    labels: dict[str, str] = {}
    seeds: dict[str, set[int]] = {}
    envs: dict[str, set[str]] = {}
    is_selected = False
    for record in data.experiments:
        if record.experiment not in TUNING or record.scale not in data.scales:
            continue
        rows = shown_rows(data, record)
        is_selected = is_selected or any(row.row.finished for row in rows)
        if data.common_seeds:
            rows = on_common_seeds(data, [row for row in rows if row.row.finished])
        for row in rows:
            rate = row.learning_rate
            own = by_seed(data, row.row, AREA)
            values = {seed: area for seed, area in own.items() if area is not None}
            if rate is not None and values:
                method = _method_of(row)
                # "GiGPO, 4 siblings" of "GiGPO, 4 siblings, 5e-4".
                labels.setdefault(method, row.row.label.rpartition(", ")[0] or method)
                by_rate = areas.setdefault(method, {})
                by_rate.setdefault(rate, []).extend(values.values())
                seeds.setdefault(method, set()).update(values)
                envs.setdefault(method, set()).add(row.env)

    every = _finished_rows(data)
    if every and not is_selected:
        names = ",".join(list(dict.fromkeys(row.row.name for row, _ in every))[:NAMED])
        raise MissingRunsError(
            "row of the sweep of learning rates is selected, and its finished runs are there",
            f"leave out --rows, --experiment and --env, or name its rows: --rows {names}",
        )
    if not areas:
        raise missing_runs("finished runs of the learning rates", data.sections, *TUNING)
    used = _used_rates(data, envs)
    found = []
    for method, by_rate in areas.items():
        label = METHOD_LABELS.get(method, labels[method])
        own_seeds, own_envs = frozenset(seeds[method]), frozenset(envs[method])
        left = {
            rate: own for rate, own in _areas_of(every, method, own_envs) if rate not in by_rate
        }
        found.append(Sweep(method, label, by_rate, own_seeds, own_envs, used.get(method), left))
    return found


def _finished_rows(data: Collected) -> list[tuple[StudyRow, tuple[float, ...]]]:
    """All rows of the tuning experiments with finished runs, whichever the user chose.

    Returns:
        The rows, each with the areas of its runs. What is read of them is ``seen`` only.
    """
    found = []
    reading = data.to_choose_from()
    for record in data.experiments:
        if record.experiment in TUNING and record.scale in data.scales:
            for row in rows_of(data, record):
                own = by_seed(reading, row.row, AREA).values()
                areas = tuple(area for area in own if area is not None)
                if row.learning_rate is not None and areas:
                    found.append((row, areas))
    return found


def _areas_of(
    rows: Iterable[tuple[StudyRow, tuple[float, ...]]], method: str, envs: Collection[str]
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Yield the learning rates and areas of a method's rows on these environments."""
    for row, areas in rows:
        rate = row.learning_rate
        if rate is not None and _method_of(row) == method and row.env in envs:
            yield rate, areas


def _method_of(row: StudyRow) -> str:
    """Method of a row of the sweep, with the number of siblings: ``gigpo_4``."""
    return row.row.name.partition(OF_RATE)[0]


def _used_rates(data: Collected, envs: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Learning rate of each swept method's own row in the reported experiments.

    Args:
        data: The collected runs.
        envs: Method -> the environments of its sweep.
    """
    used: dict[str, float] = {}
    for row in study_rows(data):
        rate = row.learning_rate
        for _, name in row.names:
            if rate is not None and row.env in envs.get(name, ()):
                # The first experiment wins, which is the main table.
                used.setdefault(name, rate)
    return used


def _rates(methods: Sequence[Sweep]) -> list[float]:
    return sorted({rate for sweep in methods for rate in sweep.areas})


# Drawing


def _draw(axis: Axes, sweep: Sweep, rates: Sequence[float]) -> None:
    known = []
    means = []
    for place, rate in enumerate(rates):
        values = sweep.areas.get(rate)
        if not values:
            continue
        summary = sweep.at(rate)
        chosen = rate == sweep.chosen
        percentages = [100 * value for value in values]
        axis.plot([place] * len(values), percentages, ".", color=REMARK, ms=2)
        axis.errorbar(
            place,
            100 * summary.mean,
            yerr=100 * summary.std if math.isfinite(summary.std) else None,
            marker="o",
            markersize=5,
            fillstyle="full" if chosen else "none",
            color=ACCENT if chosen else REMARK,
            linewidth=1,
        )
        known.append(place)
        means.append(100 * summary.mean)

    axis.plot(known, means, color=REMARK, linewidth=0.7, zorder=1)
    axis.set_title(sweep.label)
    axis.set_xticks(range(len(rates)), [rate_text(rate) for rate in rates])
    axis.set_xlim(-0.5, len(rates) - 0.5)


# Numbers


def _table(methods: Sequence[Sweep]) -> Table:
    rates = _rates(methods)
    seeds = seed_list(seed for sweep in methods for seed in sweep.seeds)
    caption = CAPTION.format(seeds=seeds) + _unmarked(methods) + _edges(methods)
    lines: list[Cells] = []
    for sweep in methods:
        counts = sorted({len(values) for values in sweep.areas.values()})
        lines.append(
            (
                sweep.label,
                "/".join(map(str, counts)),
                "–" if sweep.chosen is None else rate_text(sweep.chosen),
                *(_cell(sweep, rate) for rate in rates),
            )
        )

    return Table(
        words=("Method", "Seeds", "Used"),
        numbers=tuple(f"Area at {rate_text(rate)} (%)" for rate in rates),
        blocks=(Block("Learning rates", tuple(lines)),),
        caption=with_note(caption, SCALE),
        label=f"tab:study-rates-{SCALE}",
    )


def _cell(sweep: Sweep, rate: float) -> Number:
    if rate not in sweep.areas:
        return NONE
    shown = percent(sweep.at(rate))
    return Number(shown.mean, shown.std, bold=rate == sweep.chosen)


def _unmarked(methods: Sequence[Sweep]) -> str:
    """Sentences about methods without a marked rate; empty if all have one."""
    unused = [sweep.label for sweep in methods if sweep.chosen not in sweep.every]
    hidden = [sweep.label for sweep in methods if sweep.chosen in sweep.not_shown]
    text = ""
    for why, labels in (
        ("no other experiment has a row of theirs at these rates", unused),
        ("the rate of their row is not among those shown", hidden),
    ):
        text += f" Not marked, since {why}: {'; '.join(labels)}." if labels else ""
    return text


def _edges(methods: Sequence[Sweep]) -> str:
    """Sentence about methods whose best rate may lie beyond the sweep, of which all rates count."""
    labels = "; ".join(sweep.label for sweep in methods if sweep.at_the_edge)
    if not labels:
        return ""
    return f" The largest mean is at the edge of the sweep for: {labels}."
