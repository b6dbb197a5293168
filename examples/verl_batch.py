"""SCPO's advantages in forks of verl or verl-agent with one batch row per environment step.

Call `add_advantages(data, ...)` where your trainer calls `compute_advantage`. `data` is verl's
DataProto, or anything with `batch` (tensors by name) and `non_tensor_batch` (arrays by name). With
PyPI verl 0.9.1: docs/verl.md, which also says where verl-agent has `step`, `action` and `next_obs`:
its own batch lacks them.

    python examples/verl_batch.py       the advantages of three short trajectories
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

import scpo


def add_advantages(data, method, scorer, seed):
    """Write `advantages` and `returns` into `data.batch`; returns what to log."""
    rows, mask_NL = data.non_tensor_batch, data.batch["response_mask"]
    _, trajectory_N = np.unique(rows["traj_uid"], return_inverse=True)
    step_N = np.asarray(rows["step"], dtype=int)
    # Trajectory by trajectory in time order, without the rows that the fork copied to fill its
    # mini-batches: these have the (trajectory, step) of another, and get its advantage.
    _, first, place_N = np.unique(
        np.stack([trajectory_N, step_N]), axis=1, return_index=True, return_inverse=True
    )
    place_N = place_N.ravel()  # NumPy 2.0 has another shape
    _check_steps(rows, trajectory_N, step_N, first, first[place_N])
    starts = np.flatnonzero(np.diff(trajectory_N[first], prepend=-1))
    episodes = [
        scpo.Episode(
            group=rows["uid"][one[0]],
            steps=[
                scpo.Step(
                    observation=rows["anchor_obs"][row],
                    action=rows["action"][row],  # the projected one, that was executed
                    next_observation=rows["next_obs"][row],
                    reward=float(rows["rewards"][row]),
                    valid=bool(rows["is_action_valid"][row]),
                )
                for row in one
            ],
            episode_return=float(rows["episode_rewards"][one[0]]),  # checked against the rewards
        )
        for one in np.split(first, starts[1:])
    ]
    # The rows' places in your batch: SCPO processes failures in the order that balancing left.
    batch = replace(scpo.StepBatch.from_episodes(episodes), position_N=first)
    advantage, diagnostics = scpo.assign(batch, scorer, method, seed=seed)
    advantage_N = np.asarray(advantage, np.float32)[place_N]
    advantage_NL = mask_NL.new_tensor(advantage_N)[:, None] * mask_NL
    scpo.contract.check_tokens(advantage_N, mask_NL.cpu().numpy(), advantage_NL.cpu().numpy())
    data.batch["advantages"] = data.batch["returns"] = advantage_NL
    return diagnostics.metrics


def _check_steps(rows, trajectory_N, step_N, first, original_N):
    """Refuse rows that share a step without being copies, and trajectories that lack a step."""
    for name in ("anchor_obs", "action", "next_obs"):
        unlike = np.flatnonzero(rows[name] != rows[name][original_N])
        if len(unlike):
            row, other = unlike[0], original_N[unlike[0]]
            raise ValueError(
                f"rows {other} and {row} have the same traj_uid and step ({step_N[row]}), but "
                f"another {name}, so neither is a copy: `step` must count the steps of a trajectory"
            )
    last = np.flatnonzero(np.diff(trajectory_N[first], append=-1))
    length = np.bincount(trajectory_N[first])
    short = last[step_N[first[last]] != length - 1]
    if len(short):
        row = first[short[0]]
        raise ValueError(
            f"trajectory {rows['traj_uid'][row]!r} has {length[trajectory_N[row]]} steps, the last "
            f"with step={step_N[row]}: pass all of 0..T-1, without padding rows"
        )


def _demo():
    """Three siblings, of which one wins, as rows in a fork's order; needs torch."""
    import torch

    rows = {
        "uid": ["task"] * 6,
        "traj_uid": ["lost", "won", "near", "won", "near", "lost"],
        "step": [1, 0, 1, 1, 0, 0],
        "anchor_obs": ["door", "door", "hall", "hall", "door", "door"],
        "action": ["sleep", "go in", "sleep", "take key", "go in", "knock"],
        "next_obs": ["door", "hall", "hall", "the end", "hall", "door"],
        "rewards": [0.0, 0.0, 0.0, 10.0, 0.0, 0.0],
        "is_action_valid": [True] * 6,
        "episode_rewards": [0.0, 10.0, 0.0, 10.0, 0.0, 0.0],
    }
    data = SimpleNamespace(
        batch={"response_mask": torch.ones(6, 2)},
        non_tensor_batch={name: np.array(values, dtype=object) for name, values in rows.items()},
    )
    metrics = add_advantages(data, scpo.load_method("scpo"), scpo.load_scorer("exact"), seed=(0, 1))
    advantages = data.batch["advantages"][:, 0].tolist()
    for name, action, advantage in zip(rows["traj_uid"], rows["action"], advantages, strict=True):
        print(f"{name:4}  {action:8}  advantage {advantage:+.2f}")
    print(f"credited steps per failed trajectory: {metrics['credit/steps']:g}")


if __name__ == "__main__":
    _demo()
