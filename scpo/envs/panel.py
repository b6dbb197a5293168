"""Drawing panels: fixed, sorted lists of tasks, balanced over families, the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from scpo.errors import PanelError


def draw(
    candidates: Mapping[str, Sequence[str]], count: int | None, seed: int, usable: Callable[[str], bool]
) -> list[str]:
    """Ids of ``count`` tasks, one family after the other, each family in an order that the seed decides; sorted.

    Args:
        candidates: Sorted ids by family.
        count: How many to draw; None for all.
        seed: Decides which tasks of a family come first.
        usable: Asked only of tasks that come up; the others need not even be read.

    Raises:
        PanelError: There are fewer usable tasks than asked for.
    """
    drawn: list[str] = []
    for task in shuffled(candidates, seed):
        if count is not None and len(drawn) == count:
            break
        if usable(task):
            drawn.append(task)
    if count is not None and len(drawn) < count:
        raise PanelError(
            f"a panel of {count} games was asked for but there are only {len(drawn)}; "
            "ask for fewer, for null to take all of them, or for a larger split"
        )
    return sorted(drawn)


def shuffled(candidates: Mapping[str, Sequence[str]], seed: int) -> Iterator[str]:
    """All ids, round-robin over the families that still have some."""
    queues = []
    for family, ids in candidates.items():
        queue = sorted(ids)
        random.Random(f"panel {seed} {family}").shuffle(queue)
        queues.append(queue)
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()
