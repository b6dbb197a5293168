"""Recorded rollouts: whole training batches in one file, for testing credit rules without training.

A gzipped JSON list; each element is one training batch: ``step`` and ``groups: [{group, game, task,
trajectories: [{traj, success, episode_return, length, steps: [...]}]}]``. Each step has ``t``,
``observation`` (before the action: the anchor state), ``action``, ``next_observation``, ``valid``
(format), ``prompt_tokens``, ``response_tokens``, ``step_return``, and ``position`` in the trainer's
batch. Without ``position``, rows are in the order of four ranks. A run writes a file of one batch
every ``trainer.rollouts_every`` steps: ``diagnostics/rollouts_step_<n>.json.gz``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scpo.diagnostics.samples import gzipped_json
from scpo.errors import RecordError, StepBatchError
from scpo.records.files import write_bytes
from scpo.shaping.order import Order, positions
from scpo.steps import FloatArray, IntArray, StepBatch

if TYPE_CHECKING:
    from scpo.credit.metrics import CreditDiagnostics
    from scpo.records import RunFolder
    from scpo.rollout import Trajectory

RANKS = 4
"""Data-parallel ranks of the paper, which determine positions that are not recorded."""


@dataclass(frozen=True)
class Recorded:
    """One training batch.

    Attributes:
        step: The training step.
        batch: Its steps, trajectory by trajectory in time order.
        tokens_N: Prompt and response tokens of each row.
        step_return_N: The step returns that the recording run computed, unshaped.
    """

    step: int
    batch: StepBatch
    tokens_N: IntArray
    step_return_N: FloatArray

    def ordered(self, order: Order, ranks: int) -> StepBatch:
        """Batch with the positions of a trainer's order; unchanged without token counts.

        Args:
            order: As in :func:`scpo.shaping.order.positions`.
            ranks: Number of data-parallel ranks.
        """
        # Without recorded generations all token counts are 0.
        if not self.tokens_N.any():
            return self.batch
        return replace(self.batch, position_N=positions(self.tokens_N, order, ranks))


def save_rollouts(
    folder: RunFolder,
    step: int,
    batch: StepBatch,
    diagnostics: CreditDiagnostics,
    *,
    trajectories: Sequence[Trajectory],
    every: int | None,
) -> None:
    """Store the batch every ``every`` steps, if the trainer knows its tasks.

    Args:
        folder: The run.
        step: The training step.
        batch: Its steps, trajectory by trajectory in time order.
        diagnostics: Diagnostics of ``assign``, which hold the step returns.
        trajectories: In the order of the rows, for token counts; the counts are 0 if the
            trajectories hold no generations.
        every: Interval in training steps; None: never.
    """
    if every is None or step % every or batch.task_id_N is None:
        return
    # With verl the trajectories hold no generations, so there are no token counts.
    tokens_N = []
    for trajectory in trajectories:
        tokens_N += [generation.tokens for generation in trajectory.generations]
    if len(tokens_N) != len(batch):
        tokens_N = [0] * len(batch)
    record = _record(step, batch, diagnostics, tokens_N)
    path = folder.diagnostics / f"rollouts_step_{step:05d}.json.gz"
    write_bytes(path, gzipped_json([record]))


def _record(
    step: int, batch: StepBatch, diagnostics: CreditDiagnostics, tokens_N: Sequence[int]
) -> dict[str, Any]:
    """One element of a file's list, as the module describes it; copies are left out."""
    line = batch.timeline
    groups = []
    for group in np.unique(line.group_K).tolist():
        members = [line.rows_of(int(k)) for k in np.flatnonzero(line.group_K == group)]
        trajectories = []
        for sibling, row_T in enumerate(members):
            steps = [_step(batch, diagnostics, row, tokens_N[row]) for row in row_T.tolist()]
            trajectories.append(
                {
                    "traj": sibling,
                    "success": bool(batch.success_N[row_T[0]]),
                    "episode_return": float(batch.episode_return_N[row_T[0]]),
                    "length": len(row_T),
                    "steps": steps,
                }
            )
        first = members[0][0]
        groups.append(
            {
                "group": group,
                "game": str(batch.task_id_N[first]) if batch.task_id_N is not None else "",
                "task": str(batch.task_N[first]),
                "trajectories": trajectories,
            }
        )

    return {"step": step, "groups": groups}


