"""What the shaper's benchmark prints, and what it writes into the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.style import PAGE_WIDTH, house_style, line_styles

if TYPE_CHECKING:
    from bench.bench_shaper import Result, Side
    from bench.reranker_cost import Cost

PAPER = {
    "reference x failed": 23.68,
    "reference x reference": 4.06,
}  # s a training step, A800 (appendix, shaper timing)
PAPER_STEP = 281.0  # s
BEGIN, END = "<!-- bench_shaper: begin -->", "<!-- bench_shaper: end -->"
PAIRS = (
    "rollouts",
    "batches",
    "dense",
    "read",
    "scored",
    "dense / scored",
    "scored, ahead",
    "new to the run",
    "credit",
)
TIMES = (
    "rollouts", "s dense", "s ours", "s ahead", "dense / ours", "dense / ahead", "passes dense", "ours", "ahead",
)  # fmt: skip


def print_results(results: Sequence[Result]) -> None:
    """Pairs and seconds, one line for each source."""
    print("\n".join(_tables(results)))


def _tables(results: Sequence[Result]) -> list[str]:
    by_source = [(name, [one for one in results if one.source == name]) for name in _sources(results)]
    pairs = _markdown(PAIRS, [_pairs(name, of_source) for name, of_source in by_source])
    return [*pairs, "", *_markdown(TIMES, [_times(name, of_source) for name, of_source in by_source])]


def _sources(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(one.source for one in results))


def _pairs(name: str, results: Sequence[Result]) -> list[str]:
    dense, ours, ahead = (sum(side.pairs for side in sides) for sides in _sides(results))
    read, new = sum(one.read for one in results), sum(one.new for one in results)
    counts = [f"{count:,}" for count in (dense, read, ours)]
    equal = "equal" if all(one.equal for one in results) else "DIFFERENT"
    return [name, str(len(results)), *counts, f"{dense / ours:.1f}", f"{ahead:,}", f"{new:,}", equal]


def _times(name: str, results: Sequence[Result]) -> list[str]:
    dense, ours, ahead = seconds = [sum(side.seconds for side in sides) for sides in _sides(results)]
    passes = [sum(side.passes.total() for side in sides) for sides in _sides(results)]
    ratios = [f"{dense / ours:.1f}", f"{dense / ahead:.1f}"]
    return [name, *(f"{took:.1f}" for took in seconds), *ratios, *(f"{count:,}" for count in passes)]


def _sides(results: Sequence[Result]) -> list[list[Side]]:
    return [[getattr(one, side) for one in results] for side in ("dense", "ours", "ahead")]


def print_cost(cost: Cost, results: Sequence[Result]) -> None:
    """Passes of the large reranker, and the projection to a training step."""
    print("\n".join(["", *_cost_lines(cost), "", *_projection(cost, results)]))


def _cost_lines(cost: Cost) -> list[str]:
    rows = [
        [str(rows), str(width), f"{seconds:.3f}", f"{1e3 * seconds / rows:.1f}"]
        for (rows, width), seconds in sorted(cost.seconds.items())
    ]
    return [
        *_markdown(("rows", "tokens", f"s a pass, {cost.device}", "ms a pair"), rows),
        "",
        f"{cost.compared} pairs scored alone and together: largest difference {cost.difference:g}, {cost.flips} of "
        f"them on the other side of their median. {cost.memory}",
    ]


def _projection(cost: Cost, results: Sequence[Result]) -> list[str]:
    """Seconds of scoring in one training step of 16 x 8 rollouts, for the mean fresh batch."""
    fresh = [one for one in results if one.source == "fresh"]
    count = len(fresh)
    small, large = sorted({rows for rows, _ in cost.seconds})
    dense64 = sum((_full_passes(one.dense.widths, large) for one in fresh), Counter())
    share = {
        name: sum(getattr(one, name).pairs for one in fresh) / sum(one.dense.pairs for one in fresh)
        for name in ("ours", "ahead")
    }
    here = {name: sum(cost.of_passes(small, getattr(one, name).passes) for one in fresh) for name in share}
    paper = sum(PAPER.values())
    dense = cost.of_passes(large, dense64) / count
    rows = [
        ["A800: the paper's, and projected", f"{paper:.2f}", *(f"{paper * share[name]:.2f}" for name in share)],
        [f"{cost.device} here, projected", f"{dense:.2f}", *(f"{here[name] / count:.2f}" for name in share)],
    ]
    of_step = ", ".join(f"{100 * paper * share[name] / PAPER_STEP:.2f} % ({name})" for name in share)
    return [
        *_markdown(("s of scoring a training step", "dense", "ours", "ours, ahead"), rows),
        "",
        f"Pairs of the mean fresh batch. The A800 line is the paper's time times our share of the pairs: {of_step} "
        f"of its {PAPER_STEP:g} s a step. The other is passes times their cost: {large} rows dense, {small} rows ours.",
    ]


def _full_passes(widths: Counter[int], rows: int) -> Counter[int]:
    return Counter({width: -(-pairs // rows) for width, pairs in widths.items()})


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_docs(folder: Path, results: Sequence[Result], cost: Cost | None) -> None:
    """The tables into ``scoring.md`` between its marks, and the plot ``scoring.png`` beside it."""
    page = folder / "scoring.md"
    text = page.read_text()
    tables = _tables(results)
    if cost is not None:
        tables += ["", *_cost_lines(cost), "", *_projection(cost, results)]
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    page.write_text(before + "\n".join([BEGIN, "", *tables, "", after]))
    _plot(folder / "scoring.png", results)


def _plot(path: Path, results: Sequence[Result]) -> None:
    """Pairs of each recorded batch, from early to late training, and the fresh ones' where nothing is recorded."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sources = [name for name in _sources(results) if name != "fresh"] or ["fresh"]
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, 2.2))
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
        for axis, name in zip(axes, sources, strict=True):
            batches = [one for one in results if one.source == name]
            lines = {
                "dense, as in the paper": [one.dense.pairs for one in batches],
                "read by the walks": [one.read for one in batches],
                "scored": [one.ours.pairs for one in batches],
                "scored, new to the run": [one.new for one in batches],
            }
            for label, style in line_styles(list(lines)).items():
                axis.plot([one.step for one in batches], lines[label], label=label, **style)
            axis.set(title=name, xlabel="training step", yscale="symlog", ylim=(0, None))
        axes[0].set_ylabel("text pairs a batch")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        figure.savefig(path, dpi=120, metadata={"Software": None})
