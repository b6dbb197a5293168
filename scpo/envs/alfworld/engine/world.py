"""Transitions of one game, computed with the Fast Downward library.

A :class:`Lane` is a loaded copy of the library, which keeps one task and one state per copy.
A :class:`World` uses a lane to compute the result of a command in a state and the commands that the
new state admits.

A state is identified by the facts in which it differs from the initial state. Only facts that some
precondition, the goal or some text depends on are part of that key: the planner also records, for
example, that a shelf has been examined, which no observation or command can show.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import tempfile
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.grammar import (
    Bindings,
    Facts,
    Grammar,
    Parameter,
    Symbol,
    Writer,
    queries,
    read_by,
)
from scpo.envs.alfworld.engine.graph import Graph, Key, Offer, State, coded
from scpo.envs.alfworld.planning.pddl import Atom
from scpo.envs.alfworld.planning.translation import Translation
from scpo.errors import GameError

# Layout of the library's C structs; the label's size is fixed there.
_LABEL_BYTES = 1024
OPERATOR = np.dtype(
    [("id", np.int32), ("label", f"S{_LABEL_BYTES}"), ("effects", np.int32)], align=True
)
LABEL = np.dtype(f"S{_LABEL_BYTES}")


class Lane:
    """Loaded copy of the library, which can be set to any state of its game without replay.

    States are given as the set of variables that differ from the initial state.
    """

    def __init__(self) -> None:
        self._library = load_library()
        # Grows in `applicable` when a state has more operators.
        self._operators = np.zeros(64, OPERATOR)
        self._make_room(8)
        self._jumps: tuple[int, ...] = ()
        self._initial: tuple[bool, ...] = ()
        self._flipped: AbstractSet[int] = frozenset()

    def load(self, translation: Translation) -> None:
        """Load another game at its initial state."""
        self._library.load_sas(translation.sas)
        self._jumps = translation.jumps
        self._initial = translation.initial
        self._flipped = frozenset()

    def move(self, flipped: AbstractSet[int]) -> None:
        """Set the state in which exactly these variables differ from the initial state."""
        # This loop runs for every new transition, so attributes are looked up before it.
        apply = self._library.apply_operator
        effects_at = self._effects_at
        jumps = self._jumps
        initial = self._initial
        for variable in self._flipped ^ flipped:
            # `jumps` has the operator that makes a variable true; the next one makes it false.
            makes_false = initial[variable] == (variable in flipped)
            apply(jumps[variable] + makes_false, effects_at)
        self._flipped = flipped

    def apply(self, operator: int, effects: int) -> list[int]:
        """Apply an operator and return the values that it set, in the library's order.

        Values are ``2 * variable``, plus 1 for false. The caller derives the resulting state from
        them and reports it with ``arrive`` before the next ``move``.

        Args:
            operator: The library's number of an applicable operator.
            effects: Number of values that it sets, as ``applicable`` returns it.
        """
        if effects > len(self._effects):
            self._make_room(2 * effects)
        # The library ends a label with one zero byte and leaves older bytes after it.
        self._effects.fill(b"")
        self._library.apply_operator(operator, self._effects_at)
        return [int(label) for label in self._effects[:effects].tolist()]

    def _make_room(self, effects: int) -> None:
        """Make a buffer for this many values, which the library writes in ``apply``."""
        self._effects = np.zeros(effects, LABEL)
        # The address is kept, because asking NumPy for it takes longer than the move itself.
        self._effects_at = self._effects.ctypes.data

    def arrive(self, flipped: AbstractSet[int]) -> None:
        """Note that the last applied operator led to this state."""
        self._flipped = flipped

    def applicable(self) -> tuple[list[int], list[int]]:
        """Applicable operators in the library's order, and how many values each sets."""
        count = self._library.get_applicable_operators_count()
        if count > len(self._operators):
            self._operators = np.zeros(2 * count, OPERATOR)
        self._library.get_applicable_operators(self._operators.ctypes.data)
        found = self._operators[:count]
        return found["id"].tolist(), found["effects"].tolist()

    def won(self) -> bool:
        """Return True if the goal holds."""
        return bool(self._library.check_goal())


def load_library() -> Any:
    """Load a private copy; the same as ``fast_downward.load_lib`` but 30 times smaller on disk.

    The packaged library is 34 MB, 33 of them debug information that the loader never reads. A
    lane's copy must live as long as the lane, so a hundred copies of the packaged library would
    take gigabytes of a temporary folder.
    """
    import fast_downward

    loadable = _loadable_library()
    if loadable is None:
        # The packaged library is not an ELF file of the expected kind.
        library = fast_downward.load_lib()
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "libdownward.so"
            path.write_bytes(loadable)
            library = ctypes.CDLL(str(path))
    library.load_sas.argtypes = [ctypes.c_char_p]
    library.get_applicable_operators.argtypes = [ctypes.c_void_p]
    library.apply_operator.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.check_goal.restype = ctypes.c_bool
    return library


