"""Translation of a game's PDDL problem to the SAS task that the engine loads, cached on disk.

The task equals that of Fast Downward's translator, with two differences that no player can observe:

- Labels are numbers (value ``2 * variable`` is "true", ``2 * variable + 1`` is "false") and the
  real names are stored separately. The planning library (fast-downward-textworld) then parses a
  quarter of the text, and returns numbers.
- Two *jump* operators are appended for each variable that is not derived, one for each value. They
  require a variable that is never true, so none is ever applicable. But the library applies any
  operator that it is given, so a :class:`Lane` of the engine reaches any state by jumps in
  microseconds, without replaying commands.

A translation takes 0.2 s, reading it back a few milliseconds. A cache file is a gzip of two lines:
a header (format, key, SHA-256 of the second line) and the translation as JSON. The key hashes the
translated texts, the format and the library's version. Files that fail the checks are rewritten.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

from pydantic import Base64Bytes, PlainSerializer, PlainValidator, TypeAdapter

from scpo.envs.alfworld.planning.pddl import Action, Atom, Literal, Problem, ground, read_problem
from scpo.errors import GameError
from scpo.installed import installed_version
from scpo.records.files import replace_file
from scpo.records.memory import usable_cores

logger = logging.getLogger(__name__)

Condition = tuple[int, int]
"""A variable, and its value: 0 if the atom holds, else 1."""

Predicates = Annotated[frozenset[str], PlainSerializer(sorted)]

_NOTHING: frozenset[Condition] = frozenset()


@dataclass(frozen=True)
class Operator:
    """A ground action or axiom.

    Attributes:
        name: Action and its arguments.
        preconditions: What must hold.
        effects: For each effect, its own conditions and what it sets if they hold.
    """

    name: tuple[str, ...]
    preconditions: frozenset[Condition]
    effects: tuple[tuple[frozenset[Condition], Condition], ...]


@dataclass(frozen=True)
class NameTable:
    """Compact table with a row of words for each operator or atom; ``table[i]`` is a tuple.

    A game has some 2800 operators with names of 130 characters: 0.5 MB as text, 30 kB here.

    Attributes:
        words: All words; number 0 is the empty word, which pads short rows.
        width: Words per row, including padding.
        codes: Numbers of the words, row after row.
    """

    words: tuple[str, ...]
    width: int
    codes: Annotated[Sequence[int], PlainValidator(partial(array, "H")), PlainSerializer(list)]

    @classmethod
    def of(cls, rows: Iterable[Atom]) -> NameTable:
        """Build the table of these rows."""
        rows = list(rows)
        width = max(map(len, rows), default=1)
        numbers = {"": 0}
        codes = array("H")
        for row in rows:
            padded = [*row, *[""] * (width - len(row))]
            codes.extend(numbers.setdefault(word, len(numbers)) for word in padded)
        return cls(tuple(numbers), width, codes)

    def __len__(self) -> int:
        return len(self.codes) // self.width

    def __getitem__(self, row: int) -> Atom:
        codes = self.codes[row * self.width : (row + 1) * self.width]
        return tuple([self.words[code] for code in codes if code])

    def __iter__(self) -> Iterator[Atom]:
        words = self.words
        # All `width` arguments are the same iterator, so each tuple of the zip is the next row.
        codes = iter(self.codes)
        rows = zip(*[codes] * self.width, strict=True)
        return (tuple([words[code] for code in row if code]) for row in rows)


@dataclass(frozen=True)
class Translation:
    """A grounded task; plain strings and numbers, so that it can be kept as JSON.

    Attributes:
        packed_sas: The task for the library, with numbers for labels and the jumps appended;
            compressed.
        atoms: The atom of each variable.
        initial: Whether each atom holds at the start.
        jumps: For each variable, the number of the operator that makes it true; the next operator
            makes it false. -1 for derived variables.
        operators: Action and arguments of each operator except jumps, by the library's number of
            the operator.
        parameters: Action -> (name, type) of each of its parameters.
        types: Object -> its type.
        facts: All atoms of the initial state except equalities, including those that never change.
        reads: Predicates in the goal and in the preconditions of actions and axioms.
        unreliable: Predicates that some operator changes only under a condition; the library
            reports such changes whether or not they happened.
    """

    packed_sas: Base64Bytes
    atoms: NameTable
    initial: tuple[bool, ...]
    jumps: tuple[int, ...]
    operators: NameTable
    parameters: dict[str, tuple[tuple[str, str], ...]]
    types: dict[str, str]
    facts: NameTable
    reads: Predicates
    unreliable: Predicates

    @property
    def sas(self) -> bytes:
        """The task in the text format that the library reads."""
        return zlib.decompress(self.packed_sas)


@dataclass(frozen=True)
class Task:
    """A grounded task before it is written as SAS.

    Attributes:
        variables: Number of each atom that can change.
        derived: Predicates that follow from others by axioms.
        operators: Ground actions.
        axioms: Ground axioms, each with one effect on a derived variable.
        goal: What must hold at the end.
    """

    variables: dict[tuple[str, ...], int]
    derived: frozenset[str]
    operators: tuple[Operator, ...]
    axioms: tuple[Operator, ...]
    goal: frozenset[Condition]


def translate(domain: str, problem: str) -> Translation:
    """Ground a PDDL problem and write it for the library.

    Raises:
        GameError: The problem cannot be parsed, its goal can never be reached, or it uses a feature
            that is not supported.
    """
    parsed = read_problem(domain, problem)
    task = make_task(parsed)
    initial = tuple(atom in parsed.facts for atom in task.variables)
    derived = [atom[0] in task.derived for atom in task.variables]
    # `_sas` writes the jumps after the operators, two for each variable that is not derived.
    jumps = []
    next_jump = len(task.operators)
    for is_derived in derived:
        if is_derived:
            jumps.append(-1)
        else:
            jumps.append(next_jump)
            next_jump += 2

    reads = {literal.predicate for literal in parsed.goal}
    unreliable = set()
    for action in parsed.actions:
        reads |= {literal.predicate for literal in action.preconditions}
        unreliable |= {effect.literal.predicate for effect in action.effects if effect.conditions}

    return Translation(
        packed_sas=zlib.compress("\n".join(_sas(task, initial, derived)).encode(), level=1),
        atoms=NameTable.of(task.variables),
        initial=initial,
        jumps=tuple(jumps),
        operators=NameTable.of(operator.name for operator in task.operators),
        parameters=parsed.parameters,
        types=parsed.objects,
        facts=NameTable.of(fact for fact in sorted(parsed.facts) if fact[0] != "="),
        reads=frozenset(reads),
        unreliable=frozenset(unreliable),
    )


def make_task(problem: Problem) -> Task:
    """Ground a problem and number the atoms that can change.

    Raises:
        GameError: The goal can never be reached, or something depends on the absence of a derived
            fact.
    """
    grounded = ground(problem)
    variables = {atom: number for number, atom in enumerate(grounded.atoms)}
    derived = frozenset(action.name for action in problem.actions if action.derived)
    resolve = _Resolver(problem, variables, derived)
    goal = resolve.conditions(problem.goal, ())
    if goal is None:
        raise GameError("the goal of the game can never be reached")
    operators: list[Operator] = []
    axioms: list[Operator] = []
    for action, values in grounded.instances:
        operator = resolve.operator(action, values)
        if operator is None:
            continue
        if action.derived:
            axioms.append(operator)
        else:
            operators.append(operator)

    # Axioms occur twice where swapping two objects of a type gives the same axiom.
    return Task(variables, derived, tuple(operators), tuple(dict.fromkeys(axioms)), goal)


@dataclass(frozen=True)
class _Resolver:
    """Turns literals into conditions on variables; evaluates those on facts that never change.

    Attributes:
        problem: The normalised problem, with its initial facts.
        variables: Number of each atom that can change.
        derived: Predicates that follow from others by axioms.
    """

    problem: Problem
    variables: dict[tuple[str, ...], int]
    derived: frozenset[str]

    def conditions(
        self, literals: Sequence[Literal], values: tuple[str, ...]
    ) -> frozenset[Condition] | None:
        """Conditions on variables; None if the literals can never hold together.

        Args:
            literals: The literals of an action, an effect or the goal.
            values: Objects for the parameters.

        Raises:
            GameError: A literal negates a derived fact.
        """
        if not literals:
            return _NOTHING
        found = set()
        for literal in literals:
            atom = literal.ground(values)
            variable = self.variables.get(atom)
            if variable is None:
                # The atom never changes, so the initial state decides whether the literal holds.
                holds = (atom in self.problem.facts) != literal.negated
                if not holds:
                    return None
            elif literal.negated and literal.predicate in self.derived:
                raise GameError(
                    f"the game depends on the absence of the derived fact {atom}, which is not "
                    "supported"
                )
            else:
                found.add((variable, int(literal.negated)))

        contradictory = len({variable for variable, _ in found}) < len(found)
        return None if contradictory else frozenset(found)

    def operator(self, action: Action, values: tuple[str, ...]) -> Operator | None:
        """The ground action; None if it can never be applied or changes nothing."""
        preconditions = self.conditions(action.preconditions, values)
        if preconditions is None:
            return None
        effects = tuple(self._effects(action, values, preconditions))
        if not effects:
            return None
        return Operator((action.name, *values[: action.shown]), preconditions, effects)

    def _effects(
        self, action: Action, values: tuple[str, ...], preconditions: frozenset[Condition]
    ) -> Iterator[tuple[frozenset[Condition], Condition]]:
        """Effects that change something; a fact both added and removed is added (PDDL's rule)."""
        added = set()
        for effect in action.effects:
            if not effect.literal.negated and not effect.conditions:
                added.add(effect.literal.ground(values))

        for effect in action.effects:
            atom = effect.literal.ground(values)
            conditions = self.conditions(effect.conditions, values)
            overruled = effect.literal.negated and atom in added
            if atom not in self.variables or conditions is None or overruled:
                continue
            result = (self.variables[atom], int(effect.literal.negated))
            # A precondition that guarantees the result leaves nothing to change.
            if result not in preconditions:
                # Conditions that the preconditions guarantee need no check.
                yield conditions - preconditions, result


def _sas(task: Task, initial: tuple[bool, ...], derived: list[bool]) -> Iterator[str]:
    """Lines of the SAS file, format version 3: no metric, no mutex groups, unit costs."""
    # All jumps require one more variable, which no operator makes true.
    never = len(initial)
    yield from (
        "begin_version",
        "3",
        "end_version",
        "begin_metric",
        "0",
        "end_metric",
        str(never + 1),
    )
    for variable, is_derived in enumerate([*derived, False]):
        labels = (str(2 * variable), str(2 * variable + 1))
        yield from (
            "begin_variable",
            f"var{variable}",
            "0" if is_derived else "-1",
            "2",
            *labels,
            "end_variable",
        )

    yield from ("0", "begin_state", *("0" if true else "1" for true in initial), "1", "end_state")
    yield from ("begin_goal", str(len(task.goal)), *_lines(task.goal), "end_goal")
    jumps = []
    for variable, is_derived in enumerate(derived):
        if not is_derived:
            jumps += [(variable, 0), (variable, 1)]
    yield str(len(task.operators) + len(jumps))
    for number, operator in enumerate(task.operators):
        yield _operator(number, operator)
    for variable, value in jumps:
        # One precondition (`never` is true), one effect (from any value, -1), and a cost of 1.
        yield from ("begin_operator", "jump", "1", f"{never} 0")
        yield from ("1", f"0 {variable} -1 {value}", "1", "end_operator")
    yield str(len(task.axioms))
    for axiom in task.axioms:
        # The one effect of an axiom changes its variable from the other value to this one.
        [(_, (variable, value))] = axiom.effects
        yield from ("begin_rule", str(len(axiom.preconditions)), *_lines(axiom.preconditions))
        yield from (f"{variable} {1 - value} {value}", "end_rule")

    yield ""


def _operator(label: int, operator: Operator) -> str:
    """Lines of an operator in the SAS file, with a number as its label."""
    before = dict(operator.preconditions)
    changed = {variable for _, (variable, _) in operator.effects}
    effects = []
    for conditions, (variable, value) in operator.effects:
        needed = " ".join([str(len(conditions)), *_lines(conditions)])
        # -1: the variable may have any value before.
        effects.append(f"{needed} {variable} {before.get(variable, -1)} {value}")

    # Preconditions on variables that change are written with their effects.
    unchanged = [condition for condition in operator.preconditions if condition[0] not in changed]
    prevail = _lines(unchanged)
    return "\n".join(
        [
            "begin_operator",
            str(label),
            str(len(prevail)),
            *prevail,
            str(len(effects)),
            *effects,
            "1",
            "end_operator",
        ]
    )


def _lines(conditions: Iterable[Condition]) -> list[str]:
    """Conditions as the SAS file writes them: variable and value."""
    return [f"{variable} {value}" for variable, value in conditions]


# Increase it when the form of the files changes, or when the code above translates differently.
_FORMAT = 1
_JSON = TypeAdapter(Translation)


class TranslationStore:
    """Translations on disk in ``folder``, by ``translation_key``; without a folder none is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, domain: str, problem: str) -> Translation:
        """Read the translation, or translate and keep it.

        Raises:
            GameError: The problem cannot be translated.
        """
        if self._folder is None:
            return translate(domain, problem)
        key = translation_key(domain, problem)
        path = self._path(key)
        kept = _read(path, key)
        if kept is not None:
            return kept
        translation = translate(domain, problem)
        self._write(path, key, translation)
        return translation

    def make(self, games: Sequence[tuple[str, str]]) -> None:
        """Translate the pairs of domain and problem that are not stored yet, on all cores.

        Forks the process, so it must be called while the process has no other threads.
        """
        if self._folder is None:
            return
        new = [game for game in games if not self._path(translation_key(*game)).exists()]
        # A pool for a single game would take longer than its translation.
        if len(new) > 1:
            with get_context("fork").Pool(min(len(new), usable_cores())) as pool:
                pool.map(self._keep, new, chunksize=1)

    def _keep(self, game: tuple[str, str]) -> None:
        """Run ``get`` and drop the result, which a pool would copy back to this process."""
        self.get(*game)

    def _path(self, key: str) -> Path:
        assert self._folder is not None  # noqa: S101 (for mypy: callers have a folder)
        return self._folder / key[:2] / f"{key}.json.gz"

    def _write(self, path: Path, key: str, translation: Translation) -> None:
        """Write a translation; an error of the file system is logged, not raised."""
        body = _JSON.dump_json(translation)
        header = {"format": _FORMAT, "key": key, "sha256": hashlib.sha256(body).hexdigest()}
        # No time in gzip's header, so that equal translations give equal files.
        content = gzip.compress(
            json.dumps(header).encode() + b"\n" + body, compresslevel=1, mtime=0
        )
        try:
            # Not durable: a file that a crash cut off fails its hash and is written again.
            replace_file(path, content, durable=False)
        except OSError as error:
            # A cache that cannot be written costs time, not results.
            logger.warning("translation not kept: cannot write %s: %s", path, error.strerror)


@cache
def package_version(package: str) -> str:
    """Version of an installed package; ``unknown`` if its metadata is missing."""
    return installed_version(package) or "unknown"


def translation_key(domain: str, problem: str) -> str:
    """Hash of everything a translation depends on."""
    parts = (f"format {_FORMAT}", package_version("fast-downward-textworld"), domain, problem)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path, key: str) -> Translation | None:
    """Read a stored translation; None if the file is missing or fails its checks."""
    try:
        header_line, body = gzip.decompress(path.read_bytes()).split(b"\n", 1)
        header = json.loads(header_line)
        expected = {"format": _FORMAT, "key": key, "sha256": hashlib.sha256(body).hexdigest()}
        if header != expected:
            raise ValueError("its header does not match its content or its name")
        return _JSON.validate_json(body)
    except FileNotFoundError:
        return None
    # gzip, zlib, json and pydantic raise errors of their own; a flipped bit can cause any of them.
    except Exception as error:  # noqa: BLE001
        logger.warning("translation %s is not usable (%s); it is made again", path, error)
        return None
