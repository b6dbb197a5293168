"""Recorded training rollouts of a small policy, as batches of steps; tests/data/rollouts/README.md tells of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scpo.shaping.order import positions
from scpo.steps import FloatArray, StepBatch

ROLLOUTS = Path(__file__).parents[1] / "tests" / "data" / "rollouts"
RUNS = ("gigpo_s0", "scpo_minilm_s0")
RANKS = 4


def recorded(run: str = "scpo_minilm_s0") -> Iterator[tuple[int, StepBatch, FloatArray]]:
    """Each batch of a run with its training step and the recorded step returns; positions are those of four ranks."""
    with gzip.open(ROLLOUTS / f"{run}.json.gz") as file:
        for record in json.load(file):
            yield record["step"], *_from_record(record)


def _from_record(record: dict[str, Any]) -> tuple[StepBatch, FloatArray]:
    rows = [
        (group, trajectory, step)
        for group in record["groups"]
        for trajectory in group["trajectories"]
        for step in trajectory["steps"]
    ]
    outcome = [trajectory["episode_return"] for _, trajectory, _ in rows]
    last = [step["t"] == trajectory["length"] - 1 for _, trajectory, step in rows]
    success = [trajectory["success"] for _, trajectory, _ in rows]
    lengths = [step["prompt_tokens"] + step["response_tokens"] for _, _, step in rows]
    batch = StepBatch(
        group_N=[group["group"] for group, _, _ in rows],
        trajectory_N=[1000 * group["group"] + trajectory["traj"] for group, trajectory, _ in rows],
        step_N=[step["t"] for _, _, step in rows],
        task_N=[group["task"] for group, _, _ in rows],
        anchor_N=[step["observation"] for _, _, step in rows],
        action_N=[step["action"] for _, _, step in rows],
        next_observation_N=[step["next_observation"] for _, _, step in rows],
        reward_N=np.where(last, outcome, 0),
        valid_N=[step["valid"] for _, _, step in rows],
        episode_return_N=outcome,
        success_N=success,
        won_N=success,
        position_N=positions(lengths, "balanced", RANKS),
        is_copy_N=[False] * len(rows),
    )
    return batch, np.array([step["step_return"] for _, _, step in rows], dtype=np.float32)
