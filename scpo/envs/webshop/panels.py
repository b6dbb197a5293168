"""Which goals are trained on and which are evaluated.

``fixed``: one order of the goals; the first 500 are for testing, the rest for training. ``verl_agent``: every worker of
the stack shuffles the goals with its own seed and then takes the first 500 for testing, so the same goal is a test goal
of one worker and a training goal of another. It is there for parity; ``overlap`` says how much is shared.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scpo.envs.base import Task
from scpo.envs.panel import Panels
from scpo.envs.webshop.catalogue.catalogue import Catalogue
from scpo.envs.webshop.catalogue.goals import Goal, goal_order
from scpo.errors import PanelError
from scpo.schema.env import WebshopConfig

Place = tuple[int, int]
"""A goal as (seed of the order, index in it)."""


class GoalPanels(Panels):
    """The panels of one configuration over one catalogue. A task's id is ``<seed>/<index>``."""

    def __init__(self, config: WebshopConfig, catalogue: Catalogue) -> None:
        self._config = config
        self._catalogue = catalogue
        self.candidates = functools.cache(self._by_family)
        super().__init__(config, candidates=self.candidates, task=self.task)

    def goal(self, task_id: str) -> Goal:
        """The goal that a task stands for."""
        seed, index = place(task_id)
        return goal_order(self._catalogue, seed, self._config.goals == "human")[index]

    def task(self, task_id: str) -> Task:
        """The panel entry of a goal; its hash covers the goal and the product."""
        goal = self.goal(task_id)
        content = f"{goal.content}\n{self._catalogue.by_asin[goal.asin]!r}"
        return Task(task_id, goal.category, hashlib.sha256(content.encode()).hexdigest())

    def _by_family(self, split: str) -> dict[str, list[str]]:
        """Sorted task ids of a split by family."""
        families: dict[str, list[str]] = defaultdict(list)
        for seed, index in self._places(split):
            goals = goal_order(self._catalogue, seed, self._config.goals == "human")
            families[goals.product(index).category].append(f"{seed}/{index:06d}")
        if not families:
            raise PanelError(
                f"no {split} goals: {self._catalogue.origin} has {self._goals} {self._config.goals} goals and "
                f"env.test_goals={self._config.test_goals} of them are for testing; ask for fewer"
            )
        return {family: sorted(ids) for family, ids in sorted(families.items())}

    @property
    def _goals(self) -> int:
        return len(goal_order(self._catalogue, self._config.order_seed, self._config.goals == "human"))

    def _places(self, split: str) -> Iterator[Place]:
        test = min(self._config.test_goals, self._goals)
        if self._config.order == "verl_agent":
            return self._workers_test(test) if split == "test" else self._workers_train(test)
        indices = range(test) if split == "test" else range(test, self._goals)
        return ((self._config.order_seed, index) for index in indices)

    def _workers_train(self, test: int) -> Iterator[Place]:
        workers = self._config.workers
        return ((workers.seed + w, index) for w in range(workers.train) for index in range(test, self._goals))

    def _workers_test(self, test: int) -> Iterator[Place]:
        """The first draw of the stack's validation environment: worker w plays goal w of a random choice."""
        workers = self._config.workers
        seed = workers.seed + workers.test_seed_offset
        chosen = np.random.RandomState(seed).choice(range(test), size=min(workers.test, test), replace=False)
        return ((seed + worker, int(index)) for worker, index in enumerate(chosen))


@dataclass(frozen=True)
class Overlap:
    """Shares of the test goals that training has, too.

    Attributes:
        goals: The same product with the same options, whatever the price bound.
        products: The same product.
    """

    goals: float
    products: float


def overlap(panels: GoalPanels) -> Overlap:
    """How much of the test split the training split knows already: what a reader of the results should be told."""
    train, test = ([panels.goal(task_id) for ids in panels.candidates(split).values() for task_id in ids]
                   for split in ("train", "test"))  # fmt: skip
    known_goals, known_products = {_wish(goal) for goal in train}, {goal.asin for goal in train}
    return Overlap(
        goals=sum(_wish(goal) in known_goals for goal in test) / len(test),
        products=sum(goal.asin in known_products for goal in test) / len(test),
    )


def _wish(goal: Goal) -> tuple[str, str]:
    return goal.asin, str(goal.options)


def place(task_id: str) -> Place:
    """Seed and index of a task's goal."""
    seed, _, index = task_id.partition("/")
    return int(seed), int(index)
