"""SCPO's advantages in forks of verl or verl-agent with one batch row per environment step.

Call `add_advantages(data, ...)` where your trainer calls `compute_advantage`. `data` is verl's
DataProto, or anything with `batch` (tensors by name) and `non_tensor_batch` (arrays by name). With
PyPI verl 0.9.1: docs/verl.md.
"""

import numpy as np

import scpo


def add_advantages(data, method, scorer, seed):
    """Write `advantages` and `returns` into `data.batch`; returns what to log."""
    rows, mask_NL = data.non_tensor_batch, data.batch["response_mask"]
    _, trajectory_N = np.unique(rows["traj_uid"], return_inverse=True)
    order = np.lexsort((rows["step"], trajectory_N))  # trajectory by trajectory in time order
    starts = np.flatnonzero(np.diff(trajectory_N[order], prepend=-1))
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
        for one in np.split(order, starts[1:])
    ]
    batch = scpo.StepBatch.from_episodes(episodes)
    advantage_N = np.empty(len(batch), np.float32)
    advantage_N[order], diagnostics = scpo.assign(batch, scorer, method, seed=seed)
    advantage_NL = mask_NL.new_tensor(advantage_N)[:, None] * mask_NL
    scpo.contract.check_tokens(advantage_N, mask_NL.cpu().numpy(), advantage_NL.cpu().numpy())
    data.batch["advantages"] = data.batch["returns"] = advantage_NL
    return diagnostics.metrics
