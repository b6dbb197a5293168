"""The method on one logged example: rollout group, similarities, matching with credit, returns and advantages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from analysis.naming import names
from analysis.rendering.style import (
    ACCENT,
    CREDITED,
    FAILED,
    PAGE_WIDTH,
    REMARK,
    SEQUENTIAL,
    SUCCESS,
    Drawing,
    house_style,
)
from analysis.rendering.table import Block, Number, Table
from analysis.sources.collect import Collected
from analysis.sources.rows import Section, missing_runs
from scpo.diagnostics.sampled_groups import PATTERN, read_groups

HEIGHT = 2.75  # inches
DEFAULT = "scpo"
WIDEST = 30  # steps that are legible in a quarter of the page; as many as an episode has at scale=study
WALK = "#1a1a1a"
ABOVE = 4  # the shade of a cell at or above θ is one of so many parts of the scale
HALO = [withStroke(linewidth=1.8, foreground="white")]
CAPTION = (
    "SCPO on a rollout group of training step {step} (task: {task}), {run}, as logged. (1) The siblings' steps in time "
    "order; the reference and one failed sibling are framed, steps that the filter leaves out (invalid, without "
    "effect) are faint. Of the framed ones it keeps {kept_r} of {all_r} steps of the reference and {kept_f} of {all_f} "
    "of the failed one: the sides of the matrices. (2) Similarity of every kept reference step to every kept failed "
    "step. (3) Its matching: cells at or above θ = {theta:g} are shaded, the walk of j is drawn in processing order, "
    "credited cells are framed. (4) What the credit adds to the returns of its steps (α = {alpha:g}), and their "
    "advantages without and with it. Steps of failed rollouts have no reward of their own."
)


@dataclass(frozen=True)
class Example:
    """One failed sibling of one logged group."""

    part: Section
    run: str
    step: int
    group: dict[str, Any]
    match: dict[str, Any]
    theta: float
    alpha: float

    @property
    def task(self) -> str:
        """The group's task."""
        return str(self.group["task"])

    def steps(self, trajectory: int) -> pd.DataFrame:
        """The steps of a sibling with all that was logged of them, by their time."""
        steps = pd.DataFrame(self.group["steps"])
        return steps[steps["trajectory"] == trajectory].set_index("step")

    def kept(self, trajectory: int) -> tuple[int, int]:
        """Steps of a sibling that the filter keeps, of all that it has."""
        kept = self.steps(trajectory)["kept"]
        return int(kept.sum()), len(kept)

    @property
    def matched(self) -> pd.DataFrame:
        """The failed sibling's filtered steps in time order."""
        return self.steps(self.match["trajectory"]).loc[self.match["steps"]]


def build(data: Collected) -> Drawing:
    """One example of one scale; MissingRunsError if no finished run has sampled a group with credit."""
    example = _choose(data)
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, HEIGHT))
        group, similarity, matching, last = figure.subplots(1, 4, width_ratios=(1.05, 1, 1, 1.25))
        bonus, advantage = _split(figure, last)
        _draw_group(group, example)
        _draw_similarity(similarity, example)
        _draw_matching(matching, example)
        _draw_bonus(bonus, example)
        _draw_advantages(advantage, example)
        place = names.place(example.part.scale, example.part.env, example.part.model)
        title = f"{place}, {names.run(example.run)}, training step {example.step}, task: {names.task(example.task)}"
        figure.suptitle(title, fontsize=6.5, color=REMARK)
        figure.legend(handles=_keys(), loc="outside lower center", ncols=5, fontsize=6.3, handlelength=1.6)
    return Drawing(figure, _pairs(example))


def _choose(data: Collected) -> Example:
    """The default's first seed with credit; of its samples the match with most credited steps, then the smallest."""
    rows = [(part, row) for part in data.sections for row in part.rows]
    for part, row in sorted(rows, key=lambda item: item[1].name != DEFAULT):
        for run in row.finished:
            if found := list(_examples(data, part, run)):
                best = max(found, key=_worth)
                (path,) = data.diagnostics(run, f"groups_step_{best.step:05d}.json.gz")
                data.use(run, path)
                return best
    raise missing_runs("finished run that has sampled a group with credit", data.sections)


