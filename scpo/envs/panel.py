"""Panels: fixed, sorted lists of tasks, balanced over families and equal on every machine."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from scpo.envs.base import Panel, Task
from scpo.errors import PanelError
from scpo.schema.env import FAMILIES, AlfworldConfig, GoalPanelConfig, PanelConfig, WebshopConfig
from scpo.schema.model import Imitation


class Panels:
    """Panels of one configuration: ``train``, ``probe`` and the validation panels.

    Args:
        config: The environment's configuration.
        candidates: Gives the sorted ids of a split by family.
        task: Gives the panel entry of an id.
        usable: Returns True for a task that can be played.
        families: Order of the task families in a panel drawn from the training panel; families
            that are not listed follow in the order of their first task.

    Attributes:
        configs: Configuration of each panel by name.

    Raises:
        PanelError: Two panels have the same name.
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
        taken = own.keys() & config.validation_panels.keys()
        if taken:
            raise PanelError(
                f"validation panels may not be called {', '.join(sorted(taken))}: those names are "
                "taken"
            )
        self.configs: dict[str, PanelConfig | GoalPanelConfig] = {**own, **config.validation_panels}
        # Drawn once: drawing reads files of official games, and every validation asks again.
        self.panel = functools.cache(self._panel)
        self._candidates = candidates
        self._task = task
        self._usable = usable
        self._families = families

    def held_out(self, split: str) -> set[str]:
        """Ids of a split's tasks that a validation panel keeps out of training."""
        held: set[str] = set()
        for name, config in self.configs.items():
            # A panel that is drawn from the training tasks on purpose holds nothing out.
            if config.split == split and config.held_out and not config.subset_of_training:
                held |= {task.id for task in self.panel(name).tasks}
        return held

    def untrained(self, warm_start: Imitation, tasks: str, source: str) -> list[str]:
        """Ids of training tasks for a warm start, neither trained on nor held out.

        Args:
            warm_start: Number of tasks and the seed of the draw.
            tasks: Noun for the tasks, for the error message.
            source: Noun for what has too few tasks, for the error message.

        Raises:
            PanelError: The split has too few such tasks.
        """
        # Imitation must see neither the tasks of training nor those that success is measured on.
        reserved = {task.id for task in self.panel("train").tasks} | self.held_out("train")
        candidates = shuffled(self._candidates("train"), warm_start.seed)
        # Lazily: a candidate that is not needed is never read.
        free = (name for name in candidates if name not in reserved and self._usable(name))
        ids = list(islice(free, warm_start.games))
        if len(ids) < warm_start.games:
            raise PanelError(
                f"a warm start on {warm_start.games} {tasks} was requested but the training split "
                f"has only {len(ids)} outside the training panel; ask for fewer or for a larger "
                f"{source}"
            )
        return ids

    def _panel(self, name: str) -> Panel:
        """Draw a panel; see ``scpo.envs.base.Environment.panel``."""
        config = self.configs.get(name)
        if config is None:
            raise PanelError(
                f"no panel {name!r}; panels of this configuration: {', '.join(self.configs)}"
            )

        try:
            candidates = self._drawn_from(name, config)
            if isinstance(config, PanelConfig):
                count = config.games
                if config.families is not None:
                    names = {FAMILIES[family] for family in config.families}
                    candidates = {
                        family: ids for family, ids in candidates.items() if family in names
                    }
            else:
                count = config.goals
            ids = draw(candidates, count, config.seed, self._usable)
        except PanelError as error:
            # `draw` does not know which panel it draws.
            raise PanelError(f"panel {name!r} ({config.split}): {error}") from error
        return Panel(name, tuple(map(self._task, ids)))

    def _drawn_from(
        self, name: str, config: PanelConfig | GoalPanelConfig
    ) -> Mapping[str, Sequence[str]]:
        """Ids by family that a panel is drawn from.

        Validation panels that hold tasks out are drawn before the training panel, so that they do
        not change with its size.
        """
        if name == "train":
            kept_out = self.held_out(config.split)
            trainable = {}
            for family, ids in self._candidates(config.split).items():
                trainable[family] = [task_id for task_id in ids if task_id not in kept_out]
            return trainable
        if not config.subset_of_training:
            return self._candidates(config.split)
        trained: dict[str, list[str]] = {family: [] for family in self._families}
        for task in self.panel("train").tasks:
            trained.setdefault(task.family, []).append(task.id)
        return trained


def draw(
    candidates: Mapping[str, Sequence[str]],
    count: int | None,
    seed: int,
    usable: Callable[[str], bool],
) -> list[str]:
    """Draw ``count`` tasks, round-robin over families, in an order given by the seed; sorted ids.

    Panels of one seed are nested: a larger one contains every smaller one.

    Args:
        candidates: Sorted ids by family.
        count: How many to draw; None for all.
        seed: Determines the order of the tasks in each family.
        usable: Returns True for a task that can be played; not called once enough are drawn.

    Raises:
        PanelError: Fewer tasks are usable than were requested.
    """
    # Lazily: a candidate that is not needed is never read.
    usable_ids = filter(usable, shuffled(candidates, seed))
    drawn = list(islice(usable_ids, count))
    if count is not None and len(drawn) < count:
        raise PanelError(
            f"a panel of {count} tasks was asked for but there are only {len(drawn)}; "
            "ask for fewer, for null to take all of them, or for a larger split"
        )
    return sorted(drawn)


def shuffled(candidates: Mapping[str, Sequence[str]], seed: int) -> Iterator[str]:
    """All ids in round-robin order over the families, each family shuffled."""
    queues = []
    for family, ids in candidates.items():
        queue = sorted(ids)
        # Each family has its own generator, so that further tasks in one do not reorder another.
        random.Random(f"panel {seed} {family}").shuffle(queue)
        queues.append(queue)
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()
