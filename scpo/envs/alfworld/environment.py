"""ALFWorld on the TextWorld engine: panels of games, episodes, remaining plan lengths."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scpo.bounded import Bounded
from scpo.envs.alfworld.demonstrations import demonstrations, vocabulary
from scpo.envs.alfworld.engine.engine import Engine, open_engine
from scpo.envs.alfworld.engine.graph import Key
from scpo.envs.alfworld.episode import AlfworldEpisode, task_of
from scpo.envs.alfworld.planning.pddl import read_problem
from scpo.envs.alfworld.planning.planner import Planner
from scpo.envs.alfworld.planning.translation import make_task
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.base import Demonstration, Task
from scpo.envs.panel import Panels
from scpo.errors import EnvironmentFailure, GameError
from scpo.schema.env import FAMILIES, AlfworldConfig
from scpo.schema.model import Imitation


class AlfworldEnvironment:
    """Games, panels and engines of one process; see ``scpo.envs.base.Environment``.

    Args:
        config: Which games, panels and protocol.
        cache_dir: Where translations and transitions are kept between runs; None to keep none.
        data: Folder of the official games; only read if the configuration asks for them.

    Raises:
        GameError: Official games are asked for and not there.
        PanelError: Two panels have the same name.
    """

    families: tuple[str, ...] = tuple(FAMILIES.values())

    def __init__(
        self,
        config: AlfworldConfig,
        *,
        cache_dir: Path | str | None,
        data: str | None = None,
    ) -> None:
        self.config = config
        # Kept, because demonstrations open the same games again in other processes.
        self._open_engine = partial(
            open_engine,
            config,
            cache_dir=None if cache_dir is None else Path(cache_dir),
            data=data,
        )
        self.engine = self._open_engine()
        self.source = self.engine.source
        self._panels = Panels(
            config,
            candidates=self.source.ids,
            task=self.task,
            usable=self.source.playable,
            families=self.families,
        )
        self.panel = self._panels.panel
        self._plans = Plans(self.engine)

    def open_panels(self) -> None:
        """Open the validation games, and the training games that already have a graph.

        Validation games are played again and again, so each keeps a lane.
        """
        for name in self._panels.configs:
            games = [task.id for task in self.panel(name).tasks]
            if name == "train":
                self.engine.hold_known(games)
            else:
                self.engine.hold(games)

    @property
    def uncached_s(self) -> float:
        """See ``scpo.envs.base.CachingEnvironment``."""
        return self.engine.uncached_s

    def fill_caches(self, tasks: Sequence[Task]) -> None:
        """Translate the games of these tasks; see ``scpo.envs.base.CachingEnvironment``.

        Raises:
            GameError: A game cannot be read or translated.
        """
        self.engine.translate([task.id for task in tasks])

    def task(self, game_id: str) -> Task:
        """The panel entry of a game."""
        return task_of(self.engine.game(game_id))

    def start(self, task: Task, slot: int) -> AlfworldEpisode:
        """Begin an episode; ``slot`` selects the draws of a rewording.

        Raises:
            GameError: The game cannot be read, or is not the one that the task was made from.
            EnvironmentFailure: The engine broke; try again.
        """
        # A game that cannot be read now cannot be read at the next try either. Any other error may
        # come from the state of the library, which a new lane does not share.
        try:
            opened = self.engine.open(task.id)
        except GameError:
            raise
        except Exception as error:
            self.engine.drop(task.id)
            raise EnvironmentFailure(
                f"game {task.id} failed to start in slot {slot}: {error}"
            ) from error

        # A resumed run must not continue on a game that was edited or downloaded anew.
        if opened.game.sha256 != task.sha256:
            raise GameError(
                f"game {task.id} changed: it hashes to {opened.game.sha256}, the panel was drawn "
                f"with {task.sha256}; restore the file or draw the panel again in a new run"
            )

        return AlfworldEpisode(task, opened, self.engine, self.config, slot)

    def remaining_plan(self, task: Task, actions: Sequence[str]) -> int | None:
        """See ``scpo.envs.base.PlanningEnvironment``.

        Raises:
            EnvironmentFailure: The engine broke.
        """
        try:
            return self._plans.remaining(task.id, actions)
        except GameError:
            raise
        except Exception as error:
            self.engine.drop(task.id)
            raise EnvironmentFailure(
                f"game {task.id} failed on its way to a plan: {error}"
            ) from error

    def replay(self, task: Task, actions: Sequence[str]) -> tuple[list[str], list[str]]:
        """See ``scpo.envs.base.ReplayingEnvironment``."""
        opened = self.engine.open(task.id)
        state = opened.start
        transcript = Transcript(opened.opening, opened.start.admissible)
        answers = []
        states = [transcript.state_text]
        for action in actions:
            executed = action.strip() in state.operators
            state, answer = self.engine.step(opened, state, action)
            transcript.record(action, answer, state.admissible, executed=executed)
            answers.append(answer)
            states.append(transcript.state_text)
        return answers, states

    def demonstrations(
        self, config: Imitation, processes: int | None = None
    ) -> list[Demonstration]:
        """See ``scpo.envs.alfworld.demonstrations``."""
        return demonstrations(
            self.engine,
            self.config,
            config,
            self._panels.untrained(config, "games", "split"),
            open_engine=self._open_engine,
            processes=processes,
        )

    def vocabulary(self) -> list[str]:
        """See ``scpo.envs.alfworld.demonstrations``."""
        return vocabulary()


# Lengths remembered, below 1 kB each: siblings reach most states of a rollout too.
_STATES = 16384

# Planners kept, below 1 MB each; a new one takes 0.01 to 0.2 s, to ground its game.
_GAMES = 64

# States that a search may expand; after random walks of 30 steps in 24 games, 300 were enough.
_MAX_STATES = 1000


class Plans:
    """Remaining plans in the games of an engine.

    Lengths are remembered by state, not by actions: siblings reach the same states by different
    actions. Each is kept in a tuple, so that a length of None differs from a missing entry.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._planner = functools.lru_cache(_GAMES)(self._new_planner)
        self._lengths: Bounded[tuple[str, Key], tuple[int | None]] = Bounded(_STATES)

    def remaining(self, game_id: str, actions: Sequence[str]) -> int | None:
        """Steps of a shortest plan after these actions from the start; None if none was found."""
        opened = self._engine.open(game_id)
        state = opened.start
        for action in actions:
            # Usually without the library: the graph knows the transitions of a played episode.
            state, _ = self._engine.step(opened, state, action)
        known = self._lengths.get((game_id, state.key))
        if known is None:
            known = (self._planner(game_id).length(opened.world.atoms(state), _MAX_STATES),)
            self._lengths.put((game_id, state.key), known)
        return known[0]

    def _new_planner(self, game_id: str) -> Planner:
        """Ground a game's PDDL task for the search."""
        game = self._engine.game(game_id)
        problem = read_problem(game.domain, game.problem)
        things = {name for name, kind in problem.objects.items() if kind == "object"}
        return Planner(make_task(problem), things)
