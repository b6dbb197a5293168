"""Comparisons that experiments named before their runs: differences, corrected tests and verdicts.

Holm's correction covers all distinct comparisons of the study. A comparison counts once, even if
several experiments name it or name its rows differently. Each comparison has three questions, which
are corrected separately: the named measure (area under validation), steps to 50 % (faster), and
success at the last step (better).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from analysis.sources.collected import Collected
from analysis.sources.named_late import refused
from analysis.sources.run_records import ExperimentRecord, Run
from analysis.sources.sections import benchmarks
from analysis.stats.measures import BETTER, FASTER, HALF, MEASURES, Measure, reaches
from analysis.stats.pairs import Pairs, pair_rows, run_id
from analysis.stats.seed_statistics import LEVEL, holm, p_value, resolvable, untested_text
from analysis.stats.study_rows import (
    StudyRow,
    by_benchmark,
    find,
    rates_in_print,
    reported,
    rows_of,
    study_rows,
)
from scpo.intervals import Summary, summarise
from scpo.progress import counted

# How the p-values of the three questions are corrected, for pages and captions.
CORRECTED_APART = (
    "Area, steps to 50 % and success at the last step are three families of tests: each is "
    "corrected by itself, and no p is corrected for the other two."
)

# Verdicts of a comparison.
HIGHER, LOWER, OPEN, NOT_RUN = "higher", "lower", "open", "not run"

# Scale of the study.
STUDY = "study"

# What to do if no seed is finished in all of the compared rows.
WITHOUT_COMMON_SEED = "leave out --seeds common, or choose rows with --rows"

# Least number of pairs for a verdict.
FEWEST = 3

# Rows that every row of the study is compared with: name -> label.
REFERENCES = {"gigpo": "GiGPO", "scpo": "SCPO"}


@dataclass(frozen=True)
class Effect:
    """Paired difference by one measure.

    Attributes:
        measure: The measure.
        difference: Summary of the differences over the pairs.
        p: p-value of this single test, uncorrected.
        corrected: p-value after Holm's correction; equal to ``p`` before it.
        tests: Number of tests that the correction covers, those not yet possible included.
    """

    measure: Measure
    difference: Summary
    p: float
    corrected: float
    tests: int = 1

    @property
    def verdict(self) -> str:
        """HIGHER or LOWER: the first row by the corrected test. OPEN: unresolved, or too few pairs.

        NOT_RUN: fewer than two pairs.
        """
        if self.difference.n < 2:
            return NOT_RUN
        # Written as a negation, so that NaN (no test possible) counts as not resolved.
        if self.difference.n < FEWEST or not self.corrected < 1 - LEVEL:
            return OPEN
        return HIGHER if self.difference.mean > 0 else LOWER

    @property
    def resolved(self) -> bool:
        """True if the corrected test separates the rows."""
        return self.verdict in (HIGHER, LOWER)

    @property
    def favours(self) -> int:
        """1 if the first row is better (resolved), -1 if the second is, else 0."""
        if not self.resolved:
            return 0
        if self.verdict == HIGHER:
            return self.measure.sign
        return -self.measure.sign

    @property
    def only_uncorrected(self) -> bool:
        """True if the uncorrected interval excludes 0, but the corrected test is not resolved."""
        low, high = self.difference.interval()
        return self.verdict == OPEN and (low > 0 or high < 0)

    @property
    def smallest(self) -> float:
        """Smallest true difference that these pairs detect with 80 % power, uncorrected.

        NaN for fewer than ``FEWEST`` pairs, whose verdict is OPEN for any result of the test, and
        if all pairs have the same difference: without spread, they would detect any difference.
        """
        if self.difference.n < FEWEST or self.difference.std == 0:
            return math.nan
        return resolvable(self.difference.std, self.difference.n)

    def reversed(self) -> "Effect":
        """The second row minus the first."""
        difference = replace(self.difference, mean=-self.difference.mean)
        return replace(self, difference=difference)


@dataclass(frozen=True)
class Comparison:
    """``first`` minus ``second``, named by ``experiments`` before their runs.

    ``effect`` is by the named measure; ``faster`` and ``better`` are the other two questions.
    ``reached`` is False if no run of the pairs reaches 50 %: ``faster`` then compares no speeds.
    """

    experiments: tuple[str, ...]
    first: StudyRow
    second: StudyRow
    pairs: Pairs
    effect: Effect
    faster: Effect
    better: Effect
    reached: bool = True

    @property
    def name(self) -> str:
        """The comparison in words: titles of the first and the second row."""
        return f"{self.first.title} − {self.second.title}"

    @property
    def rates(self) -> str:
        """Learning rates of the first and the second row in print: `` (rates 4e-3, 2e-3)``.

        Empty if they are equal, or if a row has none. Each method trains at the rate chosen for it,
        so a part of the difference between the rows may be due to the rates.
        """
        return rates_in_print(self.first.learning_rate, self.second.learning_rate)

    @property
    def finished(self) -> bool:
        """True with at least two pairs."""
        return self.effect.verdict != NOT_RUN


# Measure, environment and model, and hashes of the settings of both rows.
_Test: TypeAlias = tuple[str, tuple[str, str], frozenset[str]]


@dataclass(frozen=True)
class _Named:
    """A named comparison, before its differences are computed.

    ``seeds`` are those that the experiments planned for both rows; ``measure`` is a name in
    ``MEASURES``.
    """

    experiments: tuple[str, ...]
    first: StudyRow
    second: StudyRow
    measure: str
    seeds: frozenset[int]

    def same(self, other: "_Named") -> bool:
        """True for the same comparison, in either direction."""
        forward = (self.first, self.second) == (other.first, other.second)
        backward = (self.first, self.second) == (other.second, other.first)
        return self.measure == other.measure and (forward or backward)

    def is_called(self, benchmark: tuple[str, str], names: tuple[str, str]) -> bool:
        """True if it compares rows of these names there, in either direction."""
        first, second = names
        forward = self.first.called(first) and self.second.called(second)
        backward = self.first.called(second) and self.second.called(first)
        return self.first.benchmark == benchmark and (forward or backward)


def named_comparisons(
    data: Collected, rows: Sequence[StudyRow] | None = None, *, meaning: bool = False
) -> list[Comparison]:
    """Every distinct comparison of the study, with p-values corrected over all of them.

    Args:
        data: The collected runs.
        rows: The rows of ``study_rows``, each with the seeds that are to be paired; None: with all
            of its seeds.
        meaning: Take the study of reworded observations instead, which is corrected separately.
    """
    if rows is None:
        rows = study_rows(data, meaning=meaning)
    distinct = _distinct(data, rows, meaning=meaning)
    comparisons = [_compared(data, named) for named in distinct]
    tests = len(comparisons) + _without_rows(data, distinct, meaning=meaning)
    tests += len(_superseded(data, distinct, meaning=meaning))
    # The three questions are corrected separately.
    effects = corrected([comparison.effect for comparison in comparisons], tests)
    speeds = corrected([comparison.faster for comparison in comparisons], tests)
    ends = corrected([comparison.better for comparison in comparisons], tests)
    results = []
    for comparison, effect, faster, better in zip(comparisons, effects, speeds, ends, strict=True):
        results.append(replace(comparison, effect=effect, faster=faster, better=better))
    return results


def named_too_late(data: Collected, *, meaning: bool = False) -> str:
    """The comparisons that experiments named after their results; empty without any.

    For example ``SCPO − GiGPO (mine)``: none of them is tested for this experiment.
    """
    texts = []
    for record in reported(data, meaning=meaning):
        # A pair counts once in either direction. Sorted, as sources are joined in any order.
        pairs = {frozenset(pair): pair for pair in sorted(refused(record))}
        texts += [f"{_labels(record, pair)} ({record.experiment})" for pair in pairs.values()]
    return "; ".join(texts)


def superseded(data: Collected, *, meaning: bool = False) -> str:
    """The comparisons of former settings of rows, which only count; empty without any.

    For example ``SCPO − GiGPO (mine, 2)``, with their number if it is not one.
    """
    if not any(record.superseded for record in reported(data, meaning=meaning)):
        return ""
    distinct = _distinct(data, study_rows(data, meaning=meaning), meaning=meaning)
    names = Counter(_superseded(data, distinct, meaning=meaning).values())
    texts = []
    for (pair, experiment), number in sorted(names.items()):
        times = f", {number}" if number > 1 else ""
        texts.append(f"{pair} ({experiment}{times})")
    return "; ".join(texts)


def _labels(record: ExperimentRecord, pair: tuple[str, str]) -> str:
    """A comparison by the labels of its rows; a row that the record does not have by its name."""
    labels = {row.name: row.label for row in record.rows}
    return " − ".join(labels.get(name, name) for name in pair)


def asked_seeds(data: Collected) -> str:
    """Sentence on the seeds that the user's choice of experiments keeps; empty without a choice."""
    if not data.asked:
        return ""
    experiments = ", ".join(data.asked)
    return (
        f" Seeds: of the rows of {experiments} only those of {experiments}; of other rows, whose "
        "comparisons count in the correction, all."
    )


