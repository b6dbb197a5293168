"""The method on one logged example: group, similarities, matching with credit, advantages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from analysis import names
from analysis.figures.matching import (
    WALK,
    draw_similarity,
    frame_credited,
    frame_handle,
    mark_equality,
    mark_threshold,
    trace_walk,
    walk_handles,
)
from analysis.rendering.style import (
    ACCENT,
    CREDITED,
    FAILED,
    NARROW,
    PAGE_WIDTH,
    SEQUENTIAL,
    SMALL,
    SUCCESS,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    legend_lines,
    new_figure,
    remark,
)
from analysis.rendering.table import Block, Number, Table
from analysis.selection import missing_samples
from analysis.sources.collected import Collected
from analysis.sources.credit_settings import credit_settings, exact_scores, is_exact
from analysis.sources.rows import DEFAULT, Section
from scpo.diagnostics.sampled_groups import PATTERN, read_groups

# Heights in inches.
HEIGHT = 2.35  # a line of panels
LEGEND_HEIGHT = 0.16  # a line of the legend

# Largest number of steps that is legible in a quarter of the page: an episode of scale=study.
WIDEST = 30

# In panel (3), cells at or above θ have the shade of the value 1/ABOVE, which is light enough for
# the walk to stay visible.
ABOVE = 4
KEPT, FILTERED = 0.75, 0.2  # opacity of steps
CAPTION = (
    "SCPO on a rollout group of training step {step} (task: {task}), {run}, {settings}, as logged. "
    "(1) The siblings' steps in time order; the reference and one failed sibling are framed, steps "
    "that the filter leaves out (invalid, without effect) are faint. Of the framed ones it keeps "
    "{kept_r} of {all_r} steps of the reference and {kept_f} of {all_f} of the failed one: the "
    "sides of the matrices. (2) Similarity of every kept reference step to every kept failed "
    "step{scorer}. (3) Its matching: {shaded} are shaded, the walk along the reference is drawn in "
    "processing order, credited cells are framed. (4) What the credit adds to the returns of its "
    "steps (α = {alpha:g}), and their advantages without and with it. Steps of failed rollouts "
    "have no reward of their own."
)


@dataclass(frozen=True)
class Example:
    """One failed sibling of one logged group.

    Attributes:
        part: Section of the run.
        run: Run id.
        step: Training step.
        group: The group as logged (``scpo.diagnostics.sampled_groups``).
        match: The match of the failed sibling, one of the group's matches.
        theta: Match threshold.
        alpha: Auxiliary weight.
        settings: Scorer, matcher and threshold in words.
        exact: Similarities of an exact scorer in words; empty for a graded one.
    """

    part: Section
    run: str
    step: int
    group: dict[str, Any]
    match: dict[str, Any]
    theta: float
    alpha: float
    settings: str
    exact: str

    @property
    def task(self) -> str:
        """The group's task."""
        return str(self.group["task"])

    @property
    def reference(self) -> int:
        """The reference's trajectory."""
        return int(self.group["reference"]["trajectory"])

    @property
    def failed(self) -> int:
        """The failed sibling's trajectory."""
        return int(self.match["trajectory"])

    def steps(self, trajectory: int) -> pd.DataFrame:
        """All logged values of a sibling's steps, indexed by step."""
        steps = pd.DataFrame(self.group["steps"])
        return steps[steps["trajectory"] == trajectory].set_index("step")

    def kept(self, trajectory: int) -> tuple[int, int]:
        """Number of steps of a sibling that the filter keeps, and of all its steps."""
        kept = self.steps(trajectory)["kept"]
        return int(kept.sum()), len(kept)

    @property
    def matched(self) -> pd.DataFrame:
        """The failed sibling's filtered steps in time order."""
        return self.steps(self.failed).loc[self.match["steps"]]


def build(data: Collected) -> Drawing:
    """Draw one example; MissingRunsError if no finished run has sampled a group with credit."""
    example = _choose(data)
    part = example.part
    with house_style():
        figure = _draw(example)
        place = names.place(part.scale, part.env, part.model)
        run = names.run_of_row((part,), example.run)
        remark(
            figure,
            f"{place}, {run}, training step {example.step}, task: {names.task(example.task)}\n"
            f"{example.settings}",
        )
    return Drawing(figure, _pairs(example))


# Data


def _choose(data: Collected) -> Example:
    """The best example of the first run that has any; runs of the default row come first."""
    rows = [(part, row) for part in data.sections for row in part.rows]
    # The sort is stable: otherwise the order of the tables remains.
    rows.sort(key=lambda entry: entry[1].name != DEFAULT)
    for part, row in rows:
        for run in row.finished:
            examples = list(_examples(data, part, run))
            if examples:
                best = max(examples, key=_rank)
                (path,) = data.diagnostics(run, f"groups_step_{best.step:05d}.json.gz")
                data.use(run, path)
                return best
    raise missing_samples(data, "finished run that has sampled a group with credit")


