"""Engine of a process: open games with their state graphs, played on a bounded pool of lanes.

Siblings of a group play the same game and share its graph, so a transition that one of them
computed is free for the others and for all runs that share a cache folder. Because a lane can be
set to any state of its game, one lane serves all siblings, in any order of steps.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path

from scpo.bounded import Bounded
from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.grammar import read_grammar
from scpo.envs.alfworld.engine.graph import Graph, State, TransitionStore
from scpo.envs.alfworld.engine.world import NOTHING_HAPPENS, Lane, World
from scpo.envs.alfworld.games.games import Game, GameSource, GeneratedGames, OfficialGames
from scpo.envs.alfworld.planning.translation import TranslationStore
from scpo.schema.env import AlfworldConfig

# Games whose texts are cached, 40 kB each: both the panel and the opening of a game read them.
_TEXTS = 1024


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine's memory.

    Attributes:
        games: Games with their graphs, about 0.1 MB each and 0.5 kB a state visited. A training
            game of scale=study is played once in a while, the 274 of validation again and again.
        states: States remembered of one game, in memory and on disk.
        lanes: Loaded engine copies, about 2.5 MB each; more games in play than lanes cost a reload
            of 3 ms a miss.
        spare_lanes: The same once the validation games hold lanes of their own: then 16 training
            games are played at each step.
        unkept: New transitions after which they are written to disk.
    """

    games: int = 448
    states: int = 4096
    lanes: int = 160
    spare_lanes: int = 32
    unkept: int = 200_000


@dataclass(frozen=True)
class OpenGame:
    """Open game: content, state graph, initial state and text.

    Opening a game whose graph is known does not load the engine.

    Attributes:
        game: Its content.
        graph: States and transitions that are known.
        start: The initial state.
        opening: The first observation, with the task.
        make_world: Translates the game for the library, which takes 0.2 s the first time.
    """

    game: Game
    graph: Graph
    start: State
    opening: str
    make_world: Callable[[], World]

    @cached_property
    def world(self) -> World:
        """Engine that computes transitions not yet in the graph."""
        return self.make_world()


