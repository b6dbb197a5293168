"""Plots of a search, by Optuna: history, parameter importance, slices and a contour."""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.records.files import write_bytes
from scpo.schema.search import Choice
from sweeps.search.plan import Plan
from sweeps.search.study import default_result, ranked

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes
    from optuna.trial import FrozenTrial

GREY = "#999999"
DPI = 150

# With fewer complete trials, the random forest of fANOVA cannot split and a contour would be an
# interpolation of almost nothing.
LEAST_FOR_IMPORTANCE = 4
LEAST_FOR_CONTOUR = 4

# The pair of the contour if both are searched; otherwise the first two numeric parameters.
CONTOUR = ("theta", "soft_base")


def write_plots(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[Path]:
    """Draw each plot for which enough trials are complete; returns the PNG files."""
    if not ranked(trials):
        return []
    import matplotlib.pyplot as plt
    import numpy as np
    import optuna

    # A backend without windows: others fail without a display.
    plt.switch_backend("agg")
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    files = []

    # Optuna's plots change matplotlib's style; the context restores it.
    with plt.rc_context(), warnings.catch_warnings():
        # Optuna warns that its plots are experimental, matplotlib of axes with equal values.
        warnings.simplefilter("ignore")
        for name, draw in PLOTS.items():
            axes = draw(plan, study)
            if axes is not None:
                figure = np.ravel(axes)[0].figure
                buffer = io.BytesIO()
                # Without this key the file would hold matplotlib's version.
                metadata = {"Software": None}
                figure.savefig(
                    buffer, format="png", dpi=DPI, bbox_inches="tight", metadata=metadata
                )
                plt.close(figure)
                files.append(plan.folder / f"{name}.png")
                write_bytes(files[-1], buffer.getvalue())

    return files


def history(plan: Plan, study: "optuna.Study") -> "Axes":
    """Mean and seeds of every trial, the best so far, pruned trials, the unchanged setting."""
    from optuna.visualization.matplotlib import plot_optimization_history

    axes = plot_optimization_history(study, target_name=plan.metric)
    results = ranked(study.trials)
    for result in results:
        values = list(result.by_seed.values())
        axes.plot([result.number] * len(values), values, ".", color=GREY, markersize=4)
    pruned = {}
    for trial in study.trials:
        if trial.state.name == "PRUNED" and trial.value is not None:
            pruned[trial.number] = trial.value
    if pruned:
        axes.plot(list(pruned), list(pruned.values()), "x", color=GREY, label="pruned, last seen")
    default = default_result(plan, results)
    if default is not None:
        style = {"color": "black", "linestyle": ":", "linewidth": 1}
        axes.axhline(default.summary.mean, label="as configured", **style)
    axes.set_xlabel("trial (grey dots: its seeds)")
    axes.legend()
    return axes


def importance(plan: Plan, study: "optuna.Study") -> "Axes | None":
    """Share of the variance that each parameter explains (fANOVA on the complete trials)."""
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization.matplotlib import plot_param_importances

    means = [result.summary.mean for result in ranked(study.trials)]
    # Equal means have no variance to explain.
    if len(means) < LEAST_FOR_IMPORTANCE or len(set(means)) < 2:
        return None
    # A fixed seed, so that the same trials give the same plot.
    evaluator = FanovaImportanceEvaluator(seed=0)
    names = list(plan.search.space)
    return plot_param_importances(study, evaluator=evaluator, params=names, target_name=plan.metric)


def slices(plan: Plan, study: "optuna.Study") -> Any:
    """Mean of each complete trial against each parameter."""
    from optuna.visualization.matplotlib import plot_slice

    return plot_slice(study, params=list(plan.search.space), target_name="mean success rate")


def contour(plan: Plan, study: "optuna.Study") -> "Axes | None":
    """Contour of the mean over two parameters; None with too few or collinear trials."""
    from optuna.visualization.matplotlib import plot_contour

    numbers = []
    for name, dimension in plan.search.space.items():
        if not isinstance(dimension, Choice):
            numbers.append(name)
    pair = CONTOUR if set(CONTOUR) <= set(numbers) else numbers[:2]
    # Optuna interpolates between points, so both parameters must vary.
    points = set()
    for result in ranked(study.trials):
        points.add(tuple(result.params[name] for name in pair))
    varied = [len(set(values)) > 1 for values in zip(*points, strict=True)]
    if len(points) < LEAST_FOR_CONTOUR or varied != [True, True]:
        return None
    return plot_contour(study, params=list(pair), target_name="mean success rate")


PLOTS: dict[str, Callable[[Plan, "optuna.Study"], Any]] = {
    "history": history,
    "importance": importance,
    "slices": slices,
    "contour": contour,
}
