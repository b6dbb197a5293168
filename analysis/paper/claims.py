"""Claims of the paper as a number per seed, and the verdict of runs on each claim.

A claim is tested by the mean over seeds of ``Claim.values``: a difference of two rows paired by
seed, or a quantity of one row, in the runs of the claim's own experiment. ``conclusion`` computes
the verdict from the 95 % Student interval of that mean. ``analysis.paper.paper_claims`` lists the
claims, ``analysis.paper.findings`` finds the runs of each.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_high
from typing import TypeAlias

import numpy as np
import pandas as pd

from analysis.names import ALL, success_metric
from analysis.paper.published import ablation, cost, main_table
from analysis.sources.collected import Collected
from analysis.sources.knobs import rows_of_knob
from analysis.sources.rows import DEFAULT, Section
from analysis.stats.seed_statistics import Values, paired
from scpo.benchmarks import BENCHMARKS
from scpo.diagnostics.samples import (
    PROBE_PATTERN,
    STEP_TEXTS_PATTERN,
    read_probe,
    read_step_texts,
)
from scpo.intervals import Summary

# Verdicts on a claim. ELSEWHERE: runs of this scale cannot test it.
AGREES, DISAGREES, UNDECIDED = "agrees", "disagrees", "undecided"
NOT_RUN, ELSEWHERE = "not run", "–"
NOT_ARCHIVED = "not in the archive"
NOT_RECORDED = "not recorded"
NOT_SELECTED = "not selected"
TOO_FEW = "too few validations"
SMALL, LARGE, BOTH = "1.5B", "7B", "both sizes"
MODEL_OPTIONS = {
    SMALL: " model=qwen2_5_1_5b",
    LARGE: " model=qwen2_5_7b",
    BOTH: "",
}

# Experiment -> experiments that have all of its rows at the same settings.
WIDER: Mapping[str, tuple[str, ...]] = {
    "ablation_order": ("ablation", "paper_runs"),
    "ablation_monotonicity": ("ablation", "paper_runs"),
    "ablation_reference": ("ablation", "paper_runs"),
    "sweep_theta": ("paper_runs",),
    "sweep_lambda": ("paper_runs",),
}

# Least number of seeds for a verdict.
FEWEST = 3

# Least number of validations of a curve that has a last quarter: both ends and three between.
FEWEST_VALIDATIONS = 5

# Parts of the shaper's time, as ``timing_s/scpo/<stage>``.
STAGES = (
    "scoring",
    "self_similarity",
    "text",
    "matching",
    "accumulation",
    "metrics",
)

# A quantity of a run, given its section and its id; and a number per seed of a section.
OfRun: TypeAlias = Callable[[Collected, Section, str], float | None]
OfSection: TypeAlias = Callable[[Collected, Section], Values]


@dataclass(frozen=True)
class OfRows:
    """A number per seed of a section that is computed from known rows.

    Attributes:
        values: Returns the number of every seed.
        ran: Returns the ids of the finished runs that the numbers need, whether they have logged
            it or not.
    """

    values: OfSection
    ran: Callable[[Collected, Section], set[str]]

    def __call__(self, data: Collected, part: Section) -> Values:
        return self.values(data, part)


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        name: Unique name.
        text: The claim in words.
        place: Where the paper makes it.
        printed: Its number as printed.
        experiment: Experiment with its runs.
        values: Returns the number of every seed of a section.
        claimed: The claimed number, in the printed unit; None if the paper prints none.
        null: The number, in the printed unit, if the claim were void, e.g. 0 for a difference;
            None for the level of a success rate, which only the paper's own model can test.
        sign: +1 if the claim is above the null, -1 if below.
        size: Size of the paper's model; other scales test only claims about 1.5B.
        env: Benchmark.
        factor: Factor from ``values`` to the printed unit.
        digits: Number of printed decimals.
        everywhere: True if other scales can test it.
        at_study: Experiment with its runs at the study's scale, if it is another one.
        of_samples: True if it is tested by the runs' samples, which only run folders hold.
        curve_of: Row whose curve it is about, which needs ``FEWEST_VALIDATIONS``; empty for others.
    """

    name: str
    text: str
    place: str
    printed: str
    experiment: str
    values: OfSection
    claimed: float | None
    null: float | None = 0.0
    sign: int = 1
    size: str = SMALL
    env: str = "alfworld"
    factor: float = 100
    digits: int = 1
    everywhere: bool = True
    at_study: str | None = None
    of_samples: bool = False
    curve_of: str = ""

    def command(self, scale: str) -> str:
        """Command that runs its experiment at a scale."""
        if scale == "study" and self.at_study:
            return f"python sweep.py +experiment={self.at_study} scale=study"
        env = model = ""
        if self.experiment == "main_table":
            env = f" env={self.env}"
            model = MODEL_OPTIONS[self.size] if scale == "paper" else ""
        return f"python sweep.py +experiment={self.experiment}{env} scale={scale}{model}"

    def tested_at(self, scale: str) -> bool:
        """True if runs of this scale can test it."""
        if scale == "paper":
            return True
        return self.everywhere and self.null is not None and self.size == SMALL

    @property
    def cheapest_scale(self) -> str:
        """The study's scale if its experiments can test the claim, else the paper's."""
        has_runs = self.env == "alfworld" or self.at_study
        if self.tested_at("study") and has_runs:
            return "study"
        return "paper"

    def own_experiments(self, scale: str) -> tuple[str, ...]:
        """Its experiment at a scale, and those that have all of its rows at the same settings."""
        if scale == "study" and self.at_study:
            return (self.at_study,)
        return (self.experiment, *WIDER.get(self.experiment, ()))

    def lacks_validations(self, data: Collected) -> bool:
        """True if its row has finished runs, all of them with fewer validations than it needs."""
        curves = []
        for part in data.sections:
            if self.curve_of and self.is_about(part):
                finished = part.row(self.curve_of).finished
                curves += [data.series(run, _judged(part)).steps for run in finished]
        return bool(curves) and all(len(steps) < FEWEST_VALIDATIONS for steps in curves)

    def is_about(self, part: Section) -> bool:
        """True if a section has the claim's benchmark and, at the paper's scale, its model size."""
        if part.scale == "paper" and self.size not in (part.model, BOTH):
            return False
        if self.env == "alfworld":
            return part.env == "alfworld"
        # WebShop's settings have names of their own.
        return part.env.startswith(self.env)


