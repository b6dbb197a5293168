"""Training and test goals.

``fixed``: one order of the goals; the first 500 are test goals, the rest training goals.
``verl_agent``: every worker of verl-agent shuffles the goals with its own seed and takes the first
500 for testing, so a test goal of one worker is a training goal of another. It exists for parity;
:func:`overlap` measures how much is shared.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scpo.envs.base import Task
from scpo.envs.panel import Panels
from scpo.envs.webshop.catalogue.catalogue import Catalogue
from scpo.envs.webshop.catalogue.goals import Goal, GoalOrder, goal_order
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
        """Goal of a task."""
        seed, index = place(task_id)
        return self._order(seed)[index]

    def task(self, task_id: str) -> Task:
        """The panel entry of a goal; its hash covers the goal and the product."""
        goal = self.goal(task_id)
        # The product is hashed too, because an episode shows its pages.
        content = f"{goal.content}\n{self._catalogue.by_asin[goal.asin]!r}"
        return Task(task_id, goal.category, hashlib.sha256(content.encode()).hexdigest())

    def _by_family(self, split: str) -> dict[str, list[str]]:
        """Sorted task ids of a split by family."""
        families: dict[str, list[str]] = defaultdict(list)
        for seed, index in self._places(split):
            category = self._order(seed).product(index).category
            families[category].append(f"{seed}/{index:06d}")
        if not families:
            raise PanelError(
                f"no {split} goals: {self._catalogue.origin} has {self._number_of_goals} "
                f"{self._config.goals} goals and env.test_goals={self._config.test_goals} of them "
                "are for testing; ask for fewer"
            )
        return {family: sorted(ids) for family, ids in sorted(families.items())}

    def _order(self, seed: int) -> GoalOrder:
        """All goals of the configured kind, in the order of a seed."""
        return goal_order(self._catalogue, seed, self._config.goals == "human")

    @property
    def _number_of_goals(self) -> int:
        return len(self._order(self._config.order_seed))

    def _places(self, split: str) -> Iterator[Place]:
        """Goals of a split; test goals come first in every order (``env.test_goals``)."""
        test = min(self._config.test_goals, self._number_of_goals)
        if self._config.order == "verl_agent":
            if split == "test":
                return self._workers_test(test)
            return self._workers_train(test)
        indices = range(test) if split == "test" else range(test, self._number_of_goals)
        return ((self._config.order_seed, index) for index in indices)

    def _workers_train(self, test: int) -> Iterator[Place]:
        """Training goals of all workers, each in the order of its own seed."""
        workers = self._config.workers
        for worker in range(workers.train):
            for index in range(test, self._number_of_goals):
                yield workers.seed + worker, index

    def _workers_test(self, test: int) -> Iterator[Place]:
        """Test goals of all validation workers, as verl-agent draws them for its first validation.

        Worker w plays the w-th index of a random choice, in the order of its own seed.
        """
        workers = self._config.workers
        seed = workers.seed + workers.test_seed_offset
        # NumPy's legacy generator, because verl-agent draws with it.
        chosen = np.random.RandomState(seed).choice(
            range(test), size=min(workers.test, test), replace=False
        )
        return ((seed + worker, int(index)) for worker, index in enumerate(chosen))


@dataclass(frozen=True)
class Overlap:
    """Shares of the test goals that also occur in training.

    Attributes:
        goals: The same product with the same options, at any price bound.
        products: The same product.
    """

    goals: float
    products: float


def overlap(panels: GoalPanels) -> Overlap:
    """Shares of the test split that the training split contains, to be reported with results."""
    goals = {}
    for split in ("train", "test"):
        ids = itertools.chain.from_iterable(panels.candidates(split).values())
        goals[split] = [panels.goal(task_id) for task_id in ids]
    trained_goals = {_wish(goal) for goal in goals["train"]}
    trained_products = {goal.asin for goal in goals["train"]}
    test = goals["test"]
    seen_goals = sum(_wish(goal) in trained_goals for goal in test)
    seen_products = sum(goal.asin in trained_products for goal in test)
    return Overlap(goals=seen_goals / len(test), products=seen_products / len(test))


def _wish(goal: Goal) -> tuple[str, str]:
    """Product and options of a goal, without its price bound."""
    return goal.asin, str(goal.options)


def place(task_id: str) -> Place:
    """Seed and index of a task's goal."""
    seed, _, index = task_id.partition("/")
    return int(seed), int(index)