def _examples(data: Collected, part: Section, run: str) -> Iterator[Example]:
    for _, record in data.samples(run, PATTERN, read_groups):
        config = data.by_id[run].config
        shaper = config["method"]["shaper"]
        for group in record["groups"]:
            for match in group["matches"]:
                if match["credited"] and len(match["steps"]) <= WIDEST:
                    yield Example(
                        part=part,
                        run=run,
                        step=record["step"],
                        group=group,
                        match=match,
                        theta=shaper["theta"],
                        alpha=shaper["alpha"],
                        settings=credit_settings(config),
                        exact=exact_scores(config) if is_exact(config) else "",
                    )


def _rank(example: Example) -> tuple[int, int, int]:
    """Most credited steps, then the smallest matrix, then the latest step."""
    cells = len(example.match["steps"]) * len(example.group["reference"]["steps"])
    return len(example.match["credited"]), -cells, example.step


# Drawing


def _draw(example: Example) -> Figure:
    """Draw four panels in a line, or in two lines if narrow; the last is split into two axes."""
    width = canvas_width(PAGE_WIDTH)
    handles = _legend_handles(example)
    labels = [str(handle.get_label()) for handle in handles]
    narrow = width < NARROW
    height = HEIGHT * (2 if narrow else 1) + LEGEND_HEIGHT * legend_lines(labels, width)
    figure = new_figure(width, height)
    if narrow:
        group, similarity, matching, last = figure.subplots(2, 2).flat
    else:
        group, similarity, matching, last = figure.subplots(
            1,
            4,
            width_ratios=(1.05, 1, 1, 1.15),
        )
    bonus, advantage = _split(figure, last)
    _draw_group(group, example)
    _draw_similarity(similarity, example)
    _draw_matching(matching, example)
    _draw_bonus(bonus, example)
    _draw_advantages(advantage, example)
    legend_below(figure, handles, labels, handlelength=2)
    return figure


def _split(figure: Figure, axis: Axes) -> tuple[Axes, Axes]:
    parts = axis.get_subplotspec().subgridspec(2, 1, hspace=0.08)
    # Only the place of these axes in the grid is needed.
    axis.remove()
    top = figure.add_subplot(parts[0])
    return top, figure.add_subplot(parts[1], sharex=top)


def _draw_group(axis: Axes, example: Example) -> None:
    siblings = example.group["siblings"]
    lines = {sibling["trajectory"]: line for line, sibling in enumerate(siblings)}
    _draw_steps(axis, example, lines)
    labels = [""] * len(siblings)
    framed = (
        ("reference", example.reference, WALK),
        ("failed", example.failed, ACCENT),
    )
    for word, trajectory, color in framed:
        line = lines[trajectory]
        frame = Rectangle(
            (-0.6, line - 0.42),
            siblings[line]["steps"] + 0.2,
            0.84,
            fill=False,
            edgecolor=color,
            linewidth=1.1,
        )
        axis.add_patch(frame)
        labels[line] = word

    axis.set_xlim(-1, max(sibling["steps"] for sibling in siblings))
    axis.set_ylim(len(siblings) - 0.4, -0.6)
    axis.set_yticks(range(len(siblings)), labels, fontsize=SMALL)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False)
    axis.set_xlabel("step")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_title("(1) rollout group")


def _draw_steps(axis: Axes, example: Example, lines: dict[int, int]) -> None:
    """Draw a box per step; ``lines``: trajectory -> its line."""
    won = {sibling["trajectory"]: sibling["success"] for sibling in example.group["siblings"]}
    steps = example.group["steps"]
    columns = (steps["trajectory"], steps["step"], steps["kept"])
    for trajectory, step, kept in zip(*columns, strict=True):
        box = Rectangle(
            (step - 0.42, lines[trajectory] - 0.3),
            0.84,
            0.6,
            color=SUCCESS if won[trajectory] else FAILED,
            alpha=KEPT if kept else FILTERED,
            linewidth=0,
        )
        axis.add_patch(box)


def _draw_similarity(axis: Axes, example: Example) -> None:
    image = draw_similarity(axis, np.array(example.match["similarity"]), graded=not example.exact)
    bar = axis.figure.colorbar(
        image,
        ax=axis,
        location="bottom",
        aspect=14,
        pad=0.02,
        ticks=[0, 1],
    )
    if example.exact:
        mark_equality(bar)
    else:
        mark_threshold(bar, example.theta)
    axis.set_title("(2) similarity")