def conclusion(claim: Claim, measured: Summary, scale: str) -> str:
    """Verdict on a claim: agrees, disagrees, undecided or not run.

    At the paper's scale, the interval is compared with the claimed number and the null:

    - It includes only the claimed number: agrees.
    - It includes only the null, or lies on the other side of it: disagrees.
    - It includes both: undecided.
    - It includes neither and lies on the claimed side: agrees with the claim, not with its size.
    - The claim has no null: agrees if the interval includes the claimed number, else disagrees.

    Other scales have other models, so the interval is compared only with the null: undecided if the
    interval includes it. Fewer than ``FEWEST`` seeds decide nothing.
    """
    if not claim.tested_at(scale):
        return ELSEWHERE
    if not measured.n:
        return NOT_RUN
    # A few seeds with coarse rates can have equal values, and so an interval of width 0.
    if measured.n < FEWEST or measured.std == 0:
        return UNDECIDED

    low, high = measured.interval()
    low, high = claim.factor * low, claim.factor * high
    claimed = claim.claimed if scale == "paper" else None
    includes_claimed = claimed is not None and low <= claimed <= high
    if claim.null is None:
        return AGREES if includes_claimed else DISAGREES
    if low <= claim.null <= high:
        return UNDECIDED if includes_claimed or claimed is None else DISAGREES
    on_claimed_side = (low > claim.null) == (claim.sign > 0)
    return AGREES if on_claimed_side else DISAGREES


# Values of a section


