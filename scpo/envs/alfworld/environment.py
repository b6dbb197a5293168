"""ALFWorld on the real TextWorld engine: panels of games, and episodes with verl-agent's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scpo.envs.alfworld import prompts
from scpo.envs.alfworld.engine.engine import Engine, Limits, OpenGame
from scpo.envs.alfworld.games.game import Game, GameSource
from scpo.envs.alfworld.games.generated_games import GeneratedGames
from scpo.envs.alfworld.games.official_games import OfficialGames
from scpo.envs.alfworld.planning.translation_cache import TranslationStore
from scpo.envs.alfworld.remaining_plan import Plans
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.alfworld.vocabulary import vocabulary
from scpo.envs.base import Demonstration, Panel, StepResult, Task
from scpo.envs.panel import draw
from scpo.envs.projection import project, project_compact
from scpo.errors import EnvironmentFailure, GameError, PanelError
from scpo.schema import FAMILIES
from scpo.schema.env import AlfworldConfig, PanelConfig
from scpo.schema.model import WarmStart

UNTAGGED_TAIL = 30  # verl-agent's projection of this environment


@dataclass(frozen=True)
class Interface:
    """How text passes between a policy and the game: the prompt, and the projection of a response."""

    prompt: Callable[[Transcript, int], str]
    project: Callable[[str], tuple[str, bool]]


INTERFACES = {
    "verl_agent": Interface(prompts.verl_agent, partial(project, require_think=True, tail=UNTAGGED_TAIL)),
    "compact": Interface(prompts.compact, partial(project_compact, tail=UNTAGGED_TAIL)),
}


class AlfworldEpisode:
    """One rollout of one game; see ``scpo.envs.base.Episode``."""

    def __init__(self, task: Task, opened: OpenGame, engine: Engine, config: AlfworldConfig) -> None:
        self.task = task
        self.done = False
        self.observation = opened.opening
        self.transcript = Transcript(opened.opening, opened.start.admissible)
        self.opened = opened
        self.state = opened.start
        self._engine = engine
        self._config = config
        self._interface = INTERFACES[config.prompt]

    def prompt(self) -> str:
        """The text that the policy reads now."""
        return self._interface.prompt(self.transcript, self._config.history_length)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            EnvironmentFailure: The engine broke; start the episode again.
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(f"episode of {self.task.id} is over after {number} steps; start a new one")
        action, valid = self._interface.project(response)
        executed = action.strip() in self.state.operators  # the game strips what it is told
        try:
            self.state, observation = self._engine.step(self.opened, self.state, action)
        except Exception as error:
            self._engine.drop(self.task.id)
            raise EnvironmentFailure(f"game {self.task.id} failed at step {number} on {action!r}: {error}") from error
        self.observation = observation
        self.transcript.record(action, observation, self.state.admissible, executed=executed)
        won = self.state.won
        self.done = won or number + 1 >= self._config.horizon
        reward = self._config.win_reward if won else 0.0
        return StepResult(action, valid, observation, reward, self.done, won)


class AlfworldEnvironment:
    """Games, panels and engines of one process; see ``scpo.envs.base.Environment``.

    Args:
        config: Which games, panels and protocol.
        cache_dir: Where translations are kept between runs; None to keep none.
        alfworld_data: Folder of the official games; only read if the configuration asks for them.
        limits: What is kept in memory.

    Raises:
        GameError: Official games are asked for and not there.
        PanelError: Two panels have one name.
    """

    families: tuple[str, ...] = tuple(FAMILIES.values())

    def __init__(
        self,
        config: AlfworldConfig,
        *,
        cache_dir: Path | str | None,
        alfworld_data: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.config = config
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        self.alfworld_data = alfworld_data
        self.source: GameSource = (
            OfficialGames(alfworld_data) if config.games == "official" else GeneratedGames(config.generated)
        )
        self._panel_configs = _panel_configs(config)
        self._panels: dict[str, Panel] = {}
        store = TranslationStore(None if self.cache_dir is None else self.cache_dir / "translations")
        self.engine = Engine(self.source, store, limits)
        self._plans = Plans(self.engine)

    def panel(self, name: str) -> Panel:
        """The panel of that name: ``train``, ``probe`` or a validation panel.

        Raises:
            PanelError: No such panel, or its split has too few games.
            GameError: A game of it cannot be read.
        """
        if name not in self._panels:
            config = self._panel_configs.get(name)
            if config is None:
                raise PanelError(f"no panel {name!r}; panels of this configuration: {', '.join(self._panel_configs)}")
            self._panels[name] = Panel(name, tuple(self.task(game_id) for game_id in self._draw(name, config)))
        return self._panels[name]

    def task(self, game_id: str) -> Task:
        """The panel entry of a game."""
        return _task(self.source.read(game_id))

    def start(self, task: Task, slot: int) -> AlfworldEpisode:
        """Begin an episode. Siblings share what is known of the game; no slot needs an engine of its own.

        Raises:
            GameError: The game cannot be read, or is not the one that the task was made from.
            EnvironmentFailure: The engine broke; try again.
        """
        try:
            opened = self.engine.open(task.id)
        except GameError:
            raise
        except Exception as error:
            self.engine.drop(task.id)
            raise EnvironmentFailure(f"game {task.id} failed to start in slot {slot}: {error}") from error
        if opened.game.sha256 != task.sha256:
            raise GameError(
                f"game {task.id} changed: it hashes to {opened.game.sha256}, the panel was drawn with {task.sha256}; "
                "restore the file or draw the panel again in a new run"
            )
        return AlfworldEpisode(task, opened, self.engine, self.config)

    def start_game(self, game_id: str) -> AlfworldEpisode:
        """Begin an episode of a game that no panel names.

        Raises:
            GameError: The game cannot be read.
        """
        opened = self.engine.open(game_id)
        return AlfworldEpisode(_task(opened.game), opened, self.engine, self.config)

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
            raise EnvironmentFailure(f"game {task.id} failed on its way to a plan: {error}") from error

    def demonstrations(self, config: WarmStart) -> list[Demonstration]:
        """See ``scpo.envs.alfworld.demonstrations``."""
        from scpo.envs.alfworld.demonstrations import demonstrations  # plays episodes of this class

        return demonstrations(self, config)

    def vocabulary(self) -> list[str]:
        """See ``scpo.envs.alfworld.vocabulary``."""
        return vocabulary()

    def _draw(self, name: str, config: PanelConfig) -> list[str]:
        if config.subset_of_training and name != "train":
            candidates: dict[str, list[str]] = {family: [] for family in self.families}
            for task in self.panel("train").tasks:
                candidates[task.family].append(task.id)
            return self._named(name, candidates, config)
        return self._named(name, self.source.ids(config.split), config)

    def _named(self, name: str, candidates: Mapping[str, Sequence[str]], config: PanelConfig) -> list[str]:
        try:
            return draw(candidates, config.games, config.seed, self.source.playable)
        except PanelError as error:
            raise PanelError(f"panel {name!r} ({config.split}): {error}") from error


def _task(game: Game) -> Task:
    return Task(game.id, game.family, game.sha256)


def _panel_configs(config: AlfworldConfig) -> dict[str, PanelConfig]:
    own = {"train": config.train_panel, "probe": config.probe_panel}
    taken = own.keys() & config.validation_panels.keys()
    if taken:
        raise PanelError(f"validation panels may not be called {', '.join(sorted(taken))}: those names are taken")
    return {**own, **config.validation_panels}