def _draw_matching(axis: Axes, example: Example) -> None:
    similarity = np.array(example.match["similarity"])
    credited = example.match["credited"]
    draw_similarity(axis, similarity >= example.theta, most=ABOVE)
    # The walk has no position (-1) before its first match.
    trace_walk(axis, [(failed, j) for failed, j in example.match["walk"] if j >= 0])
    frame_credited(axis, [(u, v) for u, v, _, _ in credited])
    axis.set_title(f"(3) {len(credited)} of {similarity.shape[1]} credited")


def _draw_bonus(axis: Axes, example: Example) -> None:
    added = example.alpha * example.matched["credit"]
    axis.bar(range(len(added)), added, color=ACCENT, width=0.8)
    axis.set_title("(4) its effect")
    axis.set_ylabel("added to\nthe return", fontsize=SMALL)
    axis.tick_params(labelbottom=False)
    axis.yaxis.set_major_locator(MaxNLocator(3))
    # The lower bound gives the axis a range even if nothing was added.
    axis.set_ylim(0, 1.15 * max(added.max(), 1e-6))


def _draw_advantages(axis: Axes, example: Example) -> None:
    before = example.matched["unshaped_advantage"]
    after = example.matched["advantage"]
    places = range(len(after))
    axis.vlines(places, before, after, color=CREDITED, linewidth=0.8)
    axis.plot(
        places,
        before,
        "o",
        color=WALK,
        fillstyle="none",
        markersize=2.6,
        markeredgewidth=0.7,
    )
    axis.plot(places, after, "o", color=CREDITED, markersize=2.4)
    axis.set_xlabel("failed step")
    axis.set_ylabel("advantage", fontsize=SMALL)
    axis.margins(y=0.15)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _legend_handles(example: Example) -> list[Artist]:
    """Legend handles of all colours and marks."""
    shaded = "similarity 1" if example.exact else "similarity ≥ threshold"
    shade = mpl.colormaps[SEQUENTIAL](1 / ABOVE)
    mark = {"linestyle": "", "marker": "o", "markersize": 3}
    reference = Rectangle(
        (0, 0),
        1,
        1,
        edgecolor=WALK,
        fill=False,
        linewidth=1.1,
        label="reference",
    )
    without = "advantage without credit"
    return [
        _box("step of a success", SUCCESS, KEPT),
        _box("step of a failure", FAILED, KEPT),
        _box("left out by the filter", FAILED, FILTERED),
        reference,
        frame_handle("failed rollout; credited"),
        Rectangle((0, 0), 1, 1, color=shade, linewidth=0, label=shaded),
        *walk_handles(),
        Line2D([], [], color=WALK, fillstyle="none", label=without, **mark),
        Line2D([], [], color=CREDITED, label="advantage with credit", **mark),
    ]


def _box(label: str, color: str, alpha: float) -> Artist:
    return Rectangle((0, 0), 1, 1, color=color, alpha=alpha, linewidth=0, label=label)


# Numbers


def _pairs(example: Example) -> Table:
    """Table of the credited pairs in words."""
    rows = []
    for u, v, similarity, credit in sorted(example.match["credited"]):
        rows.append(
            (
                _words(example, example.group["reference"], u),
                _words(example, example.match, v),
                Number(f"{similarity:.2f}"),
                Number(f"{credit:.2f}"),
            )
        )

    kept_r, all_r = example.kept(example.reference)
    kept_f, all_f = example.kept(example.failed)
    run = names.run_of_row((example.part,), example.run)
    scale = example.part.scale
    scorer, shaded = "", f"cells at or above θ = {example.theta:g}"
    if example.exact:
        scorer = (
            f", {example.exact}: no other value can occur, and that credited steps equal the "
            "reference's is so by construction"
        )
        shaded = f"cells of 1 (θ = {example.theta:g} decides nothing)"
    caption = CAPTION.format(
        step=example.step,
        task=names.task(example.task),
        run=run,
        settings=example.settings,
        scorer=scorer,
        shaded=shaded,
        alpha=example.alpha,
        kept_r=kept_r,
        all_r=all_r,
        kept_f=kept_f,
        all_f=all_f,
    )
    return Table(
        words=("Reference step", "Failed step"),
        numbers=("Similarity", "Credit"),
        blocks=(Block(f"Credited pairs, {scale} scale, {run}, {example.settings}", tuple(rows)),),
        caption=names.with_note(caption, scale),
        label=f"tab:pipeline-{scale}",
        widths=(0.4, 0.4),
    )


def _words(example: Example, sibling: dict[str, Any], place: int) -> str:
    """Action and observation of a sibling's kept step."""
    texts = example.group["texts"]
    step = example.steps(sibling["trajectory"]).loc[sibling["steps"][place]]
    return f"{texts[step['action']]} → {texts[step['observation']]}"
