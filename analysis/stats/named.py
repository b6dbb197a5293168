"""The comparisons that one experiment named before its runs, for the table at the end of its sweep.

They are made at any scale and without pandas. ``analysis.stats.comparisons`` has the comparisons of
all experiments, each distinct one once, for the tables and figures of the study.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis.sources.run_records import ExperimentRecord, Run
from analysis.sources.sections import benchmarks, record_rows
from analysis.sources.series import Series, panels_of
from analysis.stats.measures import MEASURES, Measure, by_seed
from analysis.stats.pairs import Pairs, pair_rows
from analysis.stats.seed_statistics import difference, holm, p_value
from scpo.intervals import Summary


@dataclass(frozen=True)
class NamedComparison:
    """One comparison on one benchmark, the first row minus the second.

    Attributes:
        benchmark: Environment and model.
        label: Both rows in words.
        measure: The measure that the experiment named.
        pairs: Seeds that are paired.
        difference: Summary of the differences over these.
        p: p of the paired t-test, after Holm's correction.
        tests: Number of the experiment's comparisons, on all benchmarks; 0 if none can be tested.
        untested: Number of these comparisons that cannot be tested yet. They count as p = 1, so
            that the correction does not depend on which rows have been run.
    """

    benchmark: tuple[str, str]
    label: str
    measure: Measure
    pairs: Pairs
    difference: Summary
    p: float
    tests: int = 0
    untested: int = 0


@dataclass(frozen=True)
class _Logged:
    """Runs and their metrics, as measures read them."""

    by_id: Mapping[str, Run]
    metrics: Mapping[str, Mapping[str, Series]]

    def series(self, run: str, metric: str) -> Series:
        return self.metrics.get(run, {}).get(metric, Series())

    def panels(self, run: str) -> tuple[str, ...]:
        return panels_of(self.metrics.get(run, ()))


def named_by(
    record: ExperimentRecord,
    runs: Mapping[str, Run],
    metrics: Mapping[str, Mapping[str, Series]],
) -> list[NamedComparison]:
    """The comparisons of a record on each of its benchmarks, corrected over all of these.

    Args:
        record: The experiment.
        runs: All runs by id.
        metrics: Run -> metric -> series, of the finished runs.
    """
    if record.primary is None:
        return []
    measure = MEASURES[record.primary.measure]
    logged = _Logged(runs, metrics)
    found: list[NamedComparison] = []
    # Those of former settings of rows have their runs in no row of the experiment.
    without_runs = len(record.superseded)
    for benchmark in benchmarks(record):
        rows = {row.name: row for row in record_rows(record, runs, *benchmark) if row.runs}
        for names in record.primary.comparisons:
            if not set(names) <= rows.keys():
                without_runs += record.left_out(names) or record.has_deleted(names)
                continue
            first, second = (rows[name] for name in names)
            # Two names of the same configuration share their runs.
            if {run.id for run in first.runs} & {run.id for run in second.runs}:
                continue
            pairs = pair_rows(first, second, runs)
            values = by_seed(logged, first, measure)
            paired = {seed: values[seed] for seed in pairs.used}
            change = difference(paired, by_seed(logged, second, measure))
            label = f"{first.label} − {second.label}"
            found.append(NamedComparison(benchmark, label, measure, pairs, change, p_value(change)))

    p_values = [comparison.p for comparison in found]
    tested = sum(not math.isnan(p) for p in p_values)
    planned = len(found) + without_runs
    corrected = holm(p_values, planned)
    tests = planned if tested else 0
    return [
        replace(comparison, p=p, tests=tests, untested=planned - tested)
        for comparison, p in zip(found, corrected, strict=True)
    ]