class Engine:
    """Plays games with the stock engine's texts; each transition is computed once.

    The stock engine plays 19 to 32 steps a second, since it parses the grammar again for every
    admissible command of every state.

    Args:
        source: Where games are read from.
        translations: Translated games, in memory and on disk.
        limits: Bounds of memory; None: the defaults.
        transitions: Folder of the graphs; None: they are kept in memory only.

    Attributes:
        uncached_s: Seconds spent so far on opening games and on computing transitions, which a run
            whose caches were filled by others does not spend.
    """

    def __init__(
        self,
        source: GameSource,
        translations: TranslationStore,
        limits: Limits | None = None,
        *,
        transitions: Path | None = None,
    ) -> None:
        self.source = source
        self.uncached_s = 0.0
        self._translations = translations
        self._limits = limits or Limits()
        self._games: Bounded[str, OpenGame] = Bounded(self._limits.games)
        self.game = lru_cache(_TEXTS)(source.read)
        """The content of a game by its id, read once; a GameError where it cannot be read."""
        self._lanes: Bounded[str, Lane] = Bounded(self._limits.lanes)
        self._held: dict[str, Lane] = {}
        self._store = TransitionStore(transitions, self._limits.states)
        self._unkept = 0
        # Games opened since the last step.
        self._opened: set[str] = set()
        # Runs at exit as well, so that a run that ends early leaves its transitions to the next.
        weakref.finalize(self, _keep, self._store, self._games)

    def open(self, game_id: str) -> OpenGame:
        """The game, read and translated the first time.

        Raises:
            GameError: It cannot be read or translated.
        """
        opened = self._games.get(game_id)
        if opened is None:
            with self._counted():
                opened = self._open(self.game(game_id))
            forgotten = self._games.evict()
            if forgotten is not None:
                # What the game has learned must not be lost with it.
                self._store.keep(forgotten.game, forgotten.graph)
            self._games.put(game_id, opened)
        # Held games have lanes already.
        if game_id not in self._held:
            self._opened.add(game_id)
        return opened

    def hold(self, game_ids: Sequence[str]) -> None:
        """Open these games with a lane of their own each, on top of the other games' limits."""
        self._games.widen(len(game_ids))
        self.translate(game_ids)
        for game_id in game_ids:
            self._held[game_id] = self._lane(game_id, self.open(game_id).world)
            self._lanes.pop(game_id)
        self._lanes = Bounded(self._limits.spare_lanes)

    def hold_known(self, game_ids: Sequence[str]) -> None:
        """Open those of these games whose graph exists, and make room for all of them."""
        self._games.widen(len(game_ids))
        for game_id in game_ids:
            if self._store.knows(self.game(game_id)):
                self.open(game_id)
        # Opened in advance, not to be played in turns.
        self._opened.clear()

    def _open(self, game: Game) -> OpenGame:
        """Open a game with its graph from disk, or with a new one that holds the start."""
        graph = self._store.get(game)
        make_world = partial(_world, self._translations, game, graph)
        # With a known start, neither translation nor engine is needed until a new transition is.
        if len(graph):
            return OpenGame(game, graph, graph.state(0), graph.opening, make_world)
        world = make_world()
        start, graph.opening = world.start(self._lane(game.id, world))
        return OpenGame(game, graph, start, graph.opening, lambda: world)

    def step(self, opened: OpenGame, state: State, command: str) -> tuple[State, str]:
        """Next state and observation of a command; an inadmissible command changes nothing."""
        command = command.strip()
        if command not in state.operators:
            return state, NOTHING_HAPPENS
        known = state.successors.get(command)
        if known is not None:
            return opened.graph.state(known[0]), known[1]
        self._unkept += 1
        if self._unkept > self._limits.unkept:
            self._unkept = 0
            self.keep()
        with self._counted():
            if self._opened:
                self._provide_lanes()
            return opened.world.step(state, command, self._lane(opened.game.id, opened.world))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the seconds of a block as ``uncached_s``; such blocks are not nested."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.uncached_s += time.perf_counter() - started

    def translate(self, game_ids: Sequence[str]) -> None:
        """Translate those of these games whose translation is not on disk, on all cores."""
        games = map(self.game, game_ids)
        self._translations.make([(game.domain, game.problem) for game in games])

    def _lane(self, game_id: str, world: World) -> Lane:
        """Lane that holds this game.

        Otherwise the least recently used lane is loaded with it.
        """
        lane = self._held.get(game_id) or self._lanes.get(game_id)
        if lane is None:
            # An evicted lane is loaded again: making a lane means loading a copy of the library.
            lane = self._lanes.evict() or Lane()
            lane.load(world.translation)
            self._lanes.put(game_id, lane)
        return lane

    def _provide_lanes(self) -> None:
        """Reserve a lane for each game opened since the last step, up to the limit.

        These games are played in turns. With fewer lanes than games the least recently used lane is
        the next one needed, so every step would load a game: PPO, whose 128 rollouts each have a
        game of their own, took 40 s a step.
        """
        self._lanes.reserve(min(len(self._opened), self._limits.lanes))
        self._opened.clear()

    def keep(self) -> None:
        """Write new transitions of the open games to disk.

        Called from time to time and at the end of the process.
        """
        _keep(self._store, self._games)

    def drop(self, game_id: str) -> None:
        """Close a game and its lane, whose state is undefined after an error."""
        self._games.pop(game_id)
        self._lanes.pop(game_id)
        self._held.pop(game_id, None)


def _world(translations: TranslationStore, game: Game, graph: Graph) -> World:
    # Imports alfworld before anything else does, without touching the user's folders.
    assets()
    return World(translations.get(game.domain, game.problem), read_grammar(game.grammar), graph)


def _keep(store: TransitionStore, games: Bounded[str, OpenGame]) -> None:
    for opened in games.values():
        store.keep(opened.game, opened.graph)


def open_engine(config: AlfworldConfig, *, cache_dir: Path | None, data: str | None) -> Engine:
    """An engine over the games that are configured; see ``AlfworldEnvironment`` for the arguments.

    Raises:
        GameError: Official games are asked for and not there.
    """
    source: GameSource = (
        OfficialGames(data) if config.games == "official" else GeneratedGames(config.generated)
    )
    if cache_dir is None:
        return Engine(source, TranslationStore(None))
    return Engine(
        source, TranslationStore(cache_dir / "translations"), transitions=cache_dir / "transitions"
    )
