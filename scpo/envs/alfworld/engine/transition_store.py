"""Graphs of games on disk, so that a transition is computed once for all runs that share a cache folder.

One file a game: a line of JSON (format, key, hash of what follows) and the packed graph. The key is the hash of the
game's texts and of the versions that play it. Writers replace whole files by what they know and what the file has
meanwhile; of two that do so in the same moment one is lost, which costs time and no result. A file that does not say
all that is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from pathlib import Path

from scpo.envs.alfworld.engine.graph import Graph, graph_of
from scpo.envs.alfworld.games.game import Game
from scpo.envs.alfworld.planning.translation_cache import package_version
from scpo.records.files import replace_file

logger = logging.getLogger(__name__)
_FORMAT = 1  # raise it when the file's form changes, or the engine's code changes what a game answers
_PLAYED_BY = ("alfworld", "textworld", "fast-downward-textworld")
_WORTH = 5  # a file is written again when a fifth of its states have new successors


class TransitionStore:
    """Graphs of games in ``folder`` (None: nothing is kept), each of at most ``most_states`` states."""

    def __init__(self, folder: Path | None, most_states: int) -> None:
        self._folder = folder
        self._most_states = most_states
        self._read: dict[str, tuple[int, ...] | None] = {}

    def get(self, game: Game) -> Graph:
        """What is known of the game; an empty graph if that is nothing."""
        if self._folder is None:
            return Graph(self._most_states)
        self._read[game.id] = _stamp(self._path(game))
        return self._load(game) or Graph(self._most_states)

    def knows(self, game: Game) -> bool:
        """Whether there is a file of the game."""
        return self._folder is not None and self._path(game).exists()

    def keep(self, game: Game, graph: Graph) -> None:
        """Write the graph, with what others have written meanwhile, if it has learned enough to be worth it."""
        if self._folder is None or graph.new * _WORTH < len(graph) or graph.new == 0:
            return
        path = self._path(game)
        if _stamp(path) != self._read.get(game.id) and (theirs := self._load(game)) is not None:
            theirs.absorb(graph)
            data = theirs.to_bytes()
        else:
            data = graph.to_bytes()
        header = json.dumps({"format": _FORMAT, "key": path.stem, "sha256": hashlib.sha256(data).hexdigest()})
        try:
            replace_file(path, header.encode() + b"\n" + data, durable=False)  # a torn file fails its hash
        except OSError as error:  # a cache that cannot be written costs time, not results
            logger.warning("transitions are no longer kept: cannot write %s: %s", path, error.strerror)
            self._folder = None
            return
        graph.new = 0
        self._read[game.id] = _stamp(path)

    def _path(self, game: Game) -> Path:
        key = transition_key(game)
        assert self._folder is not None  # noqa: S101 (for mypy: asked only where there is one)
        return self._folder / key[:2] / f"{key}.graph"

    def _load(self, game: Game) -> Graph | None:
        path = self._path(game)
        try:
            header, data = path.read_bytes().split(b"\n", 1)
            expected = {"format": _FORMAT, "key": path.stem, "sha256": hashlib.sha256(data).hexdigest()}
            if json.loads(header) != expected:
                raise ValueError("its header is of another file")
            return graph_of(data, self._most_states)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, zlib.error) as error:
            logger.warning("the transitions %s are not usable (%s) and are made again", path, error)
            return None


def transition_key(game: Game) -> str:
    """Hash of everything that a game's transitions depend on."""
    versions = (f"{package} {package_version(package)}" for package in _PLAYED_BY)
    parts = (f"format {_FORMAT}", *versions, game.domain, game.problem, game.grammar)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Tells whether a file was replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