def tested(comparisons: Sequence[Comparison], scale: str) -> str:
    """The comparisons that Holm's correction covers, e.g. ``the 59 comparisons of the study``.

    Args:
        comparisons: All of ``named_comparisons``.
        scale: Scale of their runs.
    """
    whose = "the study" if scale == STUDY else f"all experiments at {scale} scale"
    tests = comparisons[0].effect.tests if comparisons else 0
    untested = tests - sum(not math.isnan(comparison.effect.p) for comparison in comparisons)
    text = f"the {counted(tests, 'comparison')} of {whose}"
    return f"{text} ({untested_text(untested)})" if untested else text


def corrected(effects: Sequence[Effect], tests: int | None = None) -> list[Effect]:
    """The effects with Holm's correction.

    Args:
        effects: The effects of one family of tests, also those that cannot be tested yet.
        tests: Number of tests of the family; None: one for each effect.
    """
    if tests is None:
        tests = len(effects)
    values = holm([effect.p for effect in effects], tests)
    return [
        replace(effect, corrected=value, tests=tests)
        for effect, value in zip(effects, values, strict=True)
    ]


def compare(
    data: Collected,
    first: StudyRow,
    second: StudyRow,
    measure: Measure,
    seeds: Iterable[int] | None = None,
) -> tuple[Pairs, Effect]:
    """``first`` minus ``second``, uncorrected, over the pairs of these seeds (None: all)."""
    pairs = pair_up(data, first, second, seeds)
    return pairs, effect_of(data, first, second, measure, pairs)


