"""verl's metrics in our records: what was learned in one file, how long it took in the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from scpo.diagnostics.validation_episodes import episode_metrics
from scpo.rollout import Trajectory
from scpo.trainers.verl.verl_rows import Rows, StepRow

CLOCK = (
    "timing_s/",
    "timing_per_token_ms/",
    "perf/",
    "actor/perf/",
    "critic/perf/",
    "global_seqlen/",
)
"""Prefixes of what depends on the machine."""
STEP, DIAGNOSTICS = "timing_s/step", "timing_s/diagnostics"
SCORER = ("scpo/pairs_truncated", "scpo/scorer_crashes")
"""What the scorer says of its own work (``PairCache.report``)."""


def split_metrics(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Split into (learned, took), numbers only; ours replace verl's validation metrics.

    Args:
        metrics: What verl logs of one step.

    Returns:
        Metrics of what was learned, for ``metrics.jsonl``, and of what it took, for
        ``timing.jsonl``, where a number may depend on the machine.
    """
    numbers = {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float | np.number)
    }
    # In two files, as with trainer=local, where a repeated run has the same bytes of the first.
    learned = {}
    took = {}
    for name, value in numbers.items():
        if name.startswith(CLOCK) or name in SCORER:
            took[name] = value
        else:
            learned[name] = value
    return learned, took


def without_samples(took: Mapping[str, float]) -> dict[str, float]:
    """Timings of the learning step, without those of our samples and the precision measurement.

    With ``trainer=local`` they follow the step; verl's clock of the step includes them.
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
    """The rows of one panel; all panels are played as one validation of verl's."""
    chosen = [row for row, step in enumerate(rows.steps) if step.panel == panel]
    steps: list[StepRow] = [rows.steps[row] for row in chosen]
    return Rows(steps, rows.place_N[chosen], rows.total)


def record_what_is_logged(logger: Any, finished: Callable[[dict[str, Any], int], None]) -> None:
    """Call ``finished(metrics, step)`` after verl's logger: its ``log`` call ends a step.

    verl has no hook between a step's last metric and the next step; it calls ``log`` once a step,
    with all of them.
    """
    log = logger.log

    def log_and_record(data: dict[str, Any], step: int) -> None:
        log(data=data, step=step)
        finished(data, step)

    logger.log = log_and_record