def _step(
    batch: StepBatch, diagnostics: CreditDiagnostics, row: int, tokens: int
) -> dict[str, Any]:
    """Record of one row; all tokens count as prompt tokens, since only the sum is read."""
    return {
        "t": int(batch.step_N[row]),
        "observation": batch.anchor_N[row],
        "action": batch.action_N[row],
        "next_observation": batch.next_observation_N[row],
        "valid": bool(batch.valid_N[row]),
        "prompt_tokens": tokens,
        "response_tokens": 0,
        "step_return": float(diagnostics.step_return_N[row]),
        "position": int(batch.position_N[row]),
    }


def read_rollouts(path: Path) -> Iterator[Recorded]:
    """Read every batch of a file, one at a time.

    Raises:
        RecordError: The file holds no recorded rollouts.
        StepBatchError: A recorded batch is inconsistent.
    """
    try:
        with gzip.open(path) as file:
            records = json.load(file)
        for record in records:
            yield _recorded(record)
    except StepBatchError:
        # A ValueError whose message already names the wrong column.
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise RecordError(
            f"{path} holds no recorded rollouts ({type(error).__name__}: {error}); it must be a "
            "gzipped JSON list of batches, as scpo/diagnostics/rollout_file.py describes it"
        ) from error


def _recorded(record: dict[str, Any]) -> Recorded:
    """A batch from one element of a file's list.

    Columns that the file does not hold are derived: rewards from the return, ``won`` from the
    success. Prompts and states are not recorded; see ``step_credit.with_states`` for the latter.
    """
    # Group, trajectory and step of each row.
    groups = []
    trajectories = []
    steps = []
    for group in record["groups"]:
        for trajectory in group["trajectories"]:
            for step in trajectory["steps"]:
                groups.append(group)
                trajectories.append(trajectory)
                steps.append(step)

    # Siblings are numbered within their group; in a batch, ids must be unique.
    ids = []
    # Both benchmarks reward only the last step, so rewards are not recorded separately.
    rewards = []
    for group, trajectory, step in zip(groups, trajectories, steps, strict=True):
        ids.append(1000 * group["group"] + trajectory["traj"])
        is_last = step["t"] == trajectory["length"] - 1
        rewards.append(trajectory["episode_return"] if is_last else 0)
    success = [trajectory["success"] for trajectory in trajectories]
    tokens_N = np.array(
        [step["prompt_tokens"] + step["response_tokens"] for step in steps], dtype=np.int64
    )
    columns: dict[str, Any] = {
        "group_N": [group["group"] for group in groups],
        "trajectory_N": ids,
        "step_N": [step["t"] for step in steps],
        "task_N": [group["task"] for group in groups],
        "anchor_N": [step["observation"] for step in steps],
        "action_N": [step["action"] for step in steps],
        "next_observation_N": [step["next_observation"] for step in steps],
        "reward_N": rewards,
        "valid_N": [step["valid"] for step in steps],
        "episode_return_N": [trajectory["episode_return"] for trajectory in trajectories],
        "success_N": success,
        "won_N": success,
        "position_N": _positions(steps, tokens_N),
        "is_copy_N": [False] * len(steps),
        "task_id_N": [group["game"] for group in groups],
    }
    step_return_N = np.array([step["step_return"] for step in steps], dtype=np.float32)
    return Recorded(int(record["step"]), StepBatch(**columns), tokens_N, step_return_N)


def _positions(steps: Sequence[dict[str, Any]], tokens_N: IntArray) -> IntArray:
    """Position of each row in the trainer's batch, recorded or computed."""
    # The first files had no positions; their runs had four ranks.
    if all("position" in step for step in steps):
        return np.array([step["position"] for step in steps], dtype=np.int64)
    return positions(tokens_N, "balanced", RANKS)
