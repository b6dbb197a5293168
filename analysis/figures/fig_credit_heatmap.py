"""Credit heatmap: one failed sibling against its reference at an early, a middle and a late probe of one run."""

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from analysis.naming import names
from analysis.rendering.style import ACCENT, PAGE_WIDTH, REMARK, SEQUENTIAL, Drawing, house_style
from analysis.rendering.table import NONE, Block, Number, Table
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs
from scpo.diagnostics.samples import PROBE_PATTERN, Pair, Probe, read_probe

HEIGHT = 2.6  # inches
WALK = "#1a1a1a"
HALO = [withStroke(linewidth=1.8, foreground="white")]  # the walk stays visible on dark cells


CAPTION = (
    "Similarity of every step of a reference (rows) to every step of a failed sibling (columns) of one fixed game "
    "(task: {task}), {run}, at {count} probes of its training. Credited cells are framed; the walk of j is drawn in "
    "processing order, dotted where that goes back to an earlier step; θ is marked on the scale. The probe is played "
    "for this picture alone, outside of training."
)


def build(data: Collected) -> Drawing:
    """Three probes of one run of one scale; MissingRunsError if no finished run has found a pair."""
    run, probes = _choose(data)
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, HEIGHT))
        axes = figure.subplots(1, len(probes), squeeze=False)[0]
        shades = ScalarMappable(Normalize(0, 1), SEQUENTIAL)
        for axis, probe in zip(axes, probes, strict=True):
            _draw(axis, probe, shades)
        axes[0].set_ylabel("reference step")
        bar = figure.colorbar(shades, ax=axes, aspect=18, pad=0.03)
        bar.set_label("similarity")
        bar.outline.set_linewidth(0.6)
        _mark_threshold(bar.ax, probes)
        figure.legend(handles=_keys(), loc="outside lower center", ncols=3, handlelength=2.2, columnspacing=1.6)
        part = data.sections[0]
        title = f"{names.place(part.scale, part.env, part.model)}, {names.run(run)}, task: {names.task(probes[0].task)}"
        figure.suptitle(title, fontsize=6.5, color=REMARK)
    return Drawing(figure, _numbers(data, run, probes))


def _numbers(data: Collected, run: str, probes: list[Probe]) -> Table:
    scale = data.by_id[run].head.scale
    rows: list[tuple[str | Number, ...]] = []
    for probe in probes:
        if probe.pair is None:
            rows.append((str(probe.step), "no group with a success and a failure", NONE, NONE, NONE))
        else:
            matched_l, similarity_ml = probe.pair.matched_l, probe.pair.similarity_ml
            above = 100 * float((similarity_ml >= probe.pair.theta).mean())
            counts = (Number(str(int((matched_l >= 0).sum()))), Number(str(len(matched_l))), Number(f"{above:.1f}"))
            rows.append((str(probe.step), f"{len(similarity_ml)} × {len(matched_l)}", *counts))
    said = CAPTION.format(task=names.task(probes[0].task), run=names.run(run), count=len(probes))
    return Table(
        words=("Training step", "Reference × failed steps"),
        numbers=("Credited", "Failed steps", "Cells at or above θ (%)"),
        blocks=(Block(f"Measured, {scale} scale, {names.run(run)}", tuple(rows)),),
        caption=names.with_note(said, scale),
        label=f"tab:credit-heatmap-{scale}",
    )


def _choose(data: Collected) -> tuple[str, list[Probe]]:
    """The run with most pairs among its three probes; of equals, the first row's first seed."""
    best: tuple[str, list[Probe]] | None = None
    for run in dict.fromkeys(run for part in data.sections for row in part.rows for run in row.finished):
        probes = _three(data, run)
        if best is None or _pairs(probes) > _pairs(best[1]):
            best = run, probes
    if best is None or _pairs(best[1]) == 0:
        raise missing_runs("finished run whose probe found a success and a failure", data.sections)
    data.use(best[0], *(probe.path for probe in best[1]))
    return best


def _three(data: Collected, run: str) -> list[Probe]:
    files = data.diagnostics(run, PROBE_PATTERN)
    chosen = dict.fromkeys((files[0], files[len(files) // 2], files[-1])) if files else ()
    return [read_probe(path) for path in chosen]


def _pairs(probes: list[Probe]) -> int:
    return sum(probe.pair is not None for probe in probes)


def _draw(axis: Axes, probe: Probe, shades: ScalarMappable) -> None:
    axis.grid(visible=False)
    axis.set_xlabel("failed step (in time order)")
    if probe.pair is None:
        axis.set_title(f"training step {probe.step}:\nno pair found")
        _say_nothing_found(axis)
        return
    axis.imshow(probe.pair.similarity_ml, cmap=shades.cmap, norm=shades.norm, origin="lower", aspect="auto")
    matched_l = probe.pair.matched_l
    credited = np.flatnonzero(matched_l >= 0)
    for failed in credited:
        corner = (failed - 0.5, matched_l[failed] - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.3, zorder=3))
    _trace(axis, probe.pair)
    axis.set_title(f"training step {probe.step}:\n{len(credited)} of {len(matched_l)} failed steps credited")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _trace(axis: Axes, pair: Pair) -> None:
    """The walk of j in processing order: solid forward in time, dotted where the order jumps back."""
    points = [(failed, j) for failed, j in zip(pair.order_l, pair.walk_l, strict=False) if j >= 0]
    for (left, low), (right, high) in pairwise(points):
        dash, width, layer = ("-", 0.8, 2) if right > left else (":", 0.6, 1)
        axis.plot(
            [left, right], [low, high], color=WALK, linestyle=dash, linewidth=width, path_effects=HALO, zorder=layer
        )
    for failed, j in points:
        axis.plot(failed, j, "o", color=WALK, markersize=2, markeredgecolor="white", markeredgewidth=0.4, zorder=4)


def _say_nothing_found(axis: Axes) -> None:
    axis.text(0.5, 0.5, "no group with\na success and a failure", ha="center", va="center", transform=axis.transAxes)
    axis.tick_params(color="none", labelcolor="none")  # kept, invisible: panels stay aligned


def _mark_threshold(axis: Axes, probes: list[Probe]) -> None:
    theta = next(probe.pair.theta for probe in probes if probe.pair)
    axis.axhline(theta, color=ACCENT, linewidth=1.2)
    axis.text(
        -0.25,
        theta,
        f"θ = {theta:g}",
        fontsize=6,
        rotation=90,
        color=ACCENT,
        ha="right",
        va="center",
        transform=axis.get_yaxis_transform(),
    )


def _keys() -> list[Rectangle | Line2D]:
    return [
        Rectangle((0, 0), 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.3, label="credited"),
        Line2D(
            [], [], color=WALK, linewidth=0.8, marker="o", markersize=1.8, label="matched position j, forward in time"
        ),
        Line2D([], [], color=WALK, linewidth=0.6, linestyle=":", label="back to an earlier step"),
    ]
