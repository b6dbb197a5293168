"""The paper's numbered claims, each as a number of every seed that runs can contradict, and what runs say of it.

A claim is tested by the mean over seeds of ``values``: a difference of two rows paired by seed, or
a quantity of one row. The conclusion is computed from the 95 % Student interval of that mean
(`conclusion`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from scpo.benchmarks import BENCHMARKS
from scpo.intervals import Summary, summarise

from analysis.naming.names import ALL, JUDGED, success_metric
from analysis.paper.published import ablation, cost, main_table
from analysis.sources.collect import Collected
from analysis.sources.rows import Section
from analysis.stats.paired import Values, paired

AGREES, DISAGREES, UNDECIDED, NOT_RUN, ELSEWHERE = (
    "agrees",
    "disagrees",
    "undecided",
    "not run",
    "–",
)
OfRow = Callable[[Collected, Section, str], float | None]  # of a run
SMALL, LARGE, BOTH = "1.5B", "7B", "both sizes"


@dataclass(frozen=True)
class Claim:
    """One claim. ``claimed``: its number, in the unit of ``values`` times ``factor``; None where it gives none.

    ``null``: what it would be if there were nothing to the claim; None of a plain level, which only
    the paper's own model and benchmark can reach. ``sign``: on which side of the null the claim
    lies. ``size``: of the paper's model; smaller scales test the claims about 1.5B with their own
    model. ``at_study``: the experiment that has its runs at the study's scale, where another does.
    """

    name: str
    text: str
    place: str
    printed: str
    experiment: str
    values: Callable[[Collected, Section], Values]
    claimed: float | None
    null: float | None = 0.0
    sign: int = 1
    size: str = SMALL
    env: str = "alfworld"
    factor: float = 100
    digits: int = 1
    everywhere: bool = True
    at_study: str | None = None

    def command(self, scale: str) -> str:
        """What makes its runs."""
        if scale == "study" and self.at_study:
            return f"python sweep.py +experiment={self.at_study} scale=study"
        model = {SMALL: " model=qwen2_5_1_5b", LARGE: " model=qwen2_5_7b", BOTH: ""}[self.size]
        only = model if scale == "paper" and self.experiment == "main_table" else ""
        env = f" env={self.env}" if self.experiment == "main_table" else ""
        return f"python sweep.py +experiment={self.experiment}{env} scale={scale}{only}"

    def tested_at(self, scale: str) -> bool:
        """Whether runs of this scale can say anything about it."""
        return scale == "paper" or (
            self.everywhere and self.null is not None and self.size == SMALL
        )

    @property
    def cheapest_scale(self) -> str:
        """The study's where its experiments can say anything about it, else the paper's."""
        return (
            "study"
            if self.tested_at("study") and (self.env == "alfworld" or self.at_study)
            else "paper"
        )

    def summary(self, data: Collected) -> Summary:
        """Over the seeds of the section that has most of them."""
        found = [
            summarise(self.values(data, part).values())
            for part in data.sections
            if self._about(part)
        ]
        return max(found, key=lambda one: one.n, default=summarise(()))

    def _about(self, part: Section) -> bool:
        sized = part.scale != "paper" or self.size in (part.model, BOTH)
        return (
            sized
            and part.env.startswith(self.env)
            and not (self.env == "alfworld" and part.env != "alfworld")
        )


def conclusion(claim: Claim, found: Summary, scale: str) -> str:
    """Agrees, disagrees, undecided or not run.

    At the paper's scale the interval is held against the claimed number and the null: it agrees
    where it includes the number alone, disagrees where it includes the null alone or lies on its
    other side, and is undecided where it includes both. One that includes neither, on the claimed
    side, agrees with the claim, not with its size. Other scales have other models, so there the
    interval is held against the null alone.
    """
    if not claim.tested_at(scale):
        return ELSEWHERE
    if found.n < 2:
        return NOT_RUN
    if found.n < FEWEST or found.std == 0:
        return UNDECIDED  # a few seeds of coarse rates can all differ by the same: an interval of no width
    low, high = (claim.factor * bound for bound in found.interval())
    holds = claim.claimed is not None and scale == "paper" and low <= claim.claimed <= high
    if claim.null is None:
        return AGREES if holds else DISAGREES
    if low <= claim.null <= high:
        known = claim.claimed is not None and scale == "paper"
        return UNDECIDED if holds or not known else DISAGREES
    return AGREES if (low > claim.null) == (claim.sign > 0) else DISAGREES


def of_row(name: str, measure: OfRow) -> Callable[[Collected, Section], Values]:
    """A quantity of one row, by seed."""
    return lambda data, part: part.row(name).by_seed(lambda run: measure(data, part, run))


def gap(first: str, second: str, measure: OfRow) -> Callable[[Collected, Section], Values]:
    """``first - second``, by seed, of the seeds that both have."""
    return lambda data, part: paired(
        *(of_row(name, measure)(data, part) for name in (first, second))
    )


def success(column: str = ALL) -> OfRow:
    """Success on the panel that decides at a scale (WebShop: its held-out goals), after the last step."""

    def measure(data: Collected, part: Section, run: str) -> float | None:
        panel = BENCHMARKS[part.env].judged[part.scale]
        return data.series(run, success_metric(panel, column)).last

    return measure


def mean_of(metric: str, first: int = 0) -> OfRow:
    """A metric's mean over the training steps, at the paper's scale from step ``first`` on."""
    return lambda data, part, run: (
        data.series(run, metric).between(first if part.scale == "paper" else 0).mean
    )


def peak_of(metric: str) -> OfRow:
    """The largest value of a metric in a run."""
    return lambda data, part, run: max(data.series(run, metric).values, default=None)


def rise(data: Collected, part: Section, run: str) -> float | None:
    """Validation success after the last step minus before the first."""
    series = data.series(run, success_metric(JUDGED[part.scale]))
    return series.values[-1] - series.values[0] if len(series.values) > 1 else None


def late_rise(data: Collected, part: Section, run: str) -> float | None:
    """The gain of the last quarter of training minus a quarter of the whole gain: below 0 on a plateau."""
    series = data.series(run, success_metric(JUDGED[part.scale]))
    if len(series.steps) < 5:
        return None
    late = min(series.steps, key=lambda step: abs(step - 0.75 * series.steps[-1]))
    total = series.values[-1] - series.values[0]
    return (series.values[-1] - float(series.at(late) or 0.0)) - total * (
        series.steps[-1] - late
    ) / series.steps[-1]


def denser(data: Collected, part: Section, run: str) -> float | None:
    """Mean of the probe's similarity matrix at its last step minus at its first."""
    from scpo.diagnostics.samples import read_probe

    means = []
    for path, probe in data.samples(run, "probe_step_*.npz", read_probe):
        if probe.pair is not None:
            data.use(run, path)
            means.append(float(probe.pair.similarity_ml.mean()))
    return means[-1] - means[0] if len(means) > 1 else None