def of_row(name: str, measure: OfRun) -> OfSection:
    """Values of a section: a quantity of one row, by seed."""

    def values(data: Collected, part: Section) -> Values:
        return part.row(name).by_seed(lambda run: measure(data, part, run))

    return OfRows(values, lambda data, part: set(part.row(name).finished))


def gap(first: str, second: str, measure: OfRun) -> OfSection:
    """Values of a section: ``first - second`` by seed, over the seeds that both have."""

    def values(data: Collected, part: Section) -> Values:
        return paired(of_row(first, measure)(data, part), of_row(second, measure)(data, part))

    def ran(data: Collected, part: Section) -> set[str]:
        rows = part.row(first), part.row(second)
        seeds = rows[0].finished_seeds & rows[1].finished_seeds
        return {run.id for row in rows for run in row.runs if run.seed in seeds}

    return OfRows(values, ran)


def best_minus_worst(knob: str) -> OfSection:
    """Values of a section: success of the best value of a knob minus that of the worst, by seed.

    The rows are those of ``rows_of_knob``, which ``fig_sensitivity`` draws, too. Best and worst are
    judged by their means over the seeds; the best and the worst of each seed would differ by noise
    even if all rows had equal means.

    Args:
        knob: Key of the shaper, e.g. ``theta``.
    """

    def values(data: Collected, part: Section) -> Values:
        rows = [row.name for row in rows_of_knob(part, knob, data.by_id).values()]
        if len(rows) < 2:
            return {}
        of_rows = {name: of_row(name, success())(data, part) for name in rows}
        # Drop seeds that one of the rows lacks.
        complete = pd.DataFrame(of_rows).dropna()
        if complete.empty:
            return {}
        means = complete.mean()
        return dict(complete[means.idxmax()] - complete[means.idxmin()])

    return values


def narrower(data: Collected, part: Section) -> Values:
    """SCPO - GiGPO on the section's model, minus the same on the larger model, by seed."""
    if part.model == LARGE:
        return {}
    difference = gap("scpo", "gigpo", success())
    for larger in data.sections:
        if (larger.env, larger.model) == (part.env, LARGE):
            return paired(difference(data, part), difference(data, larger))
    return {}


# Quantities of a run


def _judged(part: Section, column: str = ALL) -> str:
    """Metric of success on the panel by which the section's benchmark and scale are judged."""
    return success_metric(BENCHMARKS[part.env].judged[part.scale], column)


def success(column: str = ALL) -> OfRun:
    """Quantity of a run: judged success after the last step, of all games or of a task family."""
    return lambda data, part, run: data.series(run, _judged(part, column)).last


def mean_of(metric: str, first: int = 0) -> OfRun:
    """Quantity of a run: mean of a metric over training, at scale=paper from step ``first`` on."""

    def measure(data: Collected, part: Section, run: str) -> float | None:
        start = first if part.scale == "paper" else 0
        return data.series(run, metric).between(start).mean

    return measure


def peak_of(metric: str) -> OfRun:
    """Quantity of a run: largest value of a metric."""
    return lambda data, part, run: max(data.series(run, metric).values, default=None)


def rise(data: Collected, part: Section, run: str) -> float | None:
    """Validation success after the last step minus before the first."""
    values = data.series(run, _judged(part)).values
    return values[-1] - values[0] if len(values) > 1 else None


def late_rise(data: Collected, part: Section, run: str) -> float | None:
    """Gain in the last quarter of training, minus the gain at the mean rate of the whole training.

    Below 0 on a plateau.
    """
    series = data.series(run, _judged(part))
    if len(series.steps) < FEWEST_VALIDATIONS:
        return None
    end = series.steps[-1]
    # The validation that is nearest to the start of the last quarter.
    late = min(series.steps, key=lambda step: abs(step - 0.75 * end))
    late_gain = series.values[-1] - series.values[series.steps.index(late)]
    total = series.values[-1] - series.values[0]
    return late_gain - total * (end - late) / end


