"""What the shaper costs: seconds of each sub-stage, seconds and share it adds to a training step, peak memory."""

from collections.abc import Iterator
from statistics import median

from scpo.intervals import Summary, summarise
from scpo.records.memory import GPU
from scpo.records.memory import HOST as HOST_MEMORY

from analysis.naming import names
from analysis.paper.published import cost
from analysis.rendering.table import NONE, Block, Number, Table, number
from analysis.selection import missing_samples
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section

SHAPED, HOST = "scpo", "gigpo"
DENSE = "scpo_dense"
"""The row that scores all pairs, as the paper did; ours scores those that a walk reads."""
STEP = "timing_s/step"
PEAKS = {  # the paper does not say which of these its figures are
    "perf/max_memory_allocated_gb": "peak GPU memory of the update's process, as torch allocates it",
    GPU: "peak memory in use of the fullest GPU, scorer and engine included",
    HOST_MEMORY: "peak memory of the run's processes, scorer included",
}
STAGES = {
    "scoring": "scorer on reference–failed pairs",
    "self_similarity": "reference self-similarity",
    "text": "step texts",
    "matching": "matching",
    "accumulation": "reward accumulation",
    "metrics": "metrics",
}
SUM, ADDED, PEAK = "sum of the medians", "added to a training step (mean)", "peak GPU memory"
CAPTION = (
    "Cost of the shaper: median seconds of each sub-stage over the training steps, and what a "
    "training step with SCPO takes longer than one of its host GiGPO (mean over the steps, "
    "without samples, probes and measures of precision, which are ours; runs share machine type "
    "and setting, not the hour). Mean ± standard deviation over the finished seeds (SCPO/GiGPO: "
    "finished/planned). Shares: of the sub-stages, and of the host's step."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run has timed a shaper."""
    parts = [part for part in data.sections if _stage(data, part.row(SHAPED), "matching").n]
    if not parts:
        raise missing_samples(data, "finished run with a timed shaper", _cost_command(data))
    scale = parts[0].scale
    measured = [_measured(data, part, SHAPED) for part in parts]
    measured += [_measured(data, part, DENSE) for part in parts if part.row(DENSE).finished]
    return Table(
        words=("Quantity", "Unit", "Seeds"),
        numbers=("Value", "Share (%)"),
        blocks=(_published(scale), *measured),
        caption=names.with_note(CAPTION, scale),
        label=f"tab:cost-{scale}",
    )


def _cost_command(data: Collected) -> str:
    scale = data.scales[0] if data.scales else "mini"
    return "python sweep.py +experiment=cost" + (f" scale={scale}" if scale != "mini" else "")


def _published(scale: str) -> Block:
    numbers = cost()

    def cells(quantity: str, statistic: str) -> tuple[Number, Number]:
        share = numbers.get(("SCPO", quantity, "share"))
        return Number(numbers["SCPO", quantity, statistic]), Number(share) if share else NONE

    stages = [(label, "s", "", *cells(name, "median")) for name, label in STAGES.items()]
    memory = [
        (f"{PEAK}, {name}", "GB", "", Number(numbers[name, "peak GPU memory", "peak"]), NONE)
        for name in ("GiGPO", "SCPO")
    ]
    total = (SUM, "s", "", *cells("all stages", "sum of medians"))
    added = (ADDED, "s", "", *cells("added per training step", "mean"))
    remark = "" if scale == "paper" else ": another model, another scorer, another scale"
    return Block(
        f"Published, Qwen2.5-1.5B on ALFWorld, 4 × A800{remark}", (*stages, total, added, *memory)
    )


def _measured(data: Collected, part: Section, name: str) -> Block:
    shaped, host = part.row(name), part.row(HOST)
    stages = {name: _stage(data, shaped, name) for name in STAGES}
    total = sum(stage.mean for stage in stages.values() if stage.n)
    rows = []
    for stage, label in STAGES.items():
        share = (
            Number(f"{100 * stages[stage].mean / total:.2f}") if stages[stage].n and total else NONE
        )
        rows.append((label, "s", shaped.count, _seconds(stages[stage]), share))
    rows.append((SUM, "s", shaped.count, _seconds(Summary(total, float("nan"), 1)), NONE))
    dense = "; all pairs scored, as in the paper" if name == DENSE else ""
    title = f"Measured, {names.place(part.scale, part.env, part.model)}{dense}{part.apart}"
    return Block(title, (*rows, *_step_rows(data, shaped, host)))


def _stage(data: Collected, row: Row, name: str) -> Summary:
    """Median over a run's steps, summarised over seeds: the first step, which loads the scorer, weighs nothing."""
    series = [data.series(run, f"timing_s/scpo/{name}").values for run in row.finished]
    return summarise(median(values) if values else None for values in series)


def _step_rows(data: Collected, shaped: Row, host: Row) -> Iterator[tuple[str | Number, ...]]:
    counts = f"{shaped.count}; {host.count}" if host.runs else shaped.count
    step = {row.name: data.summary(row, STEP, "mean") for row in (shaped, host)}
    for row in (host, shaped):
        if row.runs:
            yield (f"training step, {row.label}", "s", row.count, _seconds(step[row.name]), NONE)
    if host.finished and shaped.finished:
        added = step[shaped.name].mean - step[host.name].mean
        share = Number(f"{100 * added / step[host.name].mean:.1f}".replace("-", "−"))
        yield (ADDED, "s", counts, Number(f"{added:.2f}".replace("-", "−")), share)
    for metric, label in PEAKS.items():
        for row in (host, shaped):
            peaks = summarise(
                max(data.series(run, metric).values, default=None) for run in row.finished
            )
            if peaks.n:
                yield (f"{label}, {row.label}", "GiB", row.count, number(peaks, 1, 1), NONE)


def _seconds(summary: Summary) -> Number:
    """Two digits, more for what takes less than a tenth of a second."""
    return number(summary, 1, 2 if summary.n == 0 or summary.mean >= 0.1 else 4)
