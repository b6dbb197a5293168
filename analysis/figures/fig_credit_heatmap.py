"""Credit heatmap: a failed sibling against its reference at three probes of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis import names
from analysis.figures.matching import (
    draw_similarity,
    frame_credited,
    frame_handle,
    mark_equality,
    mark_threshold,
    trace_walk,
    walk_handles,
)
from analysis.rendering.style import (
    COLUMN_WIDTH,
    NARROW,
    PAGE_WIDTH,
    SMALL,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    new_figure,
    remark,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table
from analysis.selection import missing_samples
from analysis.sources.collected import Collected
from analysis.sources.credit_settings import credit_settings, exact_scores, is_exact
from analysis.sources.rows import Section
from scpo.diagnostics.samples import PROBE_PATTERN, Pair, Probe, read_probe
from scpo.progress import counted

# Heights in inches.
HEIGHT = 2.4  # one line of panels with its texts
NARROW_HEIGHT = 1.6  # a panel of a figure that is one column wide
MARGIN = 0.9  # the texts around such panels
NO_PAIR = "no group with a success and a failure"
CAPTION = (
    "Similarity of every step of a reference (rows) to every step of a failed sibling (columns) "
    "of one fixed game (task: {task}), {run}, {settings}, at {count} of its training. {scorer} "
    "Credited cells are framed; the line is the matcher's walk along the reference, in the order "
    "in which it takes the failed steps, dashed where that goes back in time. {without}The probe "
    "is played only for this picture, outside of training."
)


def build(data: Collected) -> Drawing:
    """Up to three probes of one run; MissingRunsError if no finished run has found a pair."""
    part, run, probes = _choose(data)
    drawn = [probe for probe in probes if probe.pair]
    with house_style():
        config = data.by_id[run].config
        figure = _draw(drawn, graded=not is_exact(config))
        place = names.place(part.scale, part.env, part.model)
        task = names.task(probes[0].task)
        name = names.run_of_row(data.sections, run)
        remark(
            figure,
            f"{place}, {name}, task: {task}\n{credit_settings(config)}{_without(probes, '; ')}",
        )
    return Drawing(figure, _numbers(data, run, probes))


def _choose(data: Collected) -> tuple[Section, str, list[Probe]]:
    """The run with most pairs among its chosen probes; of several, the first in table order.

    Returns:
        The section of the run, its id and its chosen probes.

    Raises:
        MissingRunsError: No finished run has a probe with a pair.
    """
    best: tuple[Section, str, list[Probe]] | None = None
    most = 0
    for part in data.sections:
        for row in part.rows:
            for run in row.finished:
                probes = _chosen_probes(data, run)
                pairs = sum(probe.pair is not None for probe in probes)
                if pairs > most:
                    best = (part, run, probes)
                    most = pairs
    if best is None:
        raise missing_samples(data, "finished run whose probe found a success and a failure")
    _, run, probes = best
    data.use(run, *(probe.path for probe in probes))
    return best


def _chosen_probes(data: Collected, run: str) -> list[Probe]:
    """The first, the middle and the last probe with a pair, or of all probes if none has a pair.

    The first and the last probe are added if they have no pair, because the caption names them.
    """
    probes = [probe for _, probe in data.samples(run, PROBE_PATTERN, read_probe)]
    candidates = [probe for probe in probes if probe.pair] or probes
    if not candidates:
        return []
    places = dict.fromkeys((0, len(candidates) // 2, len(candidates) - 1))
    chosen = [candidates[place] for place in places]
    ends = [probe for probe in (probes[0], probes[-1]) if probe not in chosen]
    return sorted([*chosen, *ends], key=lambda probe: int(probe.step))


def _without(probes: Sequence[Probe], separator: str) -> str:
    steps = [str(probe.step) for probe in probes if not probe.pair]
    if not steps:
        return ""
    return f"{separator}{NO_PAIR} at step {', '.join(steps)}"


def _scorer(config: Mapping[str, Any], theta: float) -> str:
    """Sentence on the values that similarities can have."""
    if is_exact(config):
        return (
            f"Its scorer gives {exact_scores(config)}: no other similarity can occur, "
            f"θ = {theta:g} decides nothing, and credited steps equal the reference's by "
            "construction."
        )
    return "θ is marked on the scale."


def _draw(probes: Sequence[Probe], *, graded: bool) -> Figure:
    """One panel for each probe: side by side, or below each other on a narrow canvas."""
    width = canvas_width(PAGE_WIDTH if len(probes) > 1 else COLUMN_WIDTH)
    columns = 1 if width < NARROW else len(probes)
    lines = len(probes) // columns  # without a remainder: `columns` is 1 or their number
    figure = new_figure(width, NARROW_HEIGHT * lines + MARGIN if columns == 1 else HEIGHT)
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis, probe in zip(axes.flat, probes, strict=True):
        pair = probe.pair
        # For mypy: `build` passes only probes with a pair.
        if pair is None:
            raise ValueError("only probes with a pair are drawn")
        image = draw_similarity(axis, pair.similarity_ml, graded=graded)
        credited = np.flatnonzero(pair.matched_l >= 0)
        cells = [(int(pair.matched_l[failed]), int(failed)) for failed in credited]
        frame_credited(axis, cells)
        trace_walk(axis, _walk(pair))
        axis.set_title(
            f"training step {probe.step}: {len(credited)} of {len(pair.matched_l)} credited"
        )

    for axis in axes[:, 1:].flat:
        axis.set_ylabel("")
    bar = figure.colorbar(image, ax=axes, aspect=18 * lines, pad=0.03)
    bar.set_label("similarity", fontsize=SMALL)
    if graded:
        mark_threshold(bar, _theta(probes))
    else:
        mark_equality(bar)
    handles = [frame_handle("credited"), *walk_handles()]
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _theta(probes: Sequence[Probe]) -> float:
    """The threshold, which all probes of a run share."""
    return next(probe.pair.theta for probe in probes if probe.pair)


def _walk(pair: Pair) -> list[tuple[float, float]]:
    """(failed step, reference step) in processing order, from the first match on."""
    # ``walk_l`` is shorter if the matcher reached the end of the reference.
    places = zip(pair.order_l, pair.walk_l, strict=False)
    return [(failed, matched) for failed, matched in places if matched >= 0]


def _numbers(data: Collected, run: str, probes: list[Probe]) -> Table:
    scale = data.by_id[run].head.scale
    rows: list[Cells] = []
    for probe in probes:
        if probe.pair is None:
            rows.append((str(probe.step), NO_PAIR, NONE, NONE, NONE))
            continue
        matched_l = probe.pair.matched_l
        similarity_ml = probe.pair.similarity_ml
        above = float((similarity_ml >= probe.pair.theta).mean())
        rows.append(
            (
                str(probe.step),
                f"{len(similarity_ml)} × {len(matched_l)}",
                Number(str(int((matched_l >= 0).sum()))),
                Number(str(len(matched_l))),
                Number(f"{100 * above:.1f}"),
            )
        )

    drawn = sum(probe.pair is not None for probe in probes)
    without = _without(probes, "")
    config = data.by_id[run].config
    name = names.run_of_row(data.sections, run)
    settings = credit_settings(config)
    caption = CAPTION.format(
        task=names.task(probes[0].task),
        run=name,
        settings=settings,
        scorer=_scorer(config, _theta(probes)),
        count=counted(drawn, "probe"),
        without=f"{without[:1].upper()}{without[1:]}. " if without else "",
    )
    return Table(
        words=("Training step", "Reference × failed steps"),
        numbers=("Credited", "Failed steps", "Cells at or above θ (%)"),
        blocks=(Block(f"Measured, {scale} scale, {name}, {settings}", tuple(rows)),),
        caption=names.with_note(caption, scale),
        label=f"tab:credit-heatmap-{scale}",
    )