def denser(data: Collected, part: Section, run: str) -> float | None:
    """Mean of the probe's similarity matrix at the last probe minus at the first."""
    means = []
    for path, probe in data.samples(run, PROBE_PATTERN, read_probe):
        if probe.pair is not None:
            data.use(run, path)
            means.append(float(probe.pair.similarity_ml.mean()))
    return means[-1] - means[0] if len(means) > 1 else None


def later_credit(data: Collected, part: Section, run: str) -> float | None:
    """Credited steps per failed trajectory, second half of training minus first."""
    values = data.series(run, "credit/steps").values
    half = len(values) // 2
    if not half:
        return None
    return math.fsum(values[-half:]) / half - math.fsum(values[:half]) / half


def exact_share(data: Collected, part: Section, run: str) -> float | None:
    """Share of credited failed steps with the same text as a step of a successful sibling.

    Over the run's sampled step texts, which are of early batches as in the paper (appendix
    "Semantic neighbourhood"). ``credit/exact`` is another quantity: equality with the step of the
    reference that was matched. None for the scorer of equal texts, which credits no other steps.
    """
    if _credits_equal_texts(data, run):
        return None
    credited = exact = 0
    for path, steps in data.samples(run, STEP_TEXTS_PATTERN, lambda path: read_step_texts([path])):
        data.use(run, path)
        for group in np.unique(steps.group_N):
            in_group_N = steps.group_N == group
            success_N = in_group_N & steps.success_N
            credited_N = in_group_N & ~steps.success_N & (steps.credit_N > 0)
            credited += int(credited_N.sum())
            exact += int(np.isin(steps.text_N[credited_N], steps.text_N[success_N]).sum())
    return exact / credited if credited else None


def _credits_equal_texts(data: Collected, run: str) -> bool:
    """True if a run's scorer credits only steps with equal texts."""
    return (data.by_id[run].config.get("scorer") or {}).get("kind") == "exact"


def of_inexact_scorer(measure: OfRun) -> OfSection:
    """Values of a section: a quantity of SCPO with a scorer that credits unequal texts, too.

    The study's default scorer credits only equal texts; the row with MiniLM has the scorer that is
    most like the paper's.
    """

    def values(data: Collected, part: Section) -> Values:
        with_minilm = of_row("scpo_minilm", measure)(data, part)
        if any(value is not None for value in with_minilm.values()):
            return with_minilm
        return of_row("scpo", measure)(data, part)

    def ran(data: Collected, part: Section) -> set[str]:
        default = part.row("scpo").finished
        inexact = {run for run in default if not _credits_equal_texts(data, run)}
        return inexact | set(part.row("scpo_minilm").finished)

    return OfRows(values, ran)


def scoring_share(data: Collected, part: Section, run: str) -> float | None:
    """Share of the scorer in the shaper's time, from the median seconds of each stage."""
    medians = {}
    for name in STAGES:
        values = data.series(run, f"timing_s/scpo/{name}").values
        if values:
            medians[name] = median_high(values)
    total = sum(medians.values())
    if not total:
        return None
    return (medians.get("scoring", 0) + medians.get("self_similarity", 0)) / total


# Printed numbers


def printed_gap(size: str, env: str, column: str, other: str = "GiGPO") -> float:
    """SCPO minus another method in the paper's main table."""
    table = main_table()
    ours = table[size, "SCPO", env, column].number.value
    theirs = table[size, other, env, column].number.value
    return round(ours - theirs, 2)


def printed_level(size: str, env: str, column: str) -> tuple[float, str]:
    """SCPO in the main table: its mean, and the printed text with its deviation."""
    number = main_table()[size, "SCPO", env, column].number
    return number.value, f"{number.text} %"


def printed_ablation(row: str, column: str = ALL) -> float:
    """The default minus a row of the ablation table."""
    numbers = ablation()
    default = numbers[DEFAULT, column]
    other = numbers[row, column]
    return round(default.value - other.value, 2)


def printed_cost(quantity: str, statistic: str, method: str = "SCPO") -> float:
    """A number of the paper about the shaper's cost."""
    return float(cost()[method, quantity, statistic])
