"""Engine of a process: open games with their state graphs, played on a bounded pool of lanes.

A lane is a loaded copy of the planner library (``world.Lane``). It can be set to any state of its
game, so one lane serves all siblings of a group, in any order of steps. Siblings play the same game
and share its graph: a transition is computed once for all of them, and for all runs that share a
cache folder.
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

# Number of games whose texts are cached, 40 kB each: panels and `Engine.open` both read them.
_TEXTS = 1024


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine's memory.

    Attributes:
        games: Open games with their graphs, about 0.1 MB each and 0.5 kB per visited state. At
            scale=study a training game is played rarely, the 274 validation games again and again.
        states: States that are stored of one game, in memory and on disk.
        lanes: Lanes, about 2.5 MB each. With more games in play than lanes, a step may have to load
            its game, which takes 3 ms.
        spare_lanes: Lanes of all other games once the validation games hold lanes of their own; 16
            training games are played at each training step.
        unkept: Number of new transitions after which they are written to disk.
    """

    games: int = 448
    states: int = 4096
    lanes: int = 160
    spare_lanes: int = 32
    unkept: int = 200_000


@dataclass(frozen=True)
class OpenGame:
    """Open game: content, state graph, initial state and text.

    Opening a game whose graph is stored loads no library.

    Attributes:
        game: Its content.
        graph: The known states and transitions.
        start: The initial state.
        opening: The first observation, with the task.
        make_world: Makes ``world``; translates the game for the library, 0.2 s the first time.
    """

    game: Game
    graph: Graph
    start: State
    opening: str
    make_world: Callable[[], World]

    @cached_property
    def world(self) -> World:
        """Computes transitions that the graph lacks; made on first use."""
        return self.make_world()


class Engine:
    """Plays games with the stock engine's texts; each transition is computed once.

    The stock engine plays 19 to 32 steps a second, since it parses the grammar again for every
    admissible command of every state.

    Args:
        source: Where games are read from.
        translations: Translated games, in memory and on disk.
        limits: Bounds of memory; None: the defaults.
        transitions: Folder of the graphs; None: graphs are kept in memory only.

    Attributes:
        uncached_s: Seconds spent so far on opening games and on computing transitions; close to 0
            if other runs filled the caches.
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
        """Content of a game by its id, cached; raises GameError if it cannot be read."""
        self._lanes: Bounded[str, Lane] = Bounded(self._limits.lanes)
        self._held: dict[str, Lane] = {}
        self._store = TransitionStore(transitions, self._limits.states)
        self._unkept = 0
        # Games opened since a transition was last computed, see `_provide_lanes`.
        self._opened: set[str] = set()
        # Also called at exit, so that the next run reads the transitions of a run that ended early.
        weakref.finalize(self, _keep, self._store, self._games)

    def open(self, game_id: str) -> OpenGame:
        """Return the open game; the first time, read it and, if its graph is new, translate it.

        Raises:
            GameError: The game cannot be read or translated.
        """
        opened = self._games.get(game_id)
        if opened is None:
            with self._counted():
                opened = self._open(self.game(game_id))
            evicted = self._games.evict()
            if evicted is not None:
                # Its new transitions would be lost.
                self._store.keep(evicted.game, evicted.graph)
            self._games.put(game_id, opened)
        # Held games already have lanes.
        if game_id not in self._held:
            self._opened.add(game_id)
        return opened

    def hold(self, game_ids: Sequence[str]) -> None:
        """Open games and give each a lane of its own; they do not count towards the limits.

        All other games share a new pool of ``Limits.spare_lanes``.
        """
        self._games.widen(len(game_ids))
        self.translate(game_ids)
        for game_id in game_ids:
            self._held[game_id] = self._lane(game_id, self.open(game_id).world)
            self._lanes.pop(game_id)
        # They were opened before they were held; no lanes of the shared pool are needed for them.
        self._opened.difference_update(game_ids)
        self._lanes = Bounded(self._limits.spare_lanes)

    def hold_known(self, game_ids: Sequence[str]) -> None:
        """Open the games whose graph is stored, and make room for all of ``game_ids``."""
        self._games.widen(len(game_ids))
        for game_id in game_ids:
            if self._store.knows(self.game(game_id)):
                self.open(game_id)
        # They are opened in advance and not all played next, so no lanes are reserved for them.
        self._opened.clear()

    def _open(self, game: Game) -> OpenGame:
        """Open a game with its stored graph, or with a new graph of the initial state only."""
        graph = self._store.get(game)
        make_world = partial(_world, self._translations, game, graph)
        # A stored graph needs no translation and no lane until a new transition is computed.
        if len(graph):
            return OpenGame(game, graph, graph.state(0), graph.opening, make_world)
        world = make_world()
        start, graph.opening = world.start(self._lane(game.id, world))
        return OpenGame(game, graph, start, graph.opening, lambda: world)

    def step(self, opened: OpenGame, state: State, command: str) -> tuple[State, str]:
        """Next state and observation after a command; an inadmissible one changes nothing."""
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
        """Translate, on all cores, the games whose translation is not on disk."""
        games = map(self.game, game_ids)
        self._translations.make([(game.domain, game.problem) for game in games])

    def _lane(self, game_id: str, world: World) -> Lane:
        """Lane with this game loaded.

        If no lane has the game, a new lane loads it or, in a full pool, the least recently used.
        """
        lane = self._held.get(game_id) or self._lanes.get(game_id)
        if lane is None:
            # An evicted lane is reused, because a new lane loads another copy of the library.
            lane = self._lanes.evict() or Lane()
            lane.load(world.translation)
            self._lanes.put(game_id, lane)
        return lane

    def _provide_lanes(self) -> None:
        """Reserve a lane for each newly opened game, up to the limit.

        These games are stepped in turn. With fewer lanes than games, the least recently used lane
        is the one that is needed next, so that every step would load a game: PPO, whose 128
        rollouts play 128 games, took 40 s a step.
        """
        self._lanes.reserve(min(len(self._opened), self._limits.lanes))
        self._opened.clear()

    def keep(self) -> None:
        """Write new transitions of the open games to disk.

        Called after every ``Limits.unkept`` new transitions; ``_keep`` also runs at exit.
        """
        _keep(self._store, self._games)

    def drop(self, game_id: str) -> None:
        """Close a game and its lane, whose state is undefined after an error."""
        self._games.pop(game_id)
        self._lanes.pop(game_id)
        self._held.pop(game_id, None)


def _world(translations: TranslationStore, game: Game, graph: Graph) -> World:
    # The first import of alfworld must be that of `assets`, which keeps it from creating folders in
    # the user's home.
    assets()
    return World(translations.get(game.domain, game.problem), read_grammar(game.grammar), graph)


def _keep(store: TransitionStore, games: Bounded[str, OpenGame]) -> None:
    for opened in games.values():
        store.keep(opened.game, opened.graph)


def open_engine(config: AlfworldConfig, *, cache_dir: Path | None, data: str | None) -> Engine:
    """Make an engine of the configured games; see ``AlfworldEnvironment`` for the arguments.

    Raises:
        GameError: Official games are configured, and their folder is missing.
    """
    source: GameSource = (
        OfficialGames(data) if config.games == "official" else GeneratedGames(config.generated)
    )
    if cache_dir is None:
        return Engine(source, TranslationStore(None))
    return Engine(
        source, TranslationStore(cache_dir / "translations"), transitions=cache_dir / "transitions"
    )
