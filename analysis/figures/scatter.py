"""What the two t-SNE figures share: the run that they show, clouds of points and the shaded density of successes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures.embedding import OF_A_KIND, plane
from analysis.naming import names
from analysis.rendering.style import REMARK, SUCCESS
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs
from scpo.diagnostics.step_texts import PATTERN, StepTexts, read_step_texts

DEFAULT = "scpo"
MARGIN = 0.05


@dataclass(frozen=True)
class Cloud:
    """Points of one kind, as opaque as ``alpha`` says."""

    label: str
    chosen_n: np.ndarray
    color: str
    marker: str
    alpha: float = 0.5


def chosen_run(data: Collected) -> tuple[str, str, StepTexts, np.ndarray, np.ndarray]:
    """Run, scale, steps, the rows that are shown and their points: the default row's first seed that has texts.

    Raises:
        MissingRunsError: No finished run has sampled step texts of successes and failures.
    """
    ordered = sorted(
        ((row.name != DEFAULT, part.scale, run) for part in data.sections for row in part.rows for run in row.finished),
        key=lambda item: item[0],
    )
    for _, scale, run in ordered:
        if paths := data.diagnostics(run, PATTERN):
            steps = read_step_texts(paths)
            if steps.success_N.any() and not steps.success_N.all():
                for path in paths:
                    data.use(run, path)
                return run, scale, steps, *plane(steps)
    raise missing_runs("finished run that has sampled step texts", data.sections)


def remark(data: Collected, run: str, steps: StepTexts, shown: np.ndarray) -> str:
    """What stands above the plane: the run, its batches, and how many of their steps are drawn."""
    head = data.by_id[run].head
    some = len(shown) < len(steps.text_N)
    of, most = (f"of {len(steps.text_N):,} ", f", at most {OF_A_KIND} a kind") if some else ("", "")
    place = names.place(head.scale, head.env.name, head.model.name)
    return f"{place}, {names.run(run)}\n{len(shown):,} {of}steps of {steps.batches} batches{most}"


def draw_density(axis: Axes, point_n2: np.ndarray) -> None:
    """Shade where these points are dense."""
    import seaborn

    if len(np.unique(point_n2, axis=0)) > 2:
        x_n, y_n = point_n2.T
        seaborn.kdeplot(
            x=x_n, y=y_n, ax=axis, fill=True, levels=4, thresh=0.15, bw_adjust=0.4, color=SUCCESS, alpha=0.25, zorder=0
        )


def draw_clouds(axis: Axes, point_n2: np.ndarray, clouds: Sequence[Cloud]) -> None:
    """Draw the kinds one after the other, so that the last lies on top; how many there are stands in the key."""
    for cloud in clouds:
        points = point_n2[cloud.chosen_n]
        size = {"linewidth": 0.5, "s": 5} if cloud.marker == "x" else {"linewidth": 0, "s": 8}
        label = f"{cloud.label} ({len(points):,})"
        axis.scatter(*points.T, marker=cloud.marker, color=cloud.color, alpha=cloud.alpha, label=label, **size)
    low, high = point_n2.min(axis=0), point_n2.max(axis=0)
    pad = MARGIN * (high - low)
    axis.set_xlim(low[0] - pad[0], high[0] + pad[0])
    axis.set_ylim(low[1] - pad[1], high[1] + pad[1])


def finish(figure: Figure, axis: Axes, said: str) -> None:
    """A plane without units: no ticks; keys below."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel("t-SNE 1")
    axis.set_ylabel("t-SNE 2")
    handles, labels = axis.get_legend_handles_labels()
    handles.append(Rectangle((0, 0), 1, 1, color=SUCCESS, alpha=0.25, linewidth=0))
    labels.append("dense in successes")
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, handletextpad=0.2, columnspacing=1, markerscale=1.8
    )
    figure.suptitle(said, fontsize=6.5, color=REMARK)