@functools.cache
def _loadable_library() -> bytes | None:
    from fast_downward.interface import DOWNWARD_LIB_PATH

    return _loadable_part(Path(DOWNWARD_LIB_PATH).read_bytes())


def _loadable_part(elf: bytes) -> bytes | None:
    """Content of a 64-bit little-endian ELF file up to the end of its last loadable segment.

    The section table at the end of the file is not needed to load it. None if the file is of
    another kind.
    """
    if elf[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    end = 0
    for header in range(table, table + size * count, size):
        kind, _flags, offset, _virtual, _physical, length = struct.unpack_from(
            "<IIQQQQ", elf, header
        )
        # PT_LOAD: a segment that the loader maps into memory.
        if kind == 1:
            end = max(end, offset + length)

    trimmed = bytearray(elf[:end])

    # Offset of the section table.
    struct.pack_into("<Q", trimmed, 0x28, 0)

    # Number of sections, index of the name section.
    struct.pack_into("<HH", trimmed, 0x3C, 0, 0)
    return bytes(trimmed)


# The engine's answer to a command that is not admissible.
NOTHING_HAPPENS = "Nothing happens."

# Prefix of the predicates that the stock engine makes for deleted facts.
_NEGATION = "not_"


class World:
    """Computes transitions of one game and adds them to its graph.

    Args:
        translation: The game as the library's task.
        grammar: The game's texts.
        graph: The known states and transitions.

    Raises:
        GameError: Something depends on a fact that the library cannot report reliably.
    """

    def __init__(self, translation: Translation, grammar: Grammar, graph: Graph) -> None:
        self.translation = translation
        self._grammar = grammar
        self._graph = graph
        self._start_facts = _by_predicate(translation.facts)
        self._entities = _entities(translation)
        self._tracked, self._tracked_negation = _tracked(translation, grammar)
        self._commands: dict[int, str] = {}
        self._offers: dict[tuple[int, ...], Offer] = {}
        self._static_commands: dict[tuple[str, ...], str] = {}
        # Number of values that each operator sets.
        self._effects: dict[int, int] = {}
        # Placeholders that each action's command reads; None: it depends on facts that can change.
        self._read_by: dict[str, set[Parameter] | None] = {}
        self._fluent = {atom[0] for atom in translation.atoms}

    def start(self, lane: Lane) -> tuple[State, str]:
        """The first state and the opening text."""
        key: Key = frozenset()
        opening = self._writer(key).write(self._grammar.rules["intro"][0].symbols, {})
        return self._visit(key, coded(key), lane), opening

    def step(self, state: State, command: str, lane: Lane) -> tuple[State, str]:
        """Compute a new transition: the next state and the observation of an admissible command."""
        operator = state.operators[command]
        lane.move(self._flipped(state.key))

        # The number of effects is unknown for states read from a file.
        if operator not in self._effects:
            self._effects.update(zip(*lane.applicable(), strict=True))
        key = self._after(state.key, lane.apply(operator, self._effects[operator]))
        lane.arrive(self._flipped(key))
        action, bindings = self._bindings(operator)
        answer = self._writer(key).write(self._grammar.actions[action].feedback, bindings)
        code = coded(key)
        number = self._graph.find(code)
        following = self._visit(key, code, lane) if number is None else self._graph.state(number)

        # A full graph takes no new state; then the transition is not stored either.
        number = self._graph.find(code)
        if number is not None:
            self._graph.learn(state, command, number, answer)
        return following, answer

    def atoms(self, state: State) -> set[Atom]:
        """Atoms that hold in a state, of those that can change.

        Atoms that nothing depends on are not tracked and have their initial value.
        """
        flipped = self._flipped(state.key)
        starts = zip(self.translation.atoms, self.translation.initial, strict=True)
        return {
            atom
            for variable, (atom, initial) in enumerate(starts)
            if initial != (variable in flipped)
        }

    def _visit(self, key: Key, code: bytes, lane: Lane) -> State:
        """Ask the library for a state that the graph lacks, and add it if there is room."""
        lane.move(self._flipped(key))
        state = State(code, self._offer(key, lane), lane.won())
        self._graph.add(state)
        return state

    def _offer(self, key: Key, lane: Lane) -> Offer:
        """Admissible commands of a state.

        Of operators with the same command the first is taken, which the stock engine runs too.
        """
        applicable, effects = lane.applicable()
        # The same operators give the same commands, so most states share an offer.
        content = tuple(applicable)
        offer = self._offers.get(content)
        if offer is None:
            self._effects.update(zip(applicable, effects, strict=True))
            operators: dict[str, int] = {}
            for operator in applicable:
                command = self._commands.get(operator) or self._command(operator, key)
                # The library's order decides between operators of one command.
                operators.setdefault(command, operator)
            offer = self._graph.offer(operators)
            # `_commands` has only commands that no state changes.
            if self._commands.keys() >= set(applicable):
                self._offers[content] = offer
        return offer

    def _command(self, operator: int, key: Key) -> str:
        """Command of an operator; cached unless its text depends on facts that can change."""
        action, bindings = self._bindings(operator)
        template = self._grammar.actions[action].command
        if action not in self._read_by:
            fluent = self._is_fluent(template)
            self._read_by[action] = None if fluent else read_by(template, bindings)
        read = self._read_by[action]
        if read is None:
            return self._writer(key).write(template, bindings)

        # The command depends on static facts only, so it is the same in every state. Operators that
        # differ only in arguments that the command does not mention share it.
        mentioned = [entity for parameter, entity in bindings.items() if parameter in read]
        content = (action, *mentioned)
        if content not in self._static_commands:
            self._static_commands[content] = self._writer(key).write(template, bindings)
        command = self._commands[operator] = self._static_commands[content]
        return command

    def _is_fluent(self, template: Iterable[Symbol]) -> bool:
        """Return True if a text depends on facts that can change."""
        for query in queries(template):
            if any(predicate in self._fluent for predicate, _ in query.terms):
                return True
        return False

    def _bindings(self, operator: int) -> tuple[str, Bindings]:
        """Action of an operator, and the objects of its parameters."""
        action, *arguments = self.translation.operators[operator]
        return action, dict(zip(self.translation.parameters[action], arguments, strict=False))

    def _writer(self, key: Key) -> Writer:
        """Writer of texts in the state of this key, from the start's facts and the differences."""
        removed = []
        added = []
        for code in key:
            variable, deleted = divmod(code, 2)
            atom = self.translation.atoms[variable]
            if deleted:
                added.append(_negated(atom))
            elif self.translation.initial[variable]:
                removed.append(atom)
            else:
                added.append(atom)
        return Writer(
            self._grammar,
            self._entities,
            self.translation.types,
            _changed(self._start_facts, removed, added),
        )

    def _after(self, key: Key, effects: Iterable[int]) -> Key:
        """Key of the state after these effects, as ``Lane.apply`` returns them."""
        after = set(key)
        for effect in effects:
            variable = effect >> 1
            false = bool(effect & 1)
            if self._tracked[variable]:
                _set(after, 2 * variable, self.translation.initial[variable] == false)
            if self._tracked_negation[variable]:
                _set(after, 2 * variable + 1, false)
        return frozenset(after)

    @staticmethod
    def _flipped(key: Key) -> frozenset[int]:
        # Odd codes record a deletion, which does not change the value of a variable.
        return frozenset([code >> 1 for code in key if not code & 1])


def _by_predicate(atoms: Iterable[Atom]) -> Facts:
    """Facts in the order in which the stock engine sorts them."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for predicate, *arguments in atoms:
        found.setdefault(predicate, set()).add(tuple(arguments))
    return {predicate: sorted(rows) for predicate, rows in found.items()}


def _changed(start: Facts, removed: Iterable[Atom], added: Iterable[Atom]) -> Facts:
    """The facts of a state: those of the game's start, with a few removed and a few added."""
    # Only the lists of changed predicates are copied; the others are shared with the start.
    changed = {predicate: list(start.get(predicate, ())) for predicate, *_ in (*removed, *added)}
    for predicate, *arguments in removed:
        changed[predicate].remove(tuple(arguments))
    for predicate, *arguments in added:
        changed[predicate].append(tuple(arguments))
    return {**start, **{predicate: sorted(rows) for predicate, rows in changed.items()}}


def _set(codes: set[int], code: int, present: bool) -> None:
    """Add a code to the set or remove it."""
    if present:
        codes.add(code)
    else:
        codes.discard(code)


def _negated(atom: Atom) -> Atom:
    return (_NEGATION + atom[0], *atom[1:])


def _tracked(translation: Translation, grammar: Grammar) -> tuple[list[bool], list[bool]]:
    """For each variable, whether keys record its value, and whether they record its deletion.

    See ``graph.Key``.
    """
    # Facts that no text, precondition or goal reads would only split equal states.
    read = grammar.predicates()
    matter = read | translation.reads
    unreliable = sorted(p for p in translation.unreliable if p in matter or _NEGATION + p in matter)
    if unreliable:
        raise GameError(
            f"the game changes {unreliable} under conditions, which is only allowed for facts that "
            "nothing depends on"
        )

    distinguishing = []
    negated = []
    for atom, jump in zip(translation.atoms, translation.jumps, strict=True):
        # Derived variables (without a jump) follow from the others and distinguish nothing.
        distinguishing.append(atom[0] in matter and jump >= 0)
        negated.append(_NEGATION + atom[0] in read)
    return distinguishing, negated


def _entities(translation: Translation) -> dict[str, object]:
    """Every object that occurs in a fact, named as in ALFWorld ("desk 1")."""
    from textworld.generator.game import EntityInfo

    names = {argument for _, *arguments in translation.facts for argument in arguments}
    entities = {name: EntityInfo(name, translation.types[name]) for name in names}
    demangler = assets().demangler(game_infos=entities)
    for name, entity in entities.items():
        entity.name = demangler.demangle_alfred_name(name)
        entity.definite, entity.indefinite = "the", "a"
    return entities
