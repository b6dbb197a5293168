"""Drawing panels: fixed, sorted lists of tasks, balanced over families, the same on every machine."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from scpo.envs.base import Panel, Task
from scpo.errors import PanelError
from scpo.schema import FAMILIES
from scpo.schema.env import AlfworldConfig, GoalPanelConfig, PanelConfig, WebshopConfig
from scpo.schema.model import Imitation


class Panels:
    """The panels of one configuration: ``train``, ``probe`` and those of validation, each drawn once.

    Args:
        config: The environment's.
        candidates: Gives the sorted ids of a split by family.
        task: Gives the panel entry of an id.
        usable: Whether a task can be played.
        families: Those that a panel of training tasks goes through first, in this order; the others follow as they are
            met.

    Attributes:
        configs: Of each panel, by its name.

    Raises:
        PanelError: Two panels have one name.
    """

    def __init__(
        self,
        config: AlfworldConfig | WebshopConfig,
        *,
        candidates: Callable[[str], Mapping[str, Sequence[str]]],
        task: Callable[[str], Task],
        usable: Callable[[str], bool] = lambda _task: True,
        families: Sequence[str] = (),
    ) -> None:
        own = {"train": config.train_panel, "probe": config.probe_panel}
        if taken := own.keys() & config.validation_panels.keys():
            raise PanelError(f"validation panels may not be called {', '.join(sorted(taken))}: those names are taken")
        self.configs: dict[str, PanelConfig | GoalPanelConfig] = {**own, **config.validation_panels}
        self.panel = functools.cache(self._panel)
        self._candidates, self._task, self._usable, self._families = candidates, task, usable, families

    def held_out(self, split: str) -> set[str]:
        """Tasks of a split that a validation panel keeps out of training."""
        held = [name for name, one in self.configs.items() if one.held_out and not one.subset_of_training]
        return {task.id for name in held if self.configs[name].split == split for task in self.panel(name).tasks}

    def untrained(self, warm_start: Imitation, tasks: str, source: str) -> list[str]:
        """Ids of the training split's tasks that a warm start shows: none that is trained on or held out.

        Args:
            warm_start: How many, and the seed that chooses.
            tasks: What they are called.
            source: What could be larger.

        Raises:
            PanelError: There are fewer.
        """
        known = {task.id for task in self.panel("train").tasks} | self.held_out("train")
        candidates = shuffled(self._candidates("train"), warm_start.seed)
        ids = list(islice((one for one in candidates if one not in known and self._usable(one)), warm_start.games))
        if len(ids) < warm_start.games:
            raise PanelError(
                f"a warm start on {warm_start.games} {tasks} was asked for but the training split has only {len(ids)} "
                f"outside the training panel; ask for fewer or for a larger {source}"
            )
        return ids

    def _panel(self, name: str) -> Panel:
        config = self.configs.get(name)
        if config is None:
            raise PanelError(f"no panel {name!r}; panels of this configuration: {', '.join(self.configs)}")
        count, wanted = (config.games, config.families) if isinstance(config, PanelConfig) else (config.goals, None)
        names = None if wanted is None else {FAMILIES[family] for family in wanted}
        try:
            drawn_from = self._drawn_from(name, config).items()
            chosen = {family: ids for family, ids in drawn_from if names is None or family in names}
            ids = draw(chosen, count, config.seed, self._usable)
        except PanelError as error:
            raise PanelError(f"panel {name!r} ({config.split}): {error}") from error
        return Panel(name, tuple(map(self._task, ids)))

    def _drawn_from(self, name: str, config: PanelConfig | GoalPanelConfig) -> Mapping[str, Sequence[str]]:
        if name == "train":
            kept_out = self.held_out(config.split)
            candidates = self._candidates(config.split).items()
            return {family: [one for one in ids if one not in kept_out] for family, ids in candidates}
        if not config.subset_of_training:
            return self._candidates(config.split)
        families: dict[str, list[str]] = {family: [] for family in self._families}
        for task in self.panel("train").tasks:
            families.setdefault(task.family, []).append(task.id)
        return families


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
    drawn = list(islice(filter(usable, shuffled(candidates, seed)), count))
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
