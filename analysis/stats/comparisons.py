"""Comparisons of rows: those that an experiment named before its runs, and of every row with a reference.

A family is what one correction is made over (Holm): an experiment's primary comparisons on one benchmark, or all rows
of a section against one reference.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section
from analysis.stats.measures import MEASURES, Measure, by_seed
from analysis.stats.paired import LEVEL, difference, holm, p_value, resolvable, seeds_needed
from scpo.intervals import Summary
from scpo.records.manifest import PrimaryComparisons
from scpo.schema import METHOD_LABELS

HIGHER, LOWER, OPEN, NOT_RUN = "higher", "lower", "open", "not run"
FEWEST, ENOUGH = 3, 5  # pairs: for a reading; to estimate from their spread how many it takes
MAIN = "main_table"  # the experiment that stands first
REFERENCES = {"gigpo": "GiGPO", "scpo": "SCPO"}  # what every row of the study is compared with


@dataclass(frozen=True)
class Comparison:
    """``first`` minus ``second`` by one measure. ``p``: corrected over its family."""

    part: Section
    first: Row
    second: Row
    measure: Measure
    difference: Summary
    p: float

    @property
    def name(self) -> str:
        """What is subtracted from what."""
        second = label_of(self.second)
        return f"{label_of(self.first)} − {f'({second})' if second.startswith('−') else second}"

    @property
    def pairs(self) -> str:
        """Pairs of seeds that are finished, of those that were planned."""
        planned = {run.seed for run in self.first.runs} & {run.seed for run in self.second.runs}
        return f"{self.difference.n}/{len(planned)}"

    @property
    def reading(self) -> str:
        """Whether the first is higher, the second (``lower``), or neither can be said; by the corrected test."""
        if self.difference.n < 2:
            return NOT_RUN
        if self.difference.n < FEWEST or not self.p < 1 - LEVEL:
            return OPEN
        return HIGHER if self.difference.mean > 0 else LOWER

    @property
    def seeds_needed(self) -> int | None:
        """Seeds that would find a difference as large as the one observed; None: over a thousand, or unknown yet."""
        if self.difference.n < ENOUGH:
            return None
        return seeds_needed(self.difference.mean, self.difference.std)

    @property
    def resolved(self) -> float:
        """The least true difference that these pairs find with 80 % probability, in the measure's own unit."""
        return resolvable(self.difference.std, self.difference.n)


def label_of(row: Row) -> str:
    """A method by its own name: an experiment may call it what it is there, such as “no credit (GiGPO)”."""
    return METHOD_LABELS.get(row.name, row.label)


def primary(data: Collected) -> dict[str, list[Comparison]]:
    """What was named before the runs and has any, by experiment and benchmark; each family corrected as a whole.

    A family may lie in several sections: rows of 4 and of 8 siblings are never under each other, their comparisons are.
    """
    families: dict[tuple[str, str, str], list[Comparison]] = {}
    first = {family.title for part in data.sections for family in part.families if family.experiment == MAIN}
    for part in data.sections:
        for family in part.families:
            found = families.setdefault((family.title, part.env, part.model), [])
            if named := family.primary:
                found += _named(data, part, named, family.seeds)
    ready = sorted((key for key, found in families.items() if found), key=lambda key: key[0] not in first)
    return {_family_title(key, ready): corrected(families[key]) for key in ready}


def _family_title(key: tuple[str, str, str], families: Iterable[tuple[str, str, str]]) -> str:
    several = len({other[1:] for other in families}) > 1
    return f"{key[0]} ({key[1]}, {key[2]})" if several else key[0]


def _named(data: Collected, part: Section, named: PrimaryComparisons, seeds: frozenset[int]) -> Iterator[Comparison]:
    """On the seeds that the experiment planned: another one may have run more of the same rows since."""
    own = [replace(row, runs=tuple(run for run in row.runs if run.seed in seeds)) for row in part.rows]
    rows = {row.name: row for row in own if row.runs}
    for first, second in named.comparisons:
        if first in rows and second in rows:
            yield compare(data, part, rows[first], rows[second], MEASURES[named.measure])


def compare(data: Collected, part: Section, first: Row, second: Row, measure: Measure) -> Comparison:
    """One comparison by itself, not corrected."""
    found = difference(by_seed(data, first, measure), by_seed(data, second, measure))
    return Comparison(part, first, second, measure, found, p_value(found))


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons, their p-values corrected over all of them."""
    adjusted = holm([p_value(one.difference) for one in family])
    return [replace(one, p=p) for one, p in zip(family, adjusted, strict=True)]


def against(data: Collected, part: Section, reference: str, measure: Measure) -> list[Comparison]:
    """Every other row of a section minus the reference, highest first."""
    base = part.row(reference)
    rows = [row for row in distinct(part) if row.finished and row.finished != base.finished and _alike(row)]
    found = corrected([compare(data, part, row, base, measure) for row in rows if base.finished])
    return sorted((one for one in found if one.difference.n), key=lambda one: -one.difference.mean)


def _alike(row: Row) -> bool:
    """Whether a row differs from the section's others in its method, its scorer with it, and in nothing else told."""
    told = [one for one in row.differs.split("; ") if one and not one.endswith("more settings")]
    return all(one.startswith("scorer") for one in told)


def distinct(part: Section) -> list[Row]:
    """The rows of a section, one of those that are the same runs under several names."""
    found: dict[tuple[str, ...], Row] = {}
    for row in part.rows:
        found.setdefault(tuple(run.id for run in row.runs), row)
    return list(found.values())


def effect_text(one: Comparison) -> str:
    """The difference with its interval, e.g. ``+0.5 [−0.9, 1.9]``; of one pair without, of none a dash."""
    mean, factor, digits = one.difference.mean, one.measure.factor, one.measure.digits
    if one.difference.n == 0:
        return "–"
    text = f"{factor * mean:+.{digits}f}"
    if one.difference.n > 1:
        text += f" [{', '.join(f'{factor * bound:.{digits}f}' for bound in one.difference.interval())}]"
    return text.replace("-", "−")
