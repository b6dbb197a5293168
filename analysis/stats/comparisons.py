"""Comparisons that experiments named before their runs: differences, corrected tests and verdicts.

The family of the correction is the study. Each distinct comparison counts once, however many
experiments name it and under whichever row names, and Holm's correction covers all of them. A
comparison has three questions, each corrected over the study by itself: the named measure (area
under validation), steps to 50 % (faster) and success at the last step (better).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.sources.collected import Collected
from analysis.sources.run_records import Run, one_processor_type
from analysis.sources.settings import same_games
from analysis.stats.measures import BETTER, FASTER, MEASURES, Measure
from analysis.stats.seed_statistics import LEVEL, holm, p_value, resolvable
from analysis.stats.study_rows import StudyRow, find, reported, rows_of, study_rows
from scpo.intervals import Summary, summarise

HIGHER, LOWER, OPEN, NOT_RUN = "higher", "lower", "open", "not run"

# Pairs for a verdict.
FEWEST = 3

# Every row of the study is compared with these.
REFERENCES = {"gigpo": "GiGPO", "scpo": "SCPO"}


@dataclass(frozen=True)
class Pairs:
    """Seeds at which both rows have a finished run.

    Attributes:
        planned: Seeds that the experiments ask for in both rows.
        used: Seeds that enter differences.
        crossed: Seeds whose two runs ran on different types of processor. Sums of floats differ
            between types, so these are left out of ``used`` unless there are no others.
        other_games: Seeds whose runs were validated on different games; never used.
    """

    planned: int
    used: tuple[int, ...]
    crossed: tuple[int, ...] = ()
    other_games: tuple[int, ...] = ()

    @property
    def count(self) -> str:
        """Used of planned, e.g. ``18/20``."""
        return f"{len(self.used)}/{self.planned}"

    @property
    def remark(self) -> str:
        """Reservations about the pairs; empty without any."""
        parts = []
        if self.crossed:
            fate = "used, for there are no others" if self.crossing else "left out"
            parts.append(f"seeds {_ranges(self.crossed)} ran on two types of processor, {fate}")
        if self.other_games:
            parts.append(f"seeds {_ranges(self.other_games)} played different games, left out")
        return "; ".join(parts)

    @property
    def crossing(self) -> bool:
        """True if the pairs that are used cross types of processor."""
        return bool(set(self.crossed) & set(self.used))


@dataclass(frozen=True)
class Effect:
    """Paired difference by one measure.

    ``p``: of this test by itself; ``corrected``: after the correction over ``tests`` of them.
    """

    measure: Measure
    difference: Summary
    p: float
    corrected: float
    tests: int = 1

    @property
    def verdict(self) -> str:
        """HIGHER or LOWER for the first row by the corrected test, OPEN, or NOT_RUN."""
        if self.difference.n < 2:
            return NOT_RUN
        # Negated, so that NaN, for a test that could not be made, counts as not resolved.
        if self.difference.n < FEWEST or not self.corrected < 1 - LEVEL:
            return OPEN
        return HIGHER if self.difference.mean > 0 else LOWER

    @property
    def resolved(self) -> bool:
        """True if the corrected test separates the rows."""
        return self.verdict in (HIGHER, LOWER)

    @property
    def favours(self) -> int:
        """1 where the first row is resolved to do better, -1 where the second is, else 0."""
        if not self.resolved:
            return 0
        if self.verdict == HIGHER:
            return self.measure.sign
        return -self.measure.sign

    @property
    def only_alone(self) -> bool:
        """True if the interval excludes 0 and the corrected test does not resolve it."""
        low, high = self.difference.interval()
        return self.verdict == OPEN and (low > 0 or high < 0)

    @property
    def smallest(self) -> float:
        """Smallest true difference that these pairs find with 80 % power, not corrected."""
        return resolvable(self.difference.std, self.difference.n)

    def reversed(self) -> "Effect":
        """The second row minus the first."""
        difference = replace(self.difference, mean=-self.difference.mean)
        return replace(self, difference=difference)


@dataclass(frozen=True)
class Comparison:
    """``first`` minus ``second``, named by ``experiments`` before their runs.

    ``effect`` is by the measure that they named; ``faster`` and ``better`` are the two other
    questions.
    """

    experiments: tuple[str, ...]
    first: StudyRow
    second: StudyRow
    pairs: Pairs
    effect: Effect
    faster: Effect
    better: Effect

    @property
    def name(self) -> str:
        """The difference in words."""
        return f"{self.first.title} − {self.second.title}"

    @property
    def finished(self) -> bool:
        """True with two pairs or more."""
        return self.effect.verdict != NOT_RUN


@dataclass(frozen=True)
class _Named:
    """A comparison as named: before its differences are computed."""

    experiments: tuple[str, ...]
    first: StudyRow
    second: StudyRow
    measure: str
    seeds: frozenset[int]

    def same(self, other: "_Named") -> bool:
        """Return True for the same comparison, in either direction."""
        forward = (self.first, self.second) == (other.first, other.second)
        backward = (self.first, self.second) == (other.second, other.first)
        return self.measure == other.measure and (forward or backward)


def named_comparisons(data: Collected, *, meaning: bool = False) -> list[Comparison]:
    """Every distinct comparison of the study, its p-values corrected over all of them.

    Args:
        data: Records.
        meaning: Those of the study of reworded observations, which is a family of its own.
    """
    comparisons = [_compared(data, named) for named in _distinct(data, meaning=meaning)]
    # Each question is corrected over the study by itself.
    effects = corrected([comparison.effect for comparison in comparisons])
    faster = corrected([comparison.faster for comparison in comparisons])
    better = corrected([comparison.better for comparison in comparisons])
    results = []
    for place, comparison in enumerate(comparisons):
        results.append(
            replace(
                comparison,
                effect=effects[place],
                faster=faster[place],
                better=better[place],
            )
        )
    return results


def corrected(effects: Sequence[Effect]) -> list[Effect]:
    """The same effects with Holm's correction over those that could be tested."""
    values = holm([effect.p for effect in effects])
    tests = sum(not math.isnan(effect.p) for effect in effects)
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
    """``first`` minus ``second``, not corrected, over the pairs of these seeds (None: all)."""
    pairs = pair_up(data, first, second, seeds)
    return pairs, effect_of(data, first, second, measure, pairs)


