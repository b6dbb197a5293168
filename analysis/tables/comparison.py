"""Cells of tables that compare methods: values at a checkpoint, and differences paired by seed."""

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.rendering.table import Number, percent
from analysis.sources.collected import Collected
from analysis.sources.rows import Row, Section
from analysis.sources.series import Series
from analysis.stats.seed_statistics import difference
from scpo.intervals import Summary, summarise
from scpo.schema.method import COMPARES_STATES, SEPARATES_STEPS

# State key of an estimator that separates steps by a rule of its own, such as ProxMO's weights.
OWN_KEY = "its own"


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
    """Value at the checkpoint that is best by ``judged``, the earliest of equally good ones."""
    if judged.best is None:
        return None
    best_step = judged.steps[judged.values.index(judged.best)]
    return series.at(best_step)


def minus(
    data: Collected,
    part: Section | None,
    first: str,
    second: str,
    metric: str,
) -> Summary:
    """Row ``first`` minus row ``second`` at the last checkpoint, paired by seed.

    The summary is empty if both are the same row, or if ``part`` is None.
    """
    if part is None or first == second:
        return summarise(())

    def last(run: str) -> float | None:
        return data.series(run, metric).last

    return difference(part.row(first).by_seed(last), part.row(second).by_seed(last))


def state_key(data: Collected, rows: Iterable[Row]) -> str:
    """Keys by which the rows' estimators compare states (``key_of``); – if none does."""
    keys: dict[str, None] = {}
    for row in rows:
        for run in row.finished:
            key = key_of(data.by_id[run].config)
            if key:
                data.used.add((run, "config.yaml"))
                keys[key] = None
    return ", ".join(keys) or "–"


def key_of(config: Mapping[str, Any]) -> str | None:
    """Key by which a run's estimator compares states; None if it does not compare them.

    Returns:
        ``anchor`` for the raw observation, ``state``, or OWN_KEY.
    """
    estimator = (config.get("method") or {}).get("estimator") or {}
    name = estimator.get("name")
    if name in COMPARES_STATES:
        # A configuration without this setting has the default.
        return str(estimator.get("state_key", "anchor"))
    return OWN_KEY if name in SEPARATES_STEPS else None


def episode_counts(data: Collected, rows: Iterable[Row], panel: str) -> str:
    """End of a title with the number of episodes on a panel; empty if no run has logged it."""
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
