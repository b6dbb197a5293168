"""Cells of tables that compare methods: values at a checkpoint, and differences paired by seed."""

from collections.abc import Iterable

from analysis.rendering.table import Number, percent
from analysis.sources.collected import Collected
from analysis.sources.rows import Row, Section
from analysis.sources.series import Series
from analysis.stats.seed_statistics import difference
from scpo.intervals import Summary, summarise
from scpo.schema.method import COMPARES_STATES


def value(data: Collected, row: Row, metric: str, judged: str, which: str) -> Number:
    """Mean over seeds at the ``"last"`` checkpoint, or at each run's ``"best"`` one.

    The best checkpoint is chosen by the metric ``judged``.
    """
    if which == "last":
        return percent(data.summary(row, metric, "last"))
    values = []
    for run in row.finished:
        values.append(_at_best(data.series(run, metric), data.series(run, judged)))
    return percent(summarise(values))


def _at_best(series: Series, judged: Series) -> float | None:
    """Value at the checkpoint that is best by another series."""
    if judged.best is None:
        return None
    return series.at(judged.steps[judged.values.index(judged.best)])


def minus(
    data: Collected,
    part: Section | None,
    first: str,
    second: str,
    metric: str,
) -> Summary:
    """A row minus another at the last checkpoint, over the seeds that both have.

    Empty for a row minus itself, and without a section.
    """
    if part is None or first == second:
        return summarise(())

    def last(run: str) -> float | None:
        return data.series(run, metric).last

    return difference(part.row(first).by_seed(last), part.row(second).by_seed(last))


def state_key(data: Collected, rows: Iterable[Row]) -> str:
    """Keys that the rows' estimators compare states by; – for estimators that compare none.

    It is the raw observation (anchor) or the shown state.
    """
    keys: dict[str, None] = {}
    for row in rows:
        for run in row.finished:
            estimator = (data.by_id[run].config.get("method") or {}).get("estimator") or {}
            if estimator.get("name") in COMPARES_STATES:
                data.used.add((run, "config.yaml"))
                # Records leave the default out.
                keys[str(estimator.get("state_key", "anchor"))] = None
    return ", ".join(keys) or "–"


def episode_counts(data: Collected, rows: Iterable[Row], panel: str) -> str:
    """Episodes at the last checkpoint, e.g. ``, 140 episodes at the last checkpoint``."""
    counts = set()
    for row in rows:
        for run in row.finished:
            count = data.series(run, f"val/{panel}/episodes").last
            if count is not None:
                counts.add(count)
    if not counts:
        return ""
    text = "/".join(f"{count:.0f}" for count in sorted(counts))
    return f", {text} episodes at the last checkpoint"
