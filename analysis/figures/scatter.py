"""What the two t-SNE figures share: the steps that they show, and how a plane of them is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures.embedding import OF_A_KIND, plane
from analysis.naming import names
from analysis.rendering.style import COLUMN_WIDTH, REMARK, SUCCESS, house_style
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs
from scpo.diagnostics.samples import STEP_TEXTS_PATTERN, StepTexts, read_step_texts

DEFAULT = "scpo"
MARGIN = 0.05


@dataclass(frozen=True)
class Shown:
    """The steps of a run, which of them are drawn, and where."""

    run: str
    scale: str
    steps: StepTexts
    row_n: np.ndarray
    point_n2: np.ndarray


@dataclass(frozen=True)
class Cloud:
    """Points of one kind, as opaque as ``alpha`` says."""

    label: str
    chosen_n: np.ndarray
    color: str
    marker: str
    alpha: float = 0.5


def shown_steps(data: Collected) -> Shown:
    """Those of the default row's first seed that has texts.

    Raises:
        MissingRunsError: No finished run has sampled step texts of successes and failures.
    """
    ordered = sorted(
        ((row.name != DEFAULT, part.scale, run) for part in data.sections for row in part.rows for run in row.finished),
        key=lambda item: item[0],
    )
    for _, scale, run in ordered:
        if paths := data.diagnostics(run, STEP_TEXTS_PATTERN):
            steps = read_step_texts(paths)
            if steps.success_N.any() and not steps.success_N.all():
                data.use(run, *paths)
                return Shown(run, scale, steps, *plane(steps))
    raise missing_runs("finished run that has sampled step texts", data.sections)


def draw_plane(data: Collected, shown: Shown, clouds: Sequence[Cloud], height: float) -> Figure:
    """A column's width of clouds, the last on top, over the shaded density of successes; a plane has no units."""
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, height))
        axis = figure.subplots()
        _draw_density(axis, shown.point_n2[shown.steps.success_N[shown.row_n]])
        _draw_clouds(axis, shown.point_n2, clouds)
        axis.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        handles, labels = axis.get_legend_handles_labels()
        handles.append(Rectangle((0, 0), 1, 1, color=SUCCESS, alpha=0.25, linewidth=0))
        labels.append("dense in successes")
        figure.legend(
            handles, labels, loc="outside lower center", ncols=2, handletextpad=0.2, columnspacing=1, markerscale=1.8
        )
        figure.suptitle(_remark(data, shown), fontsize=6.5, color=REMARK)
    return figure


def _remark(data: Collected, shown: Shown) -> str:
    """What stands above the plane: the run, its batches, and how many of their steps are drawn."""
    head, drawn, recorded = data.by_id[shown.run].head, len(shown.row_n), len(shown.steps.text_N)
    of, most = (f"of {recorded:,} ", f", at most {OF_A_KIND} a kind") if drawn < recorded else ("", "")
    place = names.place(head.scale, head.env.name, head.model.name)
    return f"{place}, {names.run(shown.run)}\n{drawn:,} {of}steps of {shown.steps.batches} batches{most}"


def _draw_density(axis: Axes, point_n2: np.ndarray) -> None:
    """Shade where these points are dense."""
    import seaborn

    if len(np.unique(point_n2, axis=0)) > 2:
        x_n, y_n = point_n2.T
        seaborn.kdeplot(
            x=x_n, y=y_n, ax=axis, fill=True, levels=4, thresh=0.15, bw_adjust=0.4, color=SUCCESS, alpha=0.25, zorder=0
        )


def _draw_clouds(axis: Axes, point_n2: np.ndarray, clouds: Sequence[Cloud]) -> None:
    """One kind after the other; how many points it has stands in the key."""
    for cloud in clouds:
        points = point_n2[cloud.chosen_n]
        size = {"linewidth": 0.5, "s": 5} if cloud.marker == "x" else {"linewidth": 0, "s": 8}
        label = f"{cloud.label} ({len(points):,})"
        axis.scatter(*points.T, marker=cloud.marker, color=cloud.color, alpha=cloud.alpha, label=label, **size)
    low, high = point_n2.min(axis=0), point_n2.max(axis=0)
    pad = MARGIN * (high - low)
    axis.set_xlim(low[0] - pad[0], high[0] + pad[0])
    axis.set_ylim(low[1] - pad[1], high[1] + pad[1])
