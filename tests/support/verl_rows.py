"""verl's view of a StepBatch: rows in a trainer's order, some of them padding."""

from dataclasses import asdict

import numpy as np

from scpo.trainers.verl.verl_rows import StepRow


def step_rows(batch):
    """One StepRow for each row of a batch that comes trajectory by trajectory in time order."""
    lengths = np.bincount(batch.trajectory_N)
    first_of_group = {group: batch.trajectory_N[batch.group_N == group].min() for group in set(batch.group_N.tolist())}
    return [
        StepRow(
            panel="train",
            group=int(batch.group_N[row]),
            sibling=int(batch.trajectory_N[row] - first_of_group[int(batch.group_N[row])]),
            step=int(batch.step_N[row]),
            length=int(lengths[batch.trajectory_N[row]]),
            task=batch.task_id_N[row],
            family=batch.task_N[row],
            sha256="",
            anchor=batch.anchor_N[row],
            action=batch.action_N[row],
            next_observation=batch.next_observation_N[row],
            reward=float(batch.reward_N[row]),
            valid=bool(batch.valid_N[row]),
            won=bool(batch.won_N[row]),
            state=None if batch.state_N is None else batch.state_N[row],
            next_state=None if batch.next_state_N is None else batch.next_state_N[row],
        )
        for row in range(len(batch))
    ]


def verl_batch(rows, position_N, padding=()):
    """``extra_fields`` and padding flags of verl's rows in order of ``position_N``; padding rows copy row 0."""
    ordered = [rows[row].extra_field() for row in np.argsort(position_N, kind="stable")]
    flags = [False] * len(ordered)
    for place in sorted(padding):
        ordered.insert(place, rows[0].extra_field())
        flags.insert(place, True)
    return ordered, flags


def same_batch(ours, theirs):
    """Equal columns; positions may count other rows between, so only their order must agree."""
    assert (np.argsort(ours.position_N) == np.argsort(theirs.position_N)).all()
    for name in asdict(ours).keys() - {"position_N"}:
        left, right = getattr(ours, name), getattr(theirs, name)
        assert (left is None and right is None) or (left == right).all(), name
