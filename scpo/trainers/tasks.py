"""Which tasks a training step plays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scpo.envs.base import Task
from scpo.rollout import TASKS


def training_tasks(tasks: Sequence[Task], *, groups: int, seed: int, step: int, turn: int = 0) -> list[Task]:
    """The ``groups`` tasks of training step ``step`` (from 1): the panel again and again, each pass in a new order.

    Each further round of sampling (``turn`` above 0) goes through the panel in orders of its own.
    """
    purpose = (TASKS, turn) if turn else (TASKS,)
    chosen = []
    for place in range((step - 1) * groups, step * groups):
        lap, index = divmod(place, len(tasks))
        chosen.append(tasks[np.random.default_rng((seed, lap, *purpose)).permutation(len(tasks))[index]])
    return chosen
