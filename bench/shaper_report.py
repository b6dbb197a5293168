"""What the shaper's benchmark measured of each batch, how it is printed, and what it writes into the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.rendering.style import PAGE_WIDTH, house_style
from bench.reranker_cost import Cost, ours, papers, single

PAPER = {
    "reference x failed": 23.68,
    "reference x reference": 4.06,
}  # s a training step, A800 (appendix, shaper timing)
PAPER_STEP = round(29.3 / 0.104)  # s, without SCPO (section 4.4: 29.3 s are 10.4 % on top)
BEGIN, END = "<!-- bench_shaper: begin -->", "<!-- bench_shaper: end -->"
WAYS = ("dense", "ours", "ahead")
PAIRS = ("rollouts", "batches", "dense", "read", "scored", "dense / scored", "scored, ahead", "credit")


@dataclass(frozen=True)
class Side:
    """One way of scoring one batch.

    ``seconds`` are the processor's on a CPU, where one thread works, so that a busy machine does
    not count. ``lengths``: pairs of each length in tokens; ``widths``: of each padded length;
    ``passes``: forward passes of each padded length that pairs share, as on a GPU.
    """

    pairs: int
    seconds: float
    lengths: Counter[int]
    widths: Counter[int]
    passes: Counter[int]


@dataclass(frozen=True)
class Result:
    """One batch; ``step`` is the training step it was recorded at, or its number.

    ``read``: cells that the walks read; ``equal``: from the same answers the credit is the same bit
        for bit; ``ahead``:
    ours with speculation.
    """

    source: str
    step: int
    read: int
    equal: bool
    dense: Side
    ours: Side
    ahead: Side


def print_results(results: Sequence[Result]) -> None:
    """Pairs and seconds, one line for each source."""
    print("\n".join(_tables(results)))


def _tables(results: Sequence[Result]) -> list[str]:
    by_source = [(name, [one for one in results if one.source == name]) for name in _sources(results)]
    pairs = _markdown(PAIRS, [_pairs(name, of_source) for name, of_source in by_source])
    first, *others = WAYS
    columns = ("rollouts", *(f"s {way}" for way in WAYS), *(f"{first} / {way}" for way in others))
    seconds = _markdown(columns, [_seconds(name, of_source) for name, of_source in by_source])
    passes = _markdown(("shared passes", *WAYS), [_passes(name, of_source) for name, of_source in by_source])
    return [*pairs, "", *seconds, "", *passes]


def _sources(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(one.source for one in results))


def _pairs(name: str, results: Sequence[Result]) -> list[str]:
    dense, ours, ahead = (sum(side.pairs for side in sides) for sides in _sides(results))
    counts = [f"{count:,}" for count in (dense, sum(one.read for one in results), ours)]
    equal = "equal" if all(one.equal for one in results) else "DIFFERENT"
    return [name, str(len(results)), *counts, f"{dense / ours:.1f}", f"{ahead:,}", equal]


def _seconds(name: str, results: Sequence[Result]) -> list[str]:
    dense, *others = (sum(side.seconds for side in sides) for sides in _sides(results))
    return [name, *(f"{took:.1f}" for took in (dense, *others)), *(f"{dense / took:.1f}" for took in others)]


def _passes(name: str, results: Sequence[Result]) -> list[str]:
    return [name, *(f"{sum(side.passes.total() for side in sides):,}" for sides in _sides(results))]


def _sides(results: Sequence[Result]) -> list[list[Side]]:
    return [[getattr(one, way) for one in results] for way in WAYS]


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
        f"{cost.compared} pairs scored alone and together: largest difference {cost.difference:g}, "
        f"{cost.flips} of them on the other side of their median. {cost.memory}",
    ]


def _projection(cost: Cost, results: Sequence[Result]) -> list[str]:
    """Seconds of scoring in one training step of 16 x 8 rollouts, for the mean fresh batch."""
    fresh = [one for one in results if one.source == "fresh"]
    dense, *sides = _sides(fresh)
    in_64 = [_full_passes(side.widths, papers) for side in dense]
    if cost.device == "cpu":
        how = "each pair by itself, dense in shared passes of 512 tokens"
        here = [sum(cost.of_passes(ours, _full_passes(side.widths, ours)) for side in dense)]
        here += [sum(cost.of_passes(single, side.lengths) for side in way) for way in sides]
    else:
        how = "dense in the paper's batches of 64 pairs"
        here = [sum(cost.of_passes(papers, passes) for passes in in_64)]
        here += [sum(cost.of_passes(ours, side.passes) for side in way) for way in sides]
    pairs = [sum(side.pairs for side in way) for way in (dense, *sides)]
    tokens = [sum(_tokens(papers, passes) for passes in in_64)]
    tokens += [sum(_tokens(ours, side.passes) for side in way) for way in sides]
    paper = sum(PAPER.values())
    by_pairs, by_tokens = ([paper * count / counts[0] for count in counts] for counts in (pairs, tokens))
    rows = [
        ["A800: the paper's, and by pairs", *(f"{took:.2f}" for took in by_pairs)],
        ["A800: the paper's, and by tokens", *(f"{took:.2f}" for took in by_tokens)],
        [f"{cost.device} here", *(f"{took / len(fresh):.2f}" for took in here)],
    ]
    shares = [
        f"{100 * first / PAPER_STEP:.2f} and {100 * second / PAPER_STEP:.2f} % ({way})"
        for first, second, way in list(zip(by_pairs, by_tokens, WAYS, strict=True))[1:]
    ]
    return [
        *_markdown(("s of scoring a training step, projected", *WAYS), rows),
        "",
        f"The mean fresh batch of {len(fresh)}. The A800 lines are the paper's time, times our "
        f"share of the pairs or of the tokens, padding included: {', '.join(shares)} on top of its "
        f"{PAPER_STEP:g} s a step. The last is passes times their cost; {how}. By tokens, a small "
        "pass is as fast a token as a large one, which on a GPU need not hold.",
    ]


def _full_passes(widths: Counter[int], rows_at: Callable[[int], int]) -> Counter[int]:
    return Counter({width: -(-pairs // rows_at(width)) for width, pairs in widths.items()})


def _tokens(rows_at: Callable[[int], int], passes: Counter[int]) -> int:
    return sum(count * rows_at(width) * width for width, count in passes.items())


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
            }
            for (label, pairs), style in zip(lines.items(), ("o-", "s--", "^:"), strict=True):
                axis.plot([one.step for one in batches], pairs, style, label=label)
            axis.set(title=name, xlabel="training step", yscale="symlog", ylim=(0, None))
        axes[0].set_ylabel("text pairs a batch")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        figure.savefig(path, dpi=120, metadata={"Software": None})
