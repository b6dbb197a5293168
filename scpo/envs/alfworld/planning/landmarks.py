"""A lower bound of the steps to a goal, from what every plan must make true on the way; facts as bit masks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil
from operator import or_

Facts = int
"""A set of facts: bit n stands for fact n."""


@dataclass(frozen=True)
class Step:
    """A ground action: the facts it needs, what it adds and removes, and whether it only goes somewhere."""

    needs: Facts
    adds: Facts
    removes: Facts
    goes: bool


def facts(mask: Facts) -> Iterator[int]:
    """Numbers of the facts in a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class LandmarkBound:
    """Never more than the steps of a shortest plan; remembers its answers.

    A landmark of a goal is a fact that every plan makes true on the way, in the task in which nothing becomes false
    again (Keyder, Richter and Helmert, ECAI 2010). Those that do not hold yet must each be made
    true by some step; each counts as one over the most of them that one step adds at once, so that no plan is shorter
    than their sum.

    Args:
        steps: All steps.
        options: Goals, any of which will do.
    """

    def __init__(self, steps: Sequence[Step], options: Sequence[Facts]) -> None:
        self._steps = steps
        self._options = options
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            for fact in facts(step.needs):
                self._users[fact].append(number)
        self._known: dict[Facts, int | None] = {}

    def __call__(self, state: Facts) -> int | None:
        """The bound; None if no goal can be reached."""
        if state not in self._known:
            landmarks = self._landmarks(state)
            reachable = [option for option in self._options if all(f in landmarks for f in facts(option & ~state))]
            needed = [_union(landmarks, option & ~state) for option in reachable]
            self._known[state] = min(map(self._count, needed), default=None)
        return self._known[state]

    def _landmarks(self, state: Facts) -> dict[int, Facts]:
        """Landmarks of every fact that can become true, facts of the state left out.

        LM(f) is f and the intersection, over the steps that add f, of the union of their needs' landmarks: the greatest
        solution, found by taking steps from a queue until nothing shrinks.
        """
        landmarks: dict[int, Facts] = {}
        missing = [(step.needs & ~state).bit_count() for step in self._steps]
        queue = dict.fromkeys(number for number, left in enumerate(missing) if not left)  # each once, oldest first
        while queue:
            number = next(iter(queue))
            del queue[number]
            step = self._steps[number]
            before = _union(landmarks, step.needs & ~state)
            for fact in facts(step.adds & ~state):
                old = landmarks.get(fact)
                new = (before | 1 << fact) & (-1 if old is None else old)
                if new != old:
                    landmarks[fact] = new
                    for user in self._users[fact]:
                        missing[user] -= old is None
                        if not missing[user]:
                            queue[user] = None
        return landmarks

    def _count(self, needed: Facts) -> int:
        most = dict.fromkeys(facts(needed), 1)
        for step in self._steps:
            together = (step.adds & needed).bit_count()
            if together > 1:
                for fact in facts(step.adds & needed):
                    most[fact] = max(most[fact], together)
        return ceil(sum(1 / share for share in most.values()) - 1e-9)


def _union(landmarks: dict[int, Facts], wanted: Facts) -> Facts:
    return reduce(or_, (landmarks[fact] for fact in facts(wanted)), 0)