def _examples(data: Collected, part: Section, run: str) -> Iterator[Example]:
    for path in data.diagnostics(run, PATTERN):
        record = read_groups(path)
        shaper = data.by_id[run].config["method"]["shaper"]
        for group in record["groups"]:
            for match in group["matches"]:
                if match["credited"] and len(match["steps"]) <= WIDEST:
                    yield Example(part, run, record["step"], group, match, shaper["theta"], shaper["alpha"])


def _worth(example: Example) -> tuple[int, int, int]:
    size = len(example.match["steps"]) * len(example.group["reference"]["steps"])
    return len(example.match["credited"]), -size, example.step


def _split(figure: Figure, axis: Axes) -> Sequence[Axes]:
    parts = axis.get_subplotspec().subgridspec(2, 1, hspace=0.08)
    axis.remove()
    top = figure.add_subplot(parts[0])
    return top, figure.add_subplot(parts[1], sharex=top)


def _draw_group(axis: Axes, example: Example) -> None:
    steps, siblings = example.group["steps"], example.group["siblings"]
    ranks = {sibling["trajectory"]: place for place, sibling in enumerate(siblings)}
    won = {sibling["trajectory"]: sibling["success"] for sibling in siblings}
    for trajectory, step, kept in zip(steps["trajectory"], steps["step"], steps["kept"], strict=True):
        color = SUCCESS if won[trajectory] else FAILED
        axis.add_patch(
            Rectangle(
                (step - 0.42, ranks[trajectory] - 0.3), 0.84, 0.6, color=color, alpha=0.75 if kept else 0.2, linewidth=0
            )
        )
    for trajectory, color in ((example.group["reference"]["trajectory"], WALK), (example.match["trajectory"], ACCENT)):
        length = siblings[ranks[trajectory]]["steps"]
        axis.add_patch(
            Rectangle((-0.6, ranks[trajectory] - 0.42), length + 0.2, 0.84, fill=False, edgecolor=color, linewidth=1)
        )
    axis.set_xlim(-1, max(sibling["steps"] for sibling in siblings))
    axis.set_ylim(len(siblings) - 0.4, -0.6)
    texts = {
        trajectory: "{}\n{} of {}".format(word, *example.kept(trajectory))
        for word, trajectory in (
            ("reference", example.group["reference"]["trajectory"]),
            ("failed", example.match["trajectory"]),
        )
    }
    labels = [texts.get(one["trajectory"], "") for one in siblings]
    axis.set_yticks(range(len(siblings)), labels, fontsize=5.2, linespacing=0.9)  # two below each other do not touch
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False)
    axis.set_xlabel("step")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_title("(1) rollout group")


def _draw_similarity(axis: Axes, example: Example) -> None:
    image = axis.imshow(
        np.array(example.match["similarity"]), cmap=SEQUENTIAL, vmin=0, vmax=1, origin="lower", aspect="auto"
    )
    bar = axis.figure.colorbar(image, ax=axis, location="bottom", aspect=14, pad=0.02, ticks=[0, 1])
    bar.outline.set_linewidth(0.6)
    bar.ax.axvline(example.theta, color=ACCENT, linewidth=1.4)
    bar.ax.text(example.theta, -0.35, f"θ = {example.theta:g}", color=ACCENT, ha="center", va="top", fontsize=6.5)
    axis.set_title("(2) similarity M")
    _dress_matrix(axis)


def _draw_matching(axis: Axes, example: Example) -> None:
    similarity = np.array(example.match["similarity"])
    axis.imshow(similarity >= example.theta, cmap=SEQUENTIAL, vmin=0, vmax=ABOVE, origin="lower", aspect="auto")
    points = [(failed, j) for failed, j in example.match["walk"] if j >= 0]
    for (left, low), (right, high) in pairwise(points):
        dash, width = ("-", 0.8) if right > left else (":", 0.6)
        axis.plot([left, right], [low, high], color=WALK, linestyle=dash, linewidth=width, path_effects=HALO, zorder=2)
    for u, v, _, _ in example.match["credited"]:
        axis.add_patch(Rectangle((v - 0.5, u - 0.5), 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.3, zorder=3))
    axis.set_title(f"(3) {len(example.match['credited'])} of {similarity.shape[1]} credited")
    _dress_matrix(axis)


