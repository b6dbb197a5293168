"""State graph of a game: visited states, their admissible commands and known transitions.

A game is deterministic, so its graph depends on the game only and is shared by siblings, runs and
processes. It grows while the game is played and is packed into a few numbers per state; states read
from disk become objects only when an episode reaches them.

Graphs are stored one file per game: a line of JSON (format, key, SHA-256 of the payload) followed
by the packed graph. The key hashes the game's texts and the versions of the packages that play it.
A writer merges its graph with the file's and replaces the file atomically. Of two simultaneous
writers one may lose its additions, which costs time and changes no result. Files that fail the
checks are ignored and rewritten.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.envs.alfworld.games.games import Game
from scpo.envs.alfworld.planning.translation import package_version
from scpo.records.files import replace_file

logger = logging.getLogger(__name__)

Key = frozenset[int]
"""Differences from the initial state, as numbers.

``2 * v``: the atom of variable v differs. ``2 * v + 1``: an operator was the last to delete it. The
stock engine records the second kind as a fact of its own (``not_...``), absent at the start, which
its texts query.
"""


class Offer(NamedTuple):
    """Admissible commands of a state, sorted, with their operators; many states share an offer."""

    operators: Mapping[str, int]
    admissible: tuple[str, ...]


class State:
    """State of a game.

    Attributes:
        code: Its key in few bytes.
        operators: The operator of each admissible command; one mapping for all states of the
            same offer.
        admissible: Admissible commands, sorted.
        won: Whether the goal holds.
        successors: Number of the next state in the graph, and the answer, for each command that was
            tried. Numbers, so that states which this process never visits stay packed.
    """

    # Slots save memory: a process may keep an object for each state of its games.
    __slots__ = ("admissible", "code", "operators", "successors", "won")

    def __init__(self, code: bytes, offer: Offer, won: bool) -> None:
        self.code = code
        self.operators, self.admissible = offer
        self.won = won
        self.successors: dict[str, tuple[int, str]] = {}

    @property
    def key(self) -> Key:
        """The facts in which it differs from the start."""
        return frozenset(array("i", self.code))


def coded(key: Key) -> bytes:
    """``State.code`` of a key."""
    return array("i", sorted(key)).tobytes()


# Numbers of a state's row before its key: offer, won, size of the key.
_BEFORE_KEY = 3


@dataclass(frozen=True)
class _Packed:
    """A graph as tables of texts and rows of numbers, one row for each state.

    Attributes:
        texts: Answers, no two equal.
        commands: Commands, no two equal.
        offers: For each offer, the numbers of its commands and operators in turn.
        numbers: The rows of all states: offer, won, size of the key, the key; then command, next
            state and text of each successor.
        start_S: Index into ``numbers`` where each state's row begins, and the end of the last row.
    """

    texts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    offers: list[array[int]] = field(default_factory=list)
    numbers: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    start_S: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.start_S) - 1

    def state(self, number: int) -> NDArray[np.int32]:
        """The numbers of a state."""
        return self.numbers[self.start_S[number] : self.start_S[number + 1]]

    def codes(self) -> list[bytes]:
        """``State.code`` of all states, in order."""
        start_S = self.start_S[:-1] + _BEFORE_KEY
        end_S = start_S + self.numbers[start_S - 1]
        # Sliced as bytes, 4 for each number.
        content = self.numbers.tobytes()
        bounds = zip((4 * start_S).tolist(), (4 * end_S).tolist(), strict=True)
        return [content[start:end] for start, end in bounds]

    def code(self, number: int) -> bytes:
        """``State.code`` of one state."""
        start = self.start_S[number] + _BEFORE_KEY
        end = start + self.numbers[start - 1]
        return self.numbers[start:end].tobytes()


class Graph:
    """The known states of a game, at most ``most_states``, numbered; 0 is the start.

    Attributes:
        opening: The first observation; empty until the game is opened for the first time.
        new: Number of successors that were added since the graph was read.
    """

    def __init__(self, most_states: int, opening: str = "", packed: _Packed | None = None) -> None:
        self.opening = opening
        self.new = 0
        self._most_states = most_states
        self._packed = packed or _Packed()
        # None: still packed, see `state`.
        self._states: list[State | None] = [None] * len(self._packed)
        self._numbers: dict[bytes, int] | None = None
        self._offers: dict[int, Offer] = {}
        self._shared: dict[tuple[tuple[str, ...], tuple[int, ...]], Offer] = {}

    def __len__(self) -> int:
        return len(self._states)

    def state(self, number: int) -> State:
        """The state of that number."""
        state = self._states[number]
        if state is None:
            state = self._states[number] = self._unpacked(number)
        return state

    def find(self, code: bytes) -> int | None:
        """The number of a state; None if it is not known."""
        if self._numbers is None:
            # Built on first use: a game that is only replayed never looks up a state.
            added = self._states[len(self._packed) :]
            codes = [*self._packed.codes(), *(state.code for state in added if state)]
            self._numbers = {code: number for number, code in enumerate(codes)}
        return self._numbers.get(code)

    def add(self, state: State) -> int | None:
        """Add a new state and return its number; None if the graph is full."""
        number = len(self)
        # A full graph still answers what it knows; it only stops growing.
        if number >= self._most_states or self.find(state.code) is not None:
            return None
        assert self._numbers is not None  # noqa: S101 (for mypy: `find` has made it)
        self._states.append(state)
        self._numbers[state.code] = number
        return number

    def offer(self, operators: dict[str, int]) -> Offer:
        """The offer of these commands and operators, shared by all states that have them."""
        # Two tuples: pairs would take three times the memory.
        content = tuple(operators), tuple(operators.values())
        offer = self._shared.get(content)
        if offer is None:
            offer = self._shared[content] = Offer(operators, tuple(sorted(operators)))
        return offer

    def learn(self, state: State, command: str, number: int, answer: str) -> None:
        """Remember where a command leads from a state."""
        if command not in state.successors:
            state.successors[command] = number, answer
            self.new += 1

    def absorb(self, other: Graph) -> None:
        """Learn what ``other`` has seen of the same game in this process."""
        # Only states that were unpacked can have new successors.
        unpacked = [state for state in other._states if state is not None]
        for state in unpacked:
            mine = self._number_of(state)
            # The graph is full.
            if mine is None:
                continue
            for command, (number, answer) in state.successors.items():
                following = self._number_of(other.state(number))
                if following is not None:
                    self.learn(self.state(mine), command, following, answer)

    def _number_of(self, state: State) -> int | None:
        """Number here of a state of another graph, added if needed; None if there is no room."""
        number = self.find(state.code)
        if number is None:
            number = self.add(State(state.code, self.offer(dict(state.operators)), state.won))
        return number

    def _unpacked(self, number: int) -> State:
        """A state as an object; see ``_Packed.numbers`` for the layout."""
        packed = self._packed
        offer, won, size, *rest = packed.state(number).tolist()
        state = State(packed.code(number), self._unpacked_offer(offer), bool(won))
        after = rest[size:]
        for command, following, text in zip(after[::3], after[1::3], after[2::3], strict=True):
            state.successors[packed.commands[command]] = following, packed.texts[text]
        return state

    def _unpacked_offer(self, number: int) -> Offer:
        """An offer as an object; made once, so that all states that have it share one mapping."""
        offer = self._offers.get(number)
        if offer is None:
            content = self._packed.offers[number]
            commands = [self._packed.commands[command] for command in content[::2]]
            operators = dict(zip(commands, content[1::2], strict=True))
            offer = self._offers[number] = Offer(operators, tuple(sorted(operators)))
        return offer

    def to_bytes(self) -> bytes:
        """The whole graph, compressed."""
        packer = _Packer(self._packed)
        for number, state in enumerate(self._states):
            packer.rows.append(self._packed.state(number) if state is None else packer.row(state))
        tables: dict[str, Any] = {"opening": self.opening, "texts": list(packer.texts)}
        tables |= {"commands": list(packer.commands), "offers": packer.offers}
        # Little-endian on every machine, because the cache folder may be shared.
        sizes = np.array([len(packer.rows), *map(len, packer.rows)], dtype="<i4")
        numbers = np.concatenate([sizes, *packer.rows]).astype("<i4")
        return zlib.compress(json.dumps(tables).encode() + b"\n" + numbers.tobytes(), level=1)


class _Packer:
    """Packs states into numbers, extending the tables read from disk.

    Existing entries keep their numbers, so the rows of states that stayed packed remain valid.
    """

    def __init__(self, packed: _Packed) -> None:
        self.texts = {text: number for number, text in enumerate(packed.texts)}
        self.commands = {command: number for number, command in enumerate(packed.commands)}
        self.offers = [content.tolist() for content in packed.offers]
        self._known = {tuple(content): number for number, content in enumerate(packed.offers)}
        self._by_identity: dict[int, int] = {}
        self.rows: list[NDArray[np.int32]] = []

    def row(self, state: State) -> NDArray[np.int32]:
        """See ``_Packed.numbers``."""
        key = array("i", state.code)
        row = [self._offer(state.operators), int(state.won), len(key), *key]
        for command, (number, answer) in state.successors.items():
            row += self._command(command), number, self.texts.setdefault(answer, len(self.texts))
        return np.array(row, dtype=np.int32)

    def _command(self, command: str) -> int:
        return self.commands.setdefault(command, len(self.commands))

    def _offer(self, operators: Mapping[str, int]) -> int:
        """Number of an offer in the table, added if it is new."""
        # States of an offer share one mapping; hashing its content would dominate the run time.
        number = self._by_identity.get(id(operators))
        if number is None:
            content: list[int] = []
            for command, operator in operators.items():
                content += (self._command(command), operator)
            number = self._known.setdefault(tuple(content), len(self.offers))
            self._by_identity[id(operators)] = number
            if number == len(self.offers):
                self.offers.append(content)
        return number


def graph_of(data: bytes, most_states: int) -> Graph:
    """Read a graph written by ``Graph.to_bytes``.

    Raises:
        ValueError, KeyError, zlib.error: The bytes are not a packed graph.
    """
    # Tables in JSON, then numbers: how many states, the size of each, and all their rows. JSON has
    # no bare line break, so the first one ends the tables.
    tables, numbers = zlib.decompress(data).split(b"\n", 1)
    content = json.loads(tables)
    all_numbers = np.frombuffer(numbers, dtype="<i4").astype(np.int32)
    count = int(all_numbers[0])
    start_S = np.zeros(count + 1, np.int64)
    np.cumsum(all_numbers[1 : count + 1], out=start_S[1:])
    # Arrays: as lists, the offers took more memory than everything else.
    offers = [array("i", offer) for offer in content["offers"]]
    packed = _Packed(
        content["texts"], content["commands"], offers, all_numbers[count + 1 :], start_S
    )
    return Graph(most_states, content["opening"], packed)


# Increase it when the form of the files changes, or when the engine's code changes an observation.
_FORMAT = 1
_PLAYED_BY = ("alfworld", "textworld", "fast-downward-textworld")

# A file is rewritten once there is a new transition for this many states.
_STATES_PER_NEW_TRANSITION = 5


class TransitionStore:
    """Graphs on disk in ``folder`` (None: disabled), of at most ``most_states`` states each."""

    def __init__(self, folder: Path | None, most_states: int) -> None:
        self._folder = folder
        self._most_states = most_states
        # `_stamp` of each game's file when it was last read or written.
        self._stamps: dict[str, tuple[int, ...] | None] = {}

    def get(self, game: Game) -> Graph:
        """Read a game's graph; an empty one if none exists."""
        if self._folder is None:
            return Graph(self._most_states)
        self._stamps[game.id] = _stamp(self._path(game))
        return self._load(game) or Graph(self._most_states)

    def knows(self, game: Game) -> bool:
        """Return True if the game has a file."""
        return self._folder is not None and self._path(game).exists()

    def keep(self, game: Game, graph: Graph) -> None:
        """Merge the graph with its file and rewrite it, if enough transitions are new."""
        # Rewriting a large file for a few transitions costs more than computing them again.
        enough = graph.new and graph.new * _STATES_PER_NEW_TRANSITION >= len(graph)
        if self._folder is None or not enough:
            return
        path = self._path(game)

        # If another process has written the file since, its transitions are kept, too.
        theirs = None
        if _stamp(path) != self._stamps.get(game.id):
            theirs = self._load(game)
        if theirs is not None:
            theirs.absorb(graph)
            data = theirs.to_bytes()
        else:
            data = graph.to_bytes()
        header = json.dumps(
            {"format": _FORMAT, "key": path.stem, "sha256": hashlib.sha256(data).hexdigest()}
        )
        try:
            # A torn file fails its hash.
            replace_file(path, header.encode() + b"\n" + data, durable=False)
        except OSError as error:
            # A cache that cannot be written costs time, not results.
            logger.warning(
                "transitions are no longer kept: cannot write %s: %s", path, error.strerror
            )
            self._folder = None
            return

        graph.new = 0
        self._stamps[game.id] = _stamp(path)

    def _path(self, game: Game) -> Path:
        key = transition_key(game)
        assert self._folder is not None  # noqa: S101 (for mypy: asked only where there is one)
        return self._folder / key[:2] / f"{key}.graph"

    def _load(self, game: Game) -> Graph | None:
        """Read and check a game's file; None if it is missing or fails its checks."""
        path = self._path(game)
        # The header repeats the key, so that a file under another game's name is refused.
        try:
            header, data = path.read_bytes().split(b"\n", 1)
            expected = {
                "format": _FORMAT,
                "key": path.stem,
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            if json.loads(header) != expected:
                raise ValueError("its header is of another file")
            return graph_of(data, self._most_states)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 (whichever decoder finds the damage)
            logger.warning("the transitions %s are not usable (%s) and are made again", path, error)
            return None


def transition_key(game: Game) -> str:
    """Hash of everything that a game's transitions depend on."""
    # Another version of the engine may phrase an observation differently.
    versions = (f"{package} {package_version(package)}" for package in _PLAYED_BY)
    parts = (f"format {_FORMAT}", *versions, game.domain, game.problem, game.grammar)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Numbers that change when a file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    # Files are replaced by renaming, which changes the inode; the others guard against its reuse.
    return found.st_ino, found.st_mtime_ns, found.st_size
