"""The engine of a process: games by id, each with its cache of transitions, played on a bounded pool of lanes.

Siblings of a group play the same game. They share its world, so a transition that one of them took is free for the
others; and because a lane jumps to any state of its game, one lane serves them all, whatever order they step in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scpo.bounded import Bounded
from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.grammar import read_grammar
from scpo.envs.alfworld.engine.lanes import Lane, LanePool
from scpo.envs.alfworld.engine.world import NOTHING_HAPPENS, State, World
from scpo.envs.alfworld.games.game import Game, GameSource
from scpo.envs.alfworld.games.generated_games import GeneratedGames
from scpo.envs.alfworld.games.official_games import OfficialGames
from scpo.envs.alfworld.planning.translation_cache import TranslationStore
from scpo.schema.env import AlfworldConfig


@dataclass(frozen=True)
class Limits:
    """How much an engine keeps in memory.

    Attributes:
        games: Worlds with their transitions, about 0.15 MB each and 3 kB a state visited; scale=study plays 787.
        states: States remembered of one game.
        lanes: Loaded engine copies, about 2.5 MB each; more games in play than lanes cost a reload of 3 ms a miss.
    """

    games: int = 1024
    states: int = 4096
    lanes: int = 160


@dataclass(frozen=True)
class OpenGame:
    """A game that can be played: its opening state and text."""

    game: Game
    world: World
    start: State
    opening: str


class Engine:
    """Plays the games of a source with the stock engine's very texts, each transition computed once."""

    def __init__(self, source: GameSource, translations: TranslationStore, limits: Limits | None = None) -> None:
        self.source = source
        self._translations = translations
        self._limits = limits or Limits()
        self._games: Bounded[str, OpenGame] = Bounded(self._limits.games)
        self._lanes = LanePool(self._limits.lanes)

    def open(self, game_id: str) -> OpenGame:
        """The game, read and translated the first time.

        Raises:
            GameError: It cannot be read or translated.
        """
        opened = self._games.get(game_id)
        if opened is None:
            assets()  # imports alfworld before anything else does, without touching the user's folders
            game = self.source.read(game_id)
            translation = self._translations.get(game.domain, game.problem)
            world = World(translation, read_grammar(game.grammar), self._limits.states)
            opened = OpenGame(game, world, *world.start(self._lanes.lane(game_id, translation)))
            self._games.put(game_id, opened)
        return opened

    def step(self, opened: OpenGame, state: State, command: str) -> tuple[State, str]:
        """The state after a command and the answer to it; an inadmissible command changes nothing."""
        command = command.strip()
        if command not in state.operators:
            return state, NOTHING_HAPPENS
        world = opened.world
        key, answer = state.successors.get(command, (None, ""))
        if key is not None:
            following = world.known(key)
            return following or world.visit(key, self._lane(opened)), answer
        return world.step(state, command, self._lane(opened))

    def _lane(self, opened: OpenGame) -> Lane:
        return self._lanes.lane(opened.game.id, opened.world.translation)

    def drop(self, game_id: str) -> None:
        """Forget a game and its lane, both of which an error may have left in an unknown state."""
        self._games.pop(game_id)
        self._lanes.drop(game_id)


def open_engine(
    config: AlfworldConfig, *, cache_dir: Path | None, data: str | None, limits: Limits | None = None
) -> Engine:
    """An engine over the games that are configured; see ``AlfworldEnvironment`` for the arguments.

    Raises:
        GameError: Official games are asked for and not there.
    """
    source: GameSource = OfficialGames(data) if config.games == "official" else GeneratedGames(config.generated)
    return Engine(source, TranslationStore(None if cache_dir is None else cache_dir / "translations"), limits)
