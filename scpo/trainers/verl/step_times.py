"""Seconds of the parts of a training step, next to the estimate for the paper's hardware.

The estimate was computed from sizes and peak speeds, not measured. It is logged with every step, to
show which parts of the first run on that hardware differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from scpo.memory import parameters
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer

ESTIMATE = "estimate_s/"
"""Prefix of the estimated seconds in timing.jsonl; the measured ones are ``part_s/``."""
MEASURED = "part_s/"

TIMERS: dict[str, tuple[str, ...]] = {
    "rollout": ("gen",),
    "update": ("old_log_prob", "ref", "values", "hindsight", "update_critic", "update_actor"),
    "scoring": ("adv",),
    "validation": ("testing",),
    "checkpoint": ("save_checkpoint",),
}
"""Part -> its timers in verl and here; the rest of a step is ``sync and driver``."""
REST = "sync and driver"

SAVE_CHECKPOINT = "timing_s/save_checkpoint"

# Part of save_checkpoint: the wait for the checksums of the previous checkpoint.
CHECKSUMS_WAIT = "timing_s/checksums_wait"

# Included in verl's timer of the advantages, but not part of training.
DIAGNOSTICS = "diagnostics"

SIZES = (1.5, 7.0)  # billions of parameters
SECONDS: dict[str, tuple[float, float]] = {
    "rollout": (60.0, 110.0),
    "update": (85.0, 380.0),
    "scoring": (5.0, 6.0),
    REST: (15.0, 30.0),
    "validation": (14.0, 28.0),
    "checkpoint": (5.0, 30.0),
}
"""Part -> estimated seconds at each of ``SIZES`` on 4 x A800, as a mean over all steps of a run.

Validation and checkpoints are due every five steps (Table 3), and then take five times as long.
"""
ESTIMATED_GPUS = 4

# Table 3: steps between validations, and between checkpoints.
EVERY = 5
# Table 3: episodes of a training step, and the largest number of steps of an episode.
EPISODES, HORIZON = 16 * 8, 50


def estimated(config: RunConfig) -> dict[str, float] | None:
    """Estimate the seconds of each part, as a mean over the run's steps.

    The estimate is linear in the number of parameters and inverse in the number of GPUs; a model
    below a third of the smallest size is estimated as if it had that third.

    Returns:
        Part of ``SECONDS`` -> seconds; None except for scale=paper on ALFWorld with the number and
        horizon of the paper's episodes (Table 3).
    """
    billions = (parameters(config.model) or 0.0) / 1e9
    of_the_paper = config.scale == "paper" and config.env.name == "alfworld"
    if not of_the_paper or not billions or not isinstance(config.trainer, VerlTrainer):
        return None
    episodes = config.trainer.groups * config.trainer.group_size
    if (episodes, config.env.horizon) != (EPISODES, HORIZON):
        return None
    # Position between the two sizes: 0 at the small one, 1 at the large one.
    small, large = SIZES
    position = (max(billions, small / 3) - small) / (large - small)
    gpus = config.trainer.verl.gpus * config.trainer.verl.nodes
    seconds = {}
    for part, (low, high) in SECONDS.items():
        linear = max(low / 3, low + position * (high - low))
        seconds[part] = linear * ESTIMATED_GPUS / gpus

    # `SECONDS` holds means with one of each in every five steps.
    for part, steps in _intervals(config).items():
        seconds[part] *= EVERY / steps
    return seconds


def _intervals(config: RunConfig) -> dict[str, int]:
    """Part that not every step has -> number of steps between two."""
    return {
        "validation": config.trainer.validation.every,
        "checkpoint": config.trainer.checkpoint_every,
    }


def measured(took: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each part of one step, from verl's timers (``timing_s/*``).

    A part that this step did not have (validation, checkpoint) is left out.
    """
    timers = {name.removeprefix("timing_s/"): seconds for name, seconds in took.items()}
    parts = {}
    for part, names in TIMERS.items():
        present = [timers[name] for name in names if name in timers]
        if present:
            parts[part] = sum(present)
    if "scoring" in parts:
        parts["scoring"] -= timers.get(DIAGNOSTICS, 0.0)
    if "step" in timers:
        # Validation runs after verl's timer of the step has stopped.
        within = sum(seconds for part, seconds in parts.items() if part != "validation")
        parts[REST] = max(0.0, timers["step"] - within - timers.get(DIAGNOSTICS, 0.0))
    return parts


def compared(config: RunConfig, took: Mapping[str, float]) -> dict[str, float]:
    """``part_s/<part>`` and ``estimate_s/<part>`` of the parts that one step had.

    The estimate of a validation or a checkpoint is that of a single one.
    """
    expected = estimated(config)
    parts = measured(took)
    line = {f"{MEASURED}{part}": seconds for part, seconds in parts.items()}
    if expected is not None:
        intervals = _intervals(config)
        for part in parts:
            line[f"{ESTIMATE}{part}"] = expected[part] * intervals.get(part, 1)
    return line