def _dress_matrix(axis: Axes) -> None:
    axis.grid(visible=False)
    axis.set_xlabel("failed step")
    axis.set_ylabel("reference step")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_bonus(axis: Axes, example: Example) -> None:
    added = example.alpha * example.matched["credit"]
    axis.bar(range(len(added)), added, color=ACCENT, width=0.8)
    axis.set_title("(4) its effect")
    axis.set_ylabel("added to R")
    axis.tick_params(labelbottom=False)
    axis.yaxis.set_major_locator(MaxNLocator(3))
    axis.set_ylim(0, 1.15 * max(added.max(), 1e-6))


def _draw_advantages(axis: Axes, example: Example) -> None:
    before, after = example.matched["unshaped_advantage"], example.matched["advantage"]
    places = range(len(after))
    axis.vlines(places, before, after, color=CREDITED, linewidth=0.8)
    axis.plot(places, before, "o", color=WALK, fillstyle="none", markersize=2.6, markeredgewidth=0.7)
    axis.plot(places, after, "o", color=CREDITED, markersize=2.4)
    axis.set_xlabel("failed step")
    axis.set_ylabel("advantage")
    axis.margins(y=0.15)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _keys() -> list[Rectangle | Line2D]:
    """What every colour and mark stands for."""
    shade = mpl.colormaps[SEQUENTIAL](1 / ABOVE)
    frame = {"fill": False, "linewidth": 1.2}
    mark = {"linestyle": "", "marker": "o", "markersize": 3}
    return [
        Rectangle((0, 0), 1, 1, color=SUCCESS, alpha=0.75, linewidth=0, label="step of a success"),
        Rectangle((0, 0), 1, 1, color=FAILED, alpha=0.75, linewidth=0, label="step of a failure"),
        Rectangle((0, 0), 1, 1, color=FAILED, alpha=0.2, linewidth=0, label="left out by the filter"),
        Rectangle((0, 0), 1, 1, edgecolor=WALK, label="reference", **frame),
        Rectangle((0, 0), 1, 1, edgecolor=ACCENT, label="failed sibling; credited cell", **frame),
        Rectangle((0, 0), 1, 1, color=shade, linewidth=0, label="similarity ≥ θ"),
        Line2D([], [], color=WALK, linewidth=0.8, label="walk of j, forward"),
        Line2D([], [], color=WALK, linewidth=0.8, linestyle=":", label="back to an earlier step"),
        Line2D([], [], color=WALK, fillstyle="none", label="advantage without credit", **mark),
        Line2D([], [], color=CREDITED, label="advantage with credit", **mark),
    ]


def _pairs(example: Example) -> Table:
    """The credited pairs in words."""
    reference, failed, texts = example.group["reference"], example.match, example.group["texts"]

    def words(sibling: dict[str, Any], place: int) -> str:
        step = example.steps(sibling["trajectory"]).loc[sibling["steps"][place]]
        return f"{texts[step['action']]} → {texts[step['observation']]}"

    rows = tuple(
        (words(reference, u), words(failed, v), Number(f"{similarity:.2f}"), Number(f"{credit:.2f}"))
        for u, v, similarity, credit in sorted(failed["credited"])
    )
    (kept_r, all_r), (kept_f, all_f) = (example.kept(one["trajectory"]) for one in (reference, failed))
    counts = {"kept_r": kept_r, "all_r": all_r, "kept_f": kept_f, "all_f": all_f}
    task, run = names.task(example.task), names.run(example.run)
    caption = CAPTION.format(step=example.step, task=task, run=run, theta=example.theta, alpha=example.alpha, **counts)
    return Table(
        words=("Reference step", "Failed step"),
        numbers=("Similarity", "Credit"),
        blocks=(Block(f"Credited pairs, {run}", rows),),
        caption=names.with_note(caption, example.part.scale),
        label=f"tab:pipeline-{example.part.scale}",
        widths=(0.4, 0.4),
    )