def effect_of(
    data: Collected, first: StudyRow, second: StudyRow, measure: Measure, pairs: Pairs
) -> Effect:
    """The difference over given pairs; a pair whose run lacks the measure lowers n."""
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
    return Effect(measure, difference, p, p)


def pair_up(
    data: Collected, first: StudyRow, second: StudyRow, seeds: Iterable[int] | None = None
) -> Pairs:
    """Seeds at which both rows have a finished run, sorted by what keeps them from a pair."""
    planned = _seeds(first) & _seeds(second)
    if seeds is not None:
        planned &= set(seeds)
    finished = {*first.row.finished, *second.row.finished}
    same = []
    crossed = []
    other_games = []
    for seed in sorted(planned):
        if not {_run_id(first, seed), _run_id(second, seed)} <= finished:
            continue
        run, other = _runs_of(data, first, second, seed)
        if not same_games(_held_out_games(run), _held_out_games(other)):
            other_games.append(seed)
        elif not one_processor_type(run, other):
            crossed.append(seed)
        else:
            same.append(seed)

    # Pairs of two types of processor only where there are no others.
    used = same or crossed
    return Pairs(len(planned), tuple(used), tuple(crossed), tuple(other_games))


def _distinct(data: Collected, *, meaning: bool) -> list[_Named]:
    """The distinct comparisons of all experiments, the main table's first."""
    rows = study_rows(data, meaning=meaning)
    distinct: list[_Named] = []
    for record in reported(data, meaning=meaning):
        if record.primary is None:
            continue
        own = rows_of(data, record)
        for pair in record.primary.comparisons:
            for benchmark in dict.fromkeys((row.env, row.model) for row in own):
                here = [row for row in own if (row.env, row.model) == benchmark]
                first = _called(here, pair[0])
                second = _called(here, pair[1])
                if first is None or second is None:
                    continue
                # The merged rows have the seeds of all experiments that asked for them.
                merged = find(rows, first), find(rows, second)
                if merged[0] == merged[1]:
                    # It is the same configuration under two names.
                    continue
                comparison = _Named(
                    experiments=(record.experiment,),
                    first=merged[0],
                    second=merged[1],
                    measure=record.primary.measure,
                    seeds=frozenset(_seeds(first) & _seeds(second)),
                )
                _add(distinct, comparison)

    return distinct


def _called(rows: Iterable[StudyRow], name: str) -> StudyRow | None:
    return next((row for row in rows if row.called(name)), None)


def _seeds(row: StudyRow) -> set[int]:
    return {run.seed for run in row.row.runs}


def _add(distinct: list[_Named], comparison: _Named) -> None:
    """Join a comparison with the one that it repeats: its direction holds, seeds are united."""
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
    first, second = named.first, named.second
    pairs, effect = compare(data, first, second, MEASURES[named.measure], named.seeds)
    return Comparison(
        experiments=named.experiments,
        first=first,
        second=second,
        pairs=pairs,
        effect=effect,
        faster=effect_of(data, first, second, FASTER, pairs),
        better=effect_of(data, first, second, BETTER, pairs),
    )


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds in short, e.g. ``0–3, 7``."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _run_id(row: StudyRow, seed: int) -> str:
    return next(run.id for run in row.row.runs if run.seed == seed)


def _runs_of(data: Collected, first: StudyRow, second: StudyRow, seed: int) -> tuple[Run, Run]:
    return data.by_id[_run_id(first, seed)], data.by_id[_run_id(second, seed)]


def _held_out_games(run: Run) -> dict[str, object]:
    # Training panels may differ on purpose (an experiment on the number of games).
    return {name: panel for name, panel in run.panels.items() if name.startswith(("valid", "test"))}
