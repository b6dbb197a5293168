"""Cost of the shaper: seconds of its stages, added seconds per training step, peak memory."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from analysis import names
from analysis.paper.published import cost
from analysis.rendering.table import NONE, Block, Cells, Number, Table, number
from analysis.selection import missing_samples
from analysis.sources.collected import Collected
from analysis.sources.rows import Row, Section
from analysis.stats.seed_statistics import unpaired_interval
from scpo.intervals import Summary, decimal, summarise
from scpo.records.memory import GPU
from scpo.records.memory import HOST as HOST_MEMORY

# Names of the row with the shaper and of the row of its host, the estimator without a shaper.
SHAPED, HOST = "scpo", "gigpo"

# Row that scores all pairs, like the paper; our default scores only the pairs that a walk reads.
DENSE = "scpo_dense"
STEP = "timing_s/step"

# Seconds of filling the environment's caches, which the trainer subtracts from step and rollout.
UNCACHED = "timing_s/uncached"

# Seconds of the rollouts, which the local trainer logs and verl does not.
ROLLOUT = "timing_s/rollout"

# Our choice: added seconds above this many times the seconds of the sub-stages have another cause.
BEYOND = 2.0

# Metrics of peak memory in GiB -> label. The paper does not specify which of these it reports.
PEAKS = {
    "perf/max_memory_allocated_gb": (
        "peak GPU memory of the update's process, as torch allocates it"
    ),
    GPU: "peak memory in use of the fullest GPU, scorer and engine included",
    HOST_MEMORY: "peak memory of the run's processes, scorer included",
}
# Sub-stages of the shaper, in ``timing_s/scpo/<name>`` -> label.
STAGES = {
    "scoring": "scorer on reference–failed pairs",
    "self_similarity": "reference self-similarity",
    "text": "step texts",
    "matching": "matching",
    "accumulation": "reward accumulation",
    "metrics": "metrics",
}
SUM = "sum of the medians"
ADDED = "added to a training step (mean)"
PEAK = "peak GPU memory"
CAPTION = (
    "Cost of the shaper: median seconds of each sub-stage over the training steps, and the "
    "seconds by which a training step with SCPO is longer than one of its host GiGPO, with "
    "Welch's 95 % interval over the seeds (none for a single seed). Seconds of a step are means "
    "over the steps, without samples, probes and measures of precision, which are ours. "
    "{machines}: if the interval includes 0, the cost is smaller than the difference of two runs, "
    "and the sum of the medians measures it. Other numbers: mean ± standard deviation over the "
    "finished seeds (SCPO/GiGPO: finished/planned). Shares: of the sub-stages, and of the host's "
    "step."
)
ONE_TYPE = "Runs share the type of processor and the setting, but ran at different hours"
OTHER_TYPES = (
    "Runs share the setting, but ran at different hours, and on types of processor ({types}) whose "
    "difference may be in the added seconds, too"
)
NOT_RECORDED = "not recorded"
DAGGER = " †"
NOT_THE_COST = (
    "† Not the cost of the shaper, which is the sum of the medians: {why}. The rows' runs differ "
    "in something else, such as the load of the machine or the length of the episodes{caches}."
)
BELOW = "the shaper only adds work, and these steps are shorter than the host's"
ABOVE = f"these seconds are more than {BEYOND:g} times that sum"
OLD_RUNS = (
    f"Runs without {UNCACHED} ({{rows}}) count in their steps the games that they were the first "
    "on a machine to open: the row that ran first looks slower than it is. Runs of this version "
    "log those seconds apart."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run has timed a shaper."""
    parts = [part for part in data.sections if _stage(data, part.row(SHAPED), "matching").n]
    if not parts:
        raise missing_samples(data, "finished run with a timed shaper", _cost_command(data))
    scale = parts[0].scale
    blocks = [_published(scale)]
    blocks += [_measured(data, part, SHAPED) for part in parts]
    blocks += [_measured(data, part, DENSE) for part in parts if part.row(DENSE).finished]
    caption = CAPTION.format(machines=_machines(data, parts))
    return Table(
        words=("Quantity", "Unit", "Seeds"),
        numbers=("Value", "Share (%)"),
        blocks=tuple(blocks),
        caption=names.with_note(" ".join((caption, *_notes(data, parts))), scale),
        label=f"tab:cost-{scale}",
    )


