"""Pictures of a search: history, importance of the knobs, slices, and the contour of two of them."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.intervals import summarise
from scpo.schema import Choice, Dimension, LogRange, StepRange
from scpo.tracking.atomic import write_bytes
from sweeps.search.plan import Plan
from sweeps.search.results import Result, default_result, ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # Okabe and Ito: told apart with any colour vision
DPI = 150
COLUMNS = 4
LEAST_FOR_IMPORTANCE = 4  # complete trials; below, a forest has nothing to split
LEAST_FOR_CONTOUR = 4
CONTOUR = ("theta", "soft_base")  # where both are searched; else the first two that are numbers
Draw = Callable[[Plan, "Sequence[FrozenTrial]"], "Figure | None"]


def write_plots(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[Path]:
    """Draw what there are enough complete trials for; returns the PNG files."""
    files = []
    for name, draw in PLOTS.items():
        figure = draw(plan, trials) if ranked(trials) else None
        if figure is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
            files.append(plan.folder / f"{name}.png")
            write_bytes(files[-1], buffer.getvalue())
    return files


def history(plan: Plan, trials: "Sequence[FrozenTrial]") -> "Figure":
    """Every trial's seeds and mean, the best so far, and the setting that the search started from."""
    figure, axes = _figure(6.0, 3.2)
    results = sorted(ranked(trials), key=lambda one: one.number)
    best = -math.inf
    so_far = [best := max(best, one.summary.mean) for one in results]
    axes.plot([one.number for one in results], so_far, color=ORANGE, drawstyle="steps-post", label="best so far")
    for one in results:
        axes.plot([one.number] * len(one.by_seed), list(one.by_seed.values()), ".", color=GREY, markersize=4)
    axes.plot([one.number for one in results], [one.summary.mean for one in results], "o", color=BLUE, label="mean")
    pruned = {one.number: one.value for one in trials if one.state.name == "PRUNED" and one.value is not None}
    if pruned:
        axes.plot(list(pruned), list(pruned.values()), "x", color=GREY, label="pruned, last seen")
    default = default_result(plan, results)
    if default is not None:
        axes.axhline(default.summary.mean, color="black", linestyle=":", linewidth=1, label="as configured")
    axes.set(xlabel="trial (grey dots: its seeds)", ylabel=plan.metric)
    axes.locator_params(axis="x", integer=True)
    axes.legend(frameon=False, loc="best")
    return figure


def importance(plan: Plan, trials: "Sequence[FrozenTrial]") -> "Figure | None":
    """Shares of the variance of the mean that each knob explains (fANOVA on the complete trials)."""
    import optuna

    if len(ranked(trials)) < LEAST_FOR_IMPORTANCE or len({one.summary.mean for one in ranked(trials)}) < 2:
        return None
    study = optuna.create_study(direction="maximize")
    study.add_trials([trial for trial in trials if trial.state.name == "COMPLETE"])
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator, params=list(plan.search.space))
    figure, axes = _figure(5.0, 0.8 + 0.3 * len(shares))
    names = list(reversed(shares))
    bars = axes.barh(names, [shares[name] for name in names], color=BLUE)
    axes.bar_label(bars, fmt="%.2f", padding=2)
    axes.set(xlabel=f"share of the variance over {len(ranked(trials))} complete trials (fANOVA)", xlim=(0, 1))
    return figure


def slices(plan: Plan, trials: "Sequence[FrozenTrial]") -> "Figure":
    """The mean of each complete trial against each knob."""
    results, space = ranked(trials), plan.search.space
    columns = min(COLUMNS, len(space))
    rows = math.ceil(len(space) / columns)
    figure = _empty(2.2 * columns, 2.0 * rows)
    shared: Axes | None = None
    for place, (name, dimension) in enumerate(space.items()):
        axes = figure.add_subplot(rows, columns, place + 1, sharey=shared)
        shared = shared or axes
        _slice(axes, name, dimension, results)
        if place % columns == 0:
            axes.set_ylabel("mean success rate")
    return figure


def _slice(axes: "Axes", name: str, dimension: Dimension, results: Sequence[Result]) -> None:
    means = [one.summary.mean for one in results]
    if isinstance(dimension, Choice):
        labels = [str(value) for value in dimension.values]
        axes.plot([labels.index(str(one.params[name])) for one in results], means, "o", color=BLUE, alpha=0.7)
        axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
        axes.set_xlim(-0.5, len(labels) - 0.5)
    else:
        axes.plot([one.params[name] for one in results], means, "o", color=BLUE, alpha=0.7)
        _whole_range(axes, dimension)
    axes.plot(*_place(name, dimension, results[0]), "o", color=ORANGE)
    axes.set_title(name)


def _whole_range(axes: "Axes", dimension: StepRange | LogRange) -> None:
    """The axis shows what might have been tried, not only what was."""
    if isinstance(dimension, LogRange):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(lambda _value, _place: "")
        axes.set_xlim(dimension.low / 1.2, dimension.high * 1.2)
    else:
        margin = (dimension.high - dimension.low) / 20
        axes.set_xlim(dimension.low - margin, dimension.high + margin)


def _place(name: str, dimension: Dimension, result: Result) -> tuple[list[Any], list[float]]:
    value = result.params[name]
    return [dimension.values.index(value) if isinstance(dimension, Choice) else value], [result.summary.mean]


def contour(plan: Plan, trials: "Sequence[FrozenTrial]") -> "Figure | None":
    """The mean over two knobs, averaged over the others; dots are what was tried, the orange one is the best."""
    pair, results = _pair(plan), ranked(trials)
    if pair is None:
        return None
    places: dict[tuple[float, float], list[float]] = {}
    for one in results:
        places.setdefault((one.params[pair[0]], one.params[pair[1]]), []).append(one.summary.mean)
    x, y = zip(*places, strict=True)
    if len(places) < LEAST_FOR_CONTOUR or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    figure, axes = _figure(4.6, 3.6)
    means = [summarise(values).mean for values in places.values()]
    if _spans_a_plane(x, y):
        figure.colorbar(axes.tricontourf(x, y, means, levels=12, cmap="Blues"), label="mean success rate")
    axes.plot(x, y, "o", color="white", markeredgecolor="black", markersize=4, clip_on=False)
    axes.plot(results[0].params[pair[0]], results[0].params[pair[1]], "o", color=ORANGE, markeredgecolor="black")
    axes.set(xlabel=pair[0], ylabel=pair[1])
    return figure


def _pair(plan: Plan) -> tuple[str, str] | None:
    numbers = [name for name, dimension in plan.search.space.items() if not isinstance(dimension, Choice)]
    if set(CONTOUR) <= set(numbers):
        return CONTOUR
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None


def _spans_a_plane(x: Sequence[float], y: Sequence[float]) -> bool:
    """Points on one line have no triangles between them."""
    return any(abs((x[1] - x[0]) * (y[at] - y[0]) - (y[1] - y[0]) * (x[at] - x[0])) > 1e-12 for at in range(2, len(x)))


def _empty(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    figure = _empty(width, height)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


PLOTS: dict[str, Draw] = {"history": history, "importance": importance, "slices": slices, "contour": contour}
