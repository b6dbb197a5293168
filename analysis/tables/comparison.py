"""Cells of tables that compare methods: a value at the last or the best checkpoint, and differences paired by seed."""

from collections.abc import Iterable

from scpo.intervals import Summary, summarise
from scpo.schema.method import COMPARES_STATES

from analysis.rendering.table import Number, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section
from analysis.sources.series import Series
from analysis.stats.paired import difference


def value(data: Collected, row: Row, metric: str, judged: str, which: str) -> Number:
    """Mean over seeds at the last checkpoint, or at each run's best by the metric ``judged``."""
    if which == "last":
        return percent(data.summary(row, metric, "last"))
    return percent(
        summarise(
            _at_best(data.series(run, metric), data.series(run, judged)) for run in row.finished
        )
    )


def _at_best(series: Series, judged: Series) -> float | None:
    """The value at the checkpoint that is best by another series."""
    if judged.best is None:
        return None
    return series.at(judged.steps[judged.values.index(judged.best)])


def minus(data: Collected, part: Section | None, first: str, second: str, metric: str) -> Summary:
    """A row minus another at the last checkpoint, over the seeds that both have; of itself, nothing."""
    if part is None or first == second:
        return summarise(())
    values = (
        part.row(name).by_seed(lambda run: data.series(run, metric).last)
        for name in (first, second)
    )
    return difference(*values)


def state_key(data: Collected, rows: Iterable[Row]) -> str:
    """What the rows' estimators tell states apart by: the raw observation (anchor) or the shown state; – for none."""
    found: dict[str, None] = {}
    for run in (run for row in rows for run in row.finished):
        estimator = (data.by_id[run].config.get("method") or {}).get("estimator") or {}
        if estimator.get("name") in COMPARES_STATES:
            data.used.add((run, "config.yaml"))
            found[str(estimator.get("state_key", "anchor"))] = (
                None  # absent: as it was before there was a choice
            )
    return ", ".join(found) or "–"


def episode_counts(data: Collected, rows: Iterable[Row], panel: str) -> str:
    """What was played at the last checkpoint, e.g. ``, 140 episodes at the last checkpoint``."""
    runs = [run for row in rows for run in row.finished]
    counts = {
        count
        for run in runs
        if (count := data.series(run, f"val/{panel}/episodes").last) is not None
    }
    return (
        f", {'/'.join(f'{count:.0f}' for count in sorted(counts))} episodes at the last checkpoint"
        if counts
        else ""
    )