def _machines(data: Collected, parts: Iterable[Section]) -> str:
    """What the machines of the compared runs have in common, as far as they are recorded."""
    rows: dict[str, dict[str, None]] = {}
    for part in parts:
        for row in (part.row(HOST), part.row(SHAPED), part.row(DENSE)):
            for run in row.finished:
                processor = data.by_id[run].processor or NOT_RECORDED
                rows.setdefault(processor, {})[row.label] = None
    if len(rows) == 1 and NOT_RECORDED not in rows:
        return ONE_TYPE
    types = "; ".join(f"{processor}: {', '.join(labels)}" for processor, labels in rows.items())
    return OTHER_TYPES.format(types=types)


def _cost_command(data: Collected) -> str:
    scale = data.scales[0] if data.scales else "mini"
    command = "python sweep.py +experiment=cost"
    if scale == "mini":
        return command
    return f"{command} scale={scale}"


def _published(scale: str) -> Block:
    """Block of the paper's numbers; its title warns if the runs are of another scale."""
    numbers = cost()

    def cells(quantity: str, statistic: str) -> tuple[Number, Number]:
        """Value and share."""
        share = numbers.get(("SCPO", quantity, "share"))
        value = Number(numbers["SCPO", quantity, statistic])
        return value, (Number(share) if share else NONE)

    lines: list[Cells] = []
    for name, label in STAGES.items():
        lines.append((label, "s", "", *cells(name, "median")))
    lines.append((SUM, "s", "", *cells("all stages", "sum of medians")))
    lines.append((ADDED, "s", "", *cells("added per training step", "mean")))
    for name in ("GiGPO", "SCPO"):
        peak = Number(numbers[name, "peak GPU memory", "peak"])
        lines.append((f"{PEAK}, {name}", "GB", "", peak, NONE))
    remark = "" if scale == "paper" else ": another model, another scorer, another scale"
    title = f"Published, Qwen2.5-1.5B on ALFWorld, 4 × A800{remark}"
    return Block(title, tuple(lines))


def _measured(data: Collected, part: Section, name: str) -> Block:
    """Block of the shaped row of this name and of its host."""
    shaped = part.row(name)
    host = part.row(HOST)
    stages = {stage: _stage(data, shaped, stage) for stage in STAGES}
    total = _total(stages.values())
    lines: list[Cells] = []
    for stage, label in STAGES.items():
        seconds = stages[stage]
        share = NONE
        if seconds.n and total:
            share = Number(f"{100 * seconds.mean / total:.2f}")
        lines.append((label, "s", _count(shaped, seconds), _seconds(seconds), share))

    # NaN, because the sum of the stages' means has no deviation over seeds.
    sum_of_medians = Summary(total, float("nan"), 1)
    lines.append((SUM, "s", shaped.count, _seconds(sum_of_medians), NONE))
    lines += _step_lines(data, shaped, host, stages_s=total)
    dense = "; all pairs scored, as in the paper" if name == DENSE else ""
    place = names.place(part.scale, part.env, part.model)
    return Block(f"Measured, {place}{dense}{part.apart}", tuple(lines))


def _total(stages: Iterable[Summary]) -> float:
    """Sum of the stages' medians, each a mean over seeds; stages that no run timed are left out."""
    return sum(seconds.mean for seconds in stages if seconds.n)


def _stage(data: Collected, row: Row, name: str) -> Summary:
    """Seconds of a stage: the median over a run's training steps, summarised over seeds.

    A median, because the first step loads the scorer and so takes much longer than the others.
    """
    medians = []
    for run in row.finished:
        values = data.series(run, f"timing_s/scpo/{name}").values
        medians.append(median(values) if values else None)
    return summarise(medians)


@dataclass(frozen=True)
class _Difference:
    """Seconds by which a step of a shaped row is longer than one of the host.

    Attributes:
        mean: Mean of the shaped row minus that of the host.
        bounds: Welch's 95 % interval; NaN if a row has a single seed.
        why_not: Why the difference cannot be the cost of the shaper; empty if it can.
    """

    mean: float
    bounds: tuple[float, float]
    why_not: str


