"""Step returns and GiGPO advantages: the vectorised group-by against loops over rows, as verl-agent's code is built.

    python -m bench.bench_returns

One batch of 16 groups x 8 siblings x 32 steps. The loops are our own, with the structure of the
stack's functions: an ``np.where`` over the batch for every row, ids that are UUID texts in object
arrays, statistics from lists that are filled row by row. They are plain NumPy; the stack pays for a
tensor on each of those operations as well. Both answers are compared, so the ratio cannot come from
a shortcut.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.random_walks import best_of, walks
from scpo.advantages.gigpo import gigpo
from scpo.advantages.outcomes import step_returns
from scpo.library import load_method
from scpo.steps import StepBatch

GROUPS, SIBLINGS, STEPS, STATES = 16, 8, 32, 20
SETTINGS = load_method("gigpo").estimator
GAMMA, PENALTY, EPSILON = SETTINGS.gamma, SETTINGS.invalid_penalty, 1e-6
REPETITIONS = 20  # of the fast side; the best counts, on both sides
GOAL = 50


def main() -> None:
    """Measure and print."""
    batch = _batch()
    group_N, trajectory_N = _uuids(batch.group_N), _uuids(batch.trajectory_N)
    loops, by_loops_N = best_of(3, lambda: _by_loops(batch, group_N, trajectory_N))
    grouped, by_groups_N = best_of(REPETITIONS, lambda: _by_groups(batch))
    apart = float(np.abs(by_loops_N - by_groups_N).max())
    if apart > 1e-4:
        raise SystemExit(f"the two answers are {apart:.1e} apart: nothing is measured")
    print(f"returns + GiGPO, {len(batch):,} rows ({GROUPS} groups x {SIBLINGS} x {STEPS}); answers {apart:.0e} apart")
    print(f"{'loops over rows':20}{1e3 * loops:10.1f} ms")
    print(f"{'group-by':20}{1e3 * grouped:10.1f} ms{loops / grouped:10.0f}x  (goal {GOAL}x)")


def _batch() -> StepBatch:
    """Random walks over few texts of an observation's length: most anchor states are shared."""
    rng = np.random.default_rng(0)
    rows = GROUPS * SIBLINGS * STEPS
    states = [f"You arrive at place {state}. On it you see {'an apple 1, ' * 8}and a mug 2." for state in range(STATES)]
    anchor_N = np.array(states, dtype=object)[rng.integers(STATES, size=rows)]
    text_N = np.full(rows, "look", dtype=object)
    won_K = rng.integers(2, size=GROUPS * SIBLINGS) > 0
    return walks(
        (GROUPS, SIBLINGS, STEPS), won_K, task_N=text_N, action_N=text_N, anchor_N=anchor_N,
        next_observation_N=anchor_N, valid_N=rng.random(rows) > PENALTY,
    )  # fmt: skip


def _by_groups(batch: StepBatch) -> NDArray[Any]:
    bonus_N = -np.float32(PENALTY) * ~batch.valid_N
    return gigpo(batch, step_returns(batch, GAMMA), bonus_N, SETTINGS)


def _uuids(id_N: NDArray[Any]) -> NDArray[Any]:
    """An id column as the stack has it: texts in an object array."""
    texts = [str(uuid.UUID(int=int(number) << 64)) for number in np.unique(id_N)]
    return np.array(texts, dtype=object)[np.unique(id_N, return_inverse=True)[1]]


def _by_loops(batch: StepBatch, group_N: NDArray[Any], trajectory_N: NDArray[Any]) -> NDArray[Any]:
    penalty_N = PENALTY * ~batch.valid_N
    outcome_N = _normalised_by_loops(batch.episode_return_N - penalty_N, group_N)
    q_N = _returns_by_loops(batch, trajectory_N) - penalty_N
    advantage_N: NDArray[Any] = outcome_N + _normalised_by_loops(q_N, _anchors_by_loops(batch, group_N))
    return advantage_N


def _returns_by_loops(batch: StepBatch, trajectory_N: NDArray[Any]) -> NDArray[Any]:
    returns: dict[str, NDArray[Any]] = {}
    for trajectory in np.unique(trajectory_N):
        reward_T = batch.reward_N[np.where(trajectory_N == trajectory)[0]]
        running, return_T = 0.0, np.zeros_like(reward_T)
        for t in reversed(range(len(reward_T))):
            running = reward_T[t] + GAMMA * running
            return_T[t] = running
        returns[trajectory] = return_T
    return_N = np.zeros(len(batch))
    for row, trajectory in enumerate(trajectory_N):
        members = np.where(trajectory_N == trajectory)[0]
        return_N[row] = returns[trajectory][np.where(members == row)[0][0]]
    return return_N


def _anchors_by_loops(batch: StepBatch, group_N: NDArray[Any]) -> list[tuple[str, str]]:
    id_N = [("", "")] * len(batch)
    for group in np.unique(group_N):
        clusters: dict[str, list[int]] = defaultdict(list)
        for row in np.where(group_N == group)[0]:
            clusters[batch.anchor_N[row]].append(row)
        for anchor, rows in clusters.items():
            for row in rows:
                id_N[row] = (group, anchor)
    return id_N


def _normalised_by_loops(value_N: NDArray[Any], id_N: Sequence[Hashable] | NDArray[Any]) -> NDArray[Any]:
    values: dict[Hashable, list[float]] = defaultdict(list)
    for row, key in enumerate(id_N):
        values[key].append(value_N[row])
    mean = {key: np.mean(members) for key, members in values.items()}
    std = {key: np.std(members, ddof=1) if len(members) > 1 else 1.0 for key, members in values.items()}
    answer_N = np.zeros(len(value_N))
    for row, key in enumerate(id_N):
        answer_N[row] = (value_N[row] - mean[key]) / (std[key] + EPSILON)
    return answer_N


if __name__ == "__main__":
    main()
