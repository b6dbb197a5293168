"""Draw a matching: similarity matrix, threshold, credited cells and the matcher's walk."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from analysis.rendering.style import ACCENT, SEQUENTIAL, SMALL

WALK = "#1a1a1a"

# Dashes of the walk where it goes back in time.
BACK = (0, (3, 1.5))

# White outline of the walk, which keeps it visible on dark cells.
HALO = [withStroke(linewidth=2.2, foreground="white")]
TICKS = 5


def draw_similarity(
    axis: Axes, similarity_ml: np.ndarray, *, most: float = 1.0, graded: bool = True
) -> Artist:
    """Shade a matrix of reference steps (rows) by failed steps (columns) between 0 and ``most``.

    Args:
        axis: The panel.
        similarity_ml: Similarities.
        most: Value of the darkest shade.
        graded: False draws two shades, for a scorer that gives only 0 and 1.
    """
    shades = mpl.colormaps[SEQUENTIAL]
    image = axis.imshow(
        similarity_ml,
        cmap=shades if graded else shades.resampled(2),
        vmin=0,
        vmax=most,
        origin="lower",
        aspect="auto",
    )
    axis.grid(visible=False)
    axis.set_xlabel("failed step")
    axis.set_ylabel("reference step")
    axis.xaxis.set_major_locator(MaxNLocator(TICKS, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(TICKS, integer=True))
    return image


def frame_credited(axis: Axes, cells: Iterable[tuple[float, float]]) -> None:
    """Frame the credited cells, given as (reference step, failed step)."""
    for reference, failed in cells:
        corner = (failed - 0.5, reference - 0.5)
        axis.add_patch(
            Rectangle(corner, 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.4, zorder=5)
        )


def trace_walk(axis: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw the walk over (failed step, reference step) in processing order.

    Forward in time it is a straight, solid line. Where it goes back to an earlier failed step it is
    a dashed arc with an arrow: at an equal reference step, a straight line would cover solid ones.
    """
    # The matrix determines the limits; arcs may reach beyond it.
    axis.autoscale(enable=False)
    for (left, low), (right, high) in pairwise(points):
        if right > left:
            axis.plot(
                [left, right], [low, high], color=WALK, linewidth=1, path_effects=HALO, zorder=3
            )
        else:
            arc = FancyArrowPatch(
                (left, low),
                (right, high),
                connectionstyle="arc3,rad=0.25",
                arrowstyle="->",
                mutation_scale=5,
                linestyle=BACK,
                linewidth=0.9,
                color=WALK,
                shrinkA=1.5,
                shrinkB=1.5,
                zorder=4,
            )
            axis.add_patch(arc)

    for failed, reference in points:
        axis.plot(
            failed,
            reference,
            "o",
            color=WALK,
            markersize=2.4,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=6,
        )


def mark_threshold(bar: Colorbar, theta: float) -> None:
    """Mark the match threshold on a colour bar."""
    bar.outline.set_linewidth(0.6)
    vertical = bar.orientation == "vertical"
    line = bar.ax.axhline if vertical else bar.ax.axvline
    line(theta, color=ACCENT, linewidth=1.4)
    text = f"threshold θ = {theta:g}"
    if vertical:
        # The longer text may be wider than the bar is high.
        text = f"θ = {theta:g}"
        place = bar.ax.get_yaxis_transform()
        options = {"rotation": 90, "ha": "right", "va": "center", "transform": place}
        bar.ax.text(-0.25, theta, text, fontsize=SMALL, color=ACCENT, **options)
    else:
        bar.ax.text(theta, -0.45, text, color=ACCENT, ha="center", va="top", fontsize=SMALL)


def mark_equality(bar: Colorbar) -> None:
    """Label the two shades of a scorer of equal texts."""
    bar.outline.set_linewidth(0.6)
    labels = ["0 (different)", "1 (equal)"]
    if bar.orientation == "vertical":
        # The texts are not turned, because they may be wider than the bar is high.
        labels = ["0\n(different)", "1\n(equal)"]
    bar.set_ticks([0.25, 0.75], labels=labels)
    bar.ax.tick_params(length=0, labelsize=SMALL)


def walk_handles() -> list[Artist]:
    """Legend handles of the walk's two kinds of lines."""
    return [
        Line2D(
            [],
            [],
            color=WALK,
            linewidth=1,
            marker="o",
            markersize=2.4,
            label="matcher's walk, forward in time",
        ),
        Line2D([], [], color=WALK, linewidth=0.9, linestyle=BACK, label="back to an earlier step"),
    ]


def frame_handle(label: str) -> Artist:
    """Legend handle of a credited cell."""
    return Rectangle((0, 0), 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.4, label=label)
