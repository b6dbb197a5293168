"""verl's metrics in the run's records: results in metrics.jsonl, timings in timing.jsonl."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from scpo.diagnostics.validation_episodes import episode_metrics
from scpo.rollout import Trajectory
from scpo.trainers.verl.verl_rows import Rows

CLOCK = (
    "timing_s/",
    "timing_per_token_ms/",
    "perf/",
    "actor/perf/",
    "critic/perf/",
    "global_seqlen/",
)
"""Prefixes of metrics that depend on the machine."""
STEP, DIAGNOSTICS = "timing_s/step", "timing_s/diagnostics"
SCORER = ("scpo/pairs_truncated", "scpo/scorer_crashes")
"""Reports of the scorer on its own work (``PairCache.report``), which depend on the machine."""


def split_metrics(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Split the metrics of a step by file, as with trainer=local; only numbers are kept.

    Args:
        metrics: The metrics that verl logs for one step.

    Returns:
        ``(learned, took)``: metrics for ``metrics.jsonl``, and those that may depend on the
        machine, for ``timing.jsonl``.
    """
    learned: dict[str, float] = {}
    took: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(value, int | float | np.number):
            continue
        target = took if name.startswith(CLOCK) or name in SCORER else learned
        target[name] = float(value)
    return learned, took


def without_samples(took: Mapping[str, float]) -> dict[str, float]:
    """Timings of a step, with the diagnostics' seconds subtracted from those of the step.

    With ``trainer=local`` the diagnostics follow the step; verl's timer of the step includes them.
    """
    if STEP not in took or DIAGNOSTICS not in took:
        return dict(took)
    return {**took, STEP: took[STEP] - took[DIAGNOSTICS]}


def rollout_metrics(rows: Rows, trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Metrics ``train/*`` as in the local trainer; ``rows_padded`` counts verl's padding rows."""
    episodes = episode_metrics(trajectories, by_family=False)
    return {
        **{f"train/{name}": value for name, value in episodes.items()},
        "train/rows": float(len(rows.steps)),
        "train/rows_padded": float(rows.total - len(rows.steps)),
        "train/prompt_truncated": float(np.mean([row.truncated for row in rows.steps])),
    }


def of_panel(rows: Rows, panel: str) -> Rows:
    """The rows of one panel; verl plays all panels in one validation."""
    chosen = [row for row, step in enumerate(rows.steps) if step.panel == panel]
    steps = [rows.steps[row] for row in chosen]
    return Rows(steps, rows.place_N[chosen], rows.total)


def record_what_is_logged(logger: Any, finished: Callable[[dict[str, Any], int], None]) -> None:
    """Call ``finished(metrics, step)`` after each ``log`` call of verl's logger.

    verl has no hook at the end of a step, but calls ``log`` once for each step, with all metrics.
    """
    log = logger.log

    def log_and_record(data: dict[str, Any], step: int) -> None:
        log(data=data, step=step)
        finished(data, step)

    logger.log = log_and_record