def later_credit(data: Collected, part: Section, run: str) -> float | None:
    """Credited steps per failed trajectory, second half of training minus first."""
    values = data.series(run, "credit/steps").values
    half = len(values) // 2
    return math.fsum(values[-half:]) / half - math.fsum(values[:half]) / half if half else None


def exact_share(data: Collected, part: Section, run: str) -> float | None:
    """Of the credited steps, those that equal the reference's; of a scorer that credits no others there is no share."""
    kind = (data.by_id[run].config.get("scorer") or {}).get("kind")
    return None if kind == "exact" else data.series(run, "credit/exact").mean


def widest(prefix: str) -> Callable[[Collected, Section], Values]:
    """By seed: the highest minus the lowest success of the default and the rows whose names begin with ``prefix``."""

    def values(data: Collected, part: Section) -> Values:
        rows = [row.name for row in part.rows if row.finished and row.name.startswith(prefix)]
        found = pd.DataFrame(
            [of_row(name, success())(data, part) for name in ("scpo", *rows)] if rows else []
        )
        of_every_row = found.dropna(axis="columns")
        return dict(of_every_row.max() - of_every_row.min())

    return values


def narrower(data: Collected, part: Section) -> Values:
    """SCPO - GiGPO on the part's model minus the same on the larger one."""
    larger = next((one for one in data.sections if (one.env, one.model) == (part.env, LARGE)), None)
    if larger is None or part.model == LARGE:
        return {}
    return paired(*(gap("scpo", "gigpo", success())(data, one) for one in (part, larger)))


def scoring_share(data: Collected, part: Section, run: str) -> float | None:
    """Of the shaper's median seconds, the share of the scorer."""
    seconds = {name: data.series(run, f"timing_s/scpo/{name}").values for name in STAGES}
    medians = {name: sorted(values)[len(values) // 2] for name, values in seconds.items() if values}
    total = sum(medians.values())
    return (
        (medians.get("scoring", 0) + medians.get("self_similarity", 0)) / total if total else None
    )


FEWEST = 3  # seeds for a conclusion
STAGES = ("scoring", "self_similarity", "text", "matching", "accumulation", "metrics")


def printed_gap(size: str, env: str, column: str, other: str = "GiGPO") -> float:
    """SCPO minus another method in the paper's main table."""
    table = main_table()
    ours, theirs = (float(table[size, name, env, column].number.mean) for name in ("SCPO", other))
    return round(ours - theirs, 2)


def printed_level(size: str, env: str, column: str) -> tuple[float, str]:
    """What the main table prints for SCPO: the mean, and the text with its deviation."""
    number = main_table()[size, "SCPO", env, column].number
    return float(number.mean), f"{number.text} %"


def printed_ablation(row: str, column: str = ALL) -> float:
    """The default minus a row of the ablation table."""
    numbers = ablation()
    return round(float(numbers["scpo", column].mean) - float(numbers[row, column].mean), 2)


def printed_cost(quantity: str, statistic: str, method: str = "SCPO") -> float:
    """A number of the paper's about the shaper's cost."""
    return float(cost()[method, quantity, statistic])