def effect_of(
    data: Collected, first: StudyRow, second: StudyRow, measure: Measure, pairs: Pairs
) -> Effect:
    """``first`` minus ``second``, uncorrected, over given pairs.

    A pair is left out if one of its runs lacks the measure, and ``n`` does not count it.
    """
    differences: list[float | None] = []
    for seed in pairs.used:
        run, other = _runs_of(data, first, second, seed)
        value = measure.of(data, run.id)
        subtracted = measure.of(data, other.id)
        if value is None or subtracted is None:
            differences.append(None)
        else:
            differences.append(value - subtracted)
    difference = summarise(differences)
    p = p_value(difference)
    return Effect(measure, difference, p, corrected=p)


def pair_up(
    data: Collected, first: StudyRow, second: StudyRow, seeds: Iterable[int] | None = None
) -> Pairs:
    """Pair the seeds at which both rows have a finished run.

    Args:
        data: The collected runs.
        first: The first row.
        second: The second row.
        seeds: Seeds to take; None: all.
    """
    return pair_rows(first.row, second.row, data.by_id, seeds)


def _distinct(data: Collected, rows: Sequence[StudyRow], *, meaning: bool) -> list[_Named]:
    """The distinct comparisons of all experiments, the main table's first."""
    distinct: list[_Named] = []
    for record in reported(data, meaning=meaning):
        for comparison in _named_in(data, record, rows):
            _add(distinct, comparison)
    return distinct