def _difference(data: Collected, shaped: Row, host: Row, stages_s: float) -> _Difference:
    """Compare the seconds of the rows' steps.

    Args:
        data: The collected runs.
        shaped: The row with the shaper.
        host: The row without.
        stages_s: Seconds of the shaper's sub-stages, which make up its cost.
    """
    host_step = data.summary(host, STEP, "mean")
    shaped_step = data.summary(shaped, STEP, "mean")
    # Not paired by seed, because the runs of a pair were timed at different hours.
    mean = shaped_step.mean - host_step.mean
    bounds = unpaired_interval(shaped_step, host_step)
    # Without an interval, the mean is compared.
    low, high = (mean, mean) if math.isnan(bounds[0]) else bounds
    why_not = ""
    if high < 0:
        why_not = BELOW
    elif low > BEYOND * stages_s:
        why_not = ABOVE
    return _Difference(mean, bounds, why_not)


def _notes(data: Collected, parts: Sequence[Section]) -> Iterator[str]:
    """Yield sentences on differences that are not the shaper's cost, and on runs of old versions.

    A run of an old version logged ``ROLLOUT``, but not ``UNCACHED``. Runs of verl log neither: they
    open their games before the training steps.
    """
    # Both are dicts, because a set would not keep the order.
    reasons: dict[str, None] = {}
    # Labels of rows with runs of old versions.
    old: dict[str, None] = {}
    for part in parts:
        host = part.row(HOST)
        for shaped in (part.row(SHAPED), part.row(DENSE)):
            if not host.finished or not shaped.finished:
                continue
            stages_s = _total(_stage(data, shaped, stage) for stage in STAGES)
            why_not = _difference(data, shaped, host, stages_s).why_not
            if why_not:
                reasons[why_not] = None
            for row in (host, shaped):
                logged = [data.metric_names(run) for run in row.finished]
                if any(ROLLOUT in metrics and UNCACHED not in metrics for metrics in logged):
                    old[row.label] = None
    for why in reasons:
        yield NOT_THE_COST.format(why=why, caches=" or colder caches" if old else "")
    if old:
        yield OLD_RUNS.format(rows=", ".join(old))


def _step_lines(data: Collected, shaped: Row, host: Row, *, stages_s: float) -> Iterator[Cells]:
    """Yield lines on seconds of a training step, the seconds the shaper adds, and peak memory.

    Args:
        data: The collected runs.
        shaped: The row with the shaper.
        host: The row without.
        stages_s: Seconds of the shaper's sub-stages.
    """
    host_step = data.summary(host, STEP, "mean")
    shaped_step = data.summary(shaped, STEP, "mean")
    counts = _count(shaped, shaped_step)
    if host.runs:
        counts += f"; {_count(host, host_step)}"
    for row, step in ((host, host_step), (shaped, shaped_step)):
        if row.runs:
            yield (f"training step, {row.label}", "s", _count(row, step), _seconds(step), NONE)
    if host.finished and shaped.finished:
        added = _difference(data, shaped, host, stages_s)
        seconds = _added(added.mean, added.bounds, 1, 2)
        share = _added(added.mean, added.bounds, 100 / host_step.mean, 1)
        label = f"{ADDED}{DAGGER}" if added.why_not else ADDED
        yield (label, "s", counts, seconds, share)
    for metric, label in PEAKS.items():
        for row in (host, shaped):
            # The peak of a run is the highest of its steps.
            values = [max(data.series(run, metric).values, default=None) for run in row.finished]
            peaks = summarise(values)
            if peaks.n:
                seeds = _count(row, peaks)
                yield (f"{label}, {row.label}", "GiB", seeds, number(peaks, 1, 1), NONE)


def _count(row: Row, summary: Summary) -> str:
    """Finished and planned seeds of a row; also the measured ones if a finished seed has none."""
    if summary.n in (0, len(row.finished)):
        return row.count
    return f"{row.count}, measured: {summary.n}"


def _added(mean: float, bounds: tuple[float, float], factor: float, digits: int) -> Number:
    """Mean and interval times ``factor``; without the interval if it is NaN."""
    shown = Number(decimal(factor * mean, digits))
    if math.isnan(bounds[0]):
        return shown
    low, high = (decimal(factor * bound, digits) for bound in bounds)
    return replace(shown, interval=(low, high))


def _seconds(summary: Summary) -> Number:
    """Seconds with two decimals; with four below a tenth of a second."""
    return number(summary, 1, 2 if summary.n == 0 or summary.mean >= 0.1 else 4)
