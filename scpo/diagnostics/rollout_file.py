"""Recorded rollouts: whole training batches in one file, to try credit rules on without training.

A gzipped JSON list; each element is one training batch: ``step`` and ``groups: [{group, game, task, trajectories:
[{traj, success, episode_return, length, steps: [...]}]}]``. Each step: ``t``, ``observation`` (before the action: the
anchor state), ``action``, ``next_observation``, ``valid`` (format), ``prompt_tokens``, ``response_tokens``,
``step_return``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scpo.errors import RecordError, StepBatchError
from scpo.shaping.order import Order, positions
from scpo.steps import FloatArray, IntArray, StepBatch

RANKS = 4
"""Data-parallel ranks of the paper, whose order the positions are."""


@dataclass(frozen=True)
class Recorded:
    """One training batch.

    Attributes:
        step: The training step.
        batch: Its steps, trajectory by trajectory in time order; positions are those of four ranks.
        tokens_N: Prompt and response tokens of each row.
        step_return_N: The step returns that the recording run computed, unshaped.
    """

    step: int
    batch: StepBatch
    tokens_N: IntArray
    step_return_N: FloatArray

    def ordered(self, order: Order, ranks: int) -> StepBatch:
        """The batch as a trainer with this processing order would leave it."""
        return replace(self.batch, position_N=positions(self.tokens_N, order, ranks))


def read_rollouts(path: Path) -> Iterator[Recorded]:
    """Every batch of a file.

    Raises:
        RecordError: The file holds no recorded rollouts.
    """
    try:
        with gzip.open(path) as file:
            records = json.load(file)
        for record in records:
            yield _recorded(record)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        if isinstance(error, StepBatchError):
            raise
        raise RecordError(
            f"{path} holds no recorded rollouts ({type(error).__name__}: {error}); it must be a gzipped JSON list of "
            "batches, as scpo/diagnostics/rollout_file.py describes it"
        ) from error


def _recorded(record: dict[str, Any]) -> Recorded:
    rows = [
        (group, trajectory, step)
        for group in record["groups"]
        for trajectory in group["trajectories"]
        for step in trajectory["steps"]
    ]
    outcome = [trajectory["episode_return"] for _, trajectory, _ in rows]
    last = [step["t"] == trajectory["length"] - 1 for _, trajectory, step in rows]
    success = [trajectory["success"] for _, trajectory, _ in rows]
    tokens_N = np.array([step["prompt_tokens"] + step["response_tokens"] for _, _, step in rows], dtype=np.int64)
    columns: dict[str, Any] = {
        "group_N": [group["group"] for group, _, _ in rows],
        "trajectory_N": [1000 * group["group"] + trajectory["traj"] for group, trajectory, _ in rows],
        "step_N": [step["t"] for _, _, step in rows],
        "task_N": [group["task"] for group, _, _ in rows],
        "anchor_N": [step["observation"] for _, _, step in rows],
        "action_N": [step["action"] for _, _, step in rows],
        "next_observation_N": [step["next_observation"] for _, _, step in rows],
        "reward_N": np.where(last, outcome, 0),
        "valid_N": [step["valid"] for _, _, step in rows],
        "episode_return_N": outcome,
        "success_N": success,
        "won_N": success,
        "position_N": positions(tokens_N, "balanced", RANKS),
        "is_copy_N": [False] * len(rows),
        "task_id_N": [group["game"] for group, _, _ in rows],
    }
    step_return_N = np.array([step["step_return"] for _, _, step in rows], dtype=np.float32)
    return Recorded(int(record["step"]), StepBatch(**columns), tokens_N, step_return_N)