def _named_in(
    data: Collected, record: ExperimentRecord, rows: Sequence[StudyRow]
) -> Iterator[_Named]:
    """Yield the comparisons that an experiment names, on each of its benchmarks."""
    if record.primary is None:
        return
    rows_here = by_benchmark(rows_of(data, record)).values()
    for names, here in product(record.primary.comparisons, rows_here):
        first = _called(here, names[0])
        second = _called(here, names[1])
        if first is None or second is None:
            continue
        # The merged rows have the seeds of all experiments.
        merged_first = find(rows, first)
        merged_second = find(rows, second)
        # Both names belong to the same configuration, so there is nothing to compare.
        if merged_first == merged_second:
            continue
        yield _Named(
            experiments=(record.experiment,),
            first=merged_first,
            second=merged_second,
            measure=record.primary.measure,
            seeds=frozenset(first.row.seeds & second.row.seeds),
        )


def _without_rows(data: Collected, distinct: Sequence[_Named], *, meaning: bool) -> int:
    """Number of named comparisons of which an experiment has no runs of a row.

    All calls so far have left out the row, or it was deleted after results. They are tests of the
    family all the same, so that no p depends on which rows are run first or deleted.
    """
    absent: set[tuple[str, tuple[str, str], frozenset[str]]] = set()
    for record in reported(data, meaning=meaning):
        if record.primary is None:
            continue
        for names in record.primary.comparisons:
            for benchmark in benchmarks(record):
                # The settings of a row that was left out are not known: each such comparison
                # counts, also where another experiment compares rows of the same names.
                counts = record.left_out(names)
                if record.has_deleted(names):
                    # The record of the earlier calls, which is kept aside, has the deleted row.
                    counts = not any(named.is_called(benchmark, names) for named in distinct)
                if counts:
                    absent.add((record.experiment, benchmark, frozenset(names)))
    return len(absent)


def _superseded(
    data: Collected, distinct: Sequence[_Named], *, meaning: bool
) -> dict[_Test, tuple[str, str]]:
    """The comparisons of settings that rows had before these were changed, without runs here.

    Those whose runs another record has, as it is from before the change, are among ``distinct``.

    Returns:
        Comparison -> labels of its rows, and the experiment.
    """
    settings: dict[str, str] = {}
    for record in data.experiments:
        for row in record.rows:
            settings |= {run.id: run.settings for run in row.runs if run.settings}
    present = set()
    for named in distinct:
        runs = product(named.first.row.runs, named.second.row.runs)
        for both in {(settings.get(run.id), settings.get(other.id)) for run, other in runs}:
            present.add((named.measure, named.first.benchmark, frozenset(both)))

    absent: dict[_Test, tuple[str, str]] = {}
    for record in reported(data, meaning=meaning):
        for former in record.superseded:
            if former.test not in present:
                absent.setdefault(former.test, (_labels(record, former.rows), record.experiment))
    return absent


def _called(rows: Iterable[StudyRow], name: str) -> StudyRow | None:
    """The first row that an experiment has under this name; None if there is none."""
    return next((row for row in rows if row.called(name)), None)


def _add(distinct: list[_Named], comparison: _Named) -> None:
    """Add a comparison, or merge it with a known one that it repeats.

    The known one keeps its direction and gets the seeds of both.
    """
    for place, known in enumerate(distinct):
        if known.same(comparison):
            distinct[place] = replace(
                known,
                experiments=(*known.experiments, *comparison.experiments),
                seeds=known.seeds | comparison.seeds,
            )
            return
    distinct.append(comparison)


def _compared(data: Collected, named: _Named) -> Comparison:
    """The comparison with its differences, uncorrected, over the seeds that experiments named."""
    first, second = named.first, named.second
    pairs, effect = compare(data, first, second, MEASURES[named.measure], named.seeds)
    # Further pairs that exist are not used, only reported.
    further = sorted(set(pair_up(data, first, second).used) - named.seeds)
    pairs = replace(pairs, unnamed=tuple(further))
    used = [run.id for seed in pairs.used for run in _runs_of(data, first, second, seed)]
    return Comparison(
        experiments=named.experiments,
        first=first,
        second=second,
        pairs=pairs,
        effect=effect,
        faster=effect_of(data, first, second, FASTER, pairs),
        better=effect_of(data, first, second, BETTER, pairs),
        reached=any(reaches(data, run, HALF) for run in used),
    )


def _runs_of(data: Collected, first: StudyRow, second: StudyRow, seed: int) -> tuple[Run, Run]:
    return data.by_id[run_id(first.row, seed)], data.by_id[run_id(second.row, seed)]
