"""A game's PDDL problem translated to the planner's format, in the form that the engine's lanes load.

Fast Downward's own translator does the work. Two things are changed in its output, neither of them visible in play:

- Labels become numbers (value ``2 * variable`` is "true", ``2 * variable + 1`` is "false"); the real names are kept
  beside the task. The library parses a quarter of the text and answers with numbers.
- One *jump* operator is appended for every value of every variable. All of them require a variable that is never true,
  so none is ever applicable; but the library applies any operator it is told to, and with jumps a lane reaches any
  state in microseconds. That is what makes replay unnecessary.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scpo.envs.alfworld.names import Atom, NameTable
from scpo.errors import GameError


@dataclass(frozen=True)
class Translation:
    """A grounded task; plain strings and numbers, so that it can be kept as JSON.

    Attributes:
        packed_sas: The task for the library, with numbers for labels and the jumps appended; compressed.
        atoms: The atom of each variable; variable ``v`` is binary and starts as ``initial[v]``.
        initial: Whether each atom holds at the start.
        jumps: Operator that makes variable ``v`` true; the next one makes it false. -1 for derived variables.
        operators: Action and arguments of each operator, by the library's operator id (jumps not among them).
        parameters: (name, type) of each action's parameters.
        types: Type of each object.
        facts: All atoms of the initial state, static ones included.
        reads: Predicates that preconditions, axioms or the goal depend on.
        unreliable: Predicates that some operator changes only under a condition; the library reports such changes
            whether or not they happened.
    """

    packed_sas: bytes
    atoms: NameTable
    initial: tuple[bool, ...]
    jumps: tuple[int, ...]
    operators: NameTable
    parameters: dict[str, tuple[tuple[str, str], ...]]
    types: dict[str, str]
    facts: NameTable
    reads: frozenset[str]
    unreliable: frozenset[str]

    @property
    def sas(self) -> bytes:
        """The planner's task as the library reads it."""
        return zlib.decompress(self.packed_sas)


def translate(domain: str, problem: str) -> Translation:
    """Ground a PDDL problem.

    Raises:
        GameError: The translator refused the text, or the task has a shape the engine does not support.
    """
    import fast_downward

    # pddl2sas replaces sys.argv (its options module reads it) and leaves it replaced.
    arguments = sys.argv
    try:
        task, sas = fast_downward.pddl2sas(domain, problem)
    except (Exception, SystemExit) as error:  # the translator raises anything, exits included
        raise GameError(f"the PDDL translator refused the game: {type(error).__name__}: {error}") from error
    finally:
        sys.argv = arguments
    numbered = _Numbered(sas)
    return Translation(
        packed_sas=zlib.compress(numbered.text.encode(), level=1),
        atoms=NameTable.of(numbered.atoms),
        initial=numbered.initial,
        jumps=numbered.jumps,
        operators=NameTable.of(numbered.operators),
        # The engine keeps one parameter list per name, the last: disjunctions split an action into several.
        parameters={
            action.name: tuple((parameter.name.strip("?"), parameter.type_name) for parameter in action.parameters)
            for action in task.actions
        },
        types={entity.name: entity.type_name for entity in task.objects},
        facts=NameTable.of((f.predicate, *f.args) for f in task.init if getattr(f, "predicate", "=") != "="),
        reads=frozenset(_predicates_read(task)),
        unreliable=frozenset(
            effect.literal.predicate
            for action in task.actions
            for effect in action.effects
            if list(_predicates(effect.condition))
        ),
    )


def _predicates_read(task: Any) -> Iterator[str]:
    yield from _predicates(task.goal)
    for action in task.actions:
        yield from _predicates(action.precondition)
    for axiom in task.axioms:
        yield from _predicates(axiom.condition)


def _predicates(condition: Any) -> Iterator[str]:
    if hasattr(condition, "predicate"):
        yield condition.predicate
    for part in condition.parts:
        yield from _predicates(part)


class _Numbered:
    """One pass over the planner's text: collect the labels, number them, append the jumps."""

    def __init__(self, sas: str) -> None:
        self._lines = sas.split("\n")
        self._at = 0
        self._out: list[str] = []
        atoms, derived = self._variables()
        self.atoms = atoms
        self.initial: tuple[bool, ...] = tuple(self._state(len(atoms)))
        self.operators = self._operators(derived)
        free = iter(range(len(self.operators), len(self.operators) + 2 * len(atoms), 2))
        self.jumps: tuple[int, ...] = tuple(-1 if is_derived else next(free) for is_derived in derived)
        self._out += self._lines[self._at :]
        self.text = "\n".join(self._out)

    def _copy_until(self, line: str) -> None:
        end = self._lines.index(line, self._at) + 1
        self._out += self._lines[self._at : end]
        self._at = end

    def _variables(self) -> tuple[list[Atom], list[bool]]:
        self._copy_until("end_metric")
        count = int(self._lines[self._at])
        self._at += 1
        atoms: list[Atom] = []
        derived: list[bool] = []
        self._out.append(str(count + 1))
        for variable in range(count):
            _, name, layer, size, true, false, _ = self._lines[self._at : self._at + 7]
            if size != "2" or not true.startswith("Atom ") or false != "Negated" + true:
                raise GameError(f"the translated game has a variable that is not true or false: {true!r}, {false!r}")
            self._at += 7
            atoms.append(_atom(true))
            derived.append(int(layer) >= 0)
            self._out += _variable(name, layer, variable)
        self._out += _variable(f"var{count}", "-1", count)
        return atoms, derived

    def _state(self, count: int) -> list[bool]:
        self._copy_until("begin_state")
        values = self._lines[self._at : self._at + count]
        self._at += count
        self._out += [*values, "1"]  # the variable that is never true
        return [value == "0" for value in values]

    def _operators(self, derived: list[bool]) -> list[Atom]:
        self._copy_until("end_goal")
        count = int(self._lines[self._at])
        self._at += 1
        jumps = list(_jumps(derived))
        self._out.append(str(count + len(jumps)))
        names = []
        for number in range(count):
            self._copy_until("begin_operator")
            names.append(tuple(self._lines[self._at].split()))
            self._out.append(str(number))
            self._at += 1
            self._copy_until("end_operator")
        self._out += [line for jump in jumps for line in jump]
        return names


def _atom(label: str) -> Atom:
    predicate, arguments = label.removeprefix("Atom ").removesuffix(")").split("(", 1)
    return (predicate, *(argument for argument in arguments.split(", ") if argument))


def _variable(name: str, layer: str, number: int) -> list[str]:
    return ["begin_variable", name, layer, "2", str(2 * number), str(2 * number + 1), "end_variable"]


def _jumps(derived: list[bool]) -> Iterator[list[str]]:
    never = len(derived)
    for variable, is_derived in enumerate(derived):
        if not is_derived:
            for value in (0, 1):
                effect = f"0 {variable} -1 {value}"
                yield ["begin_operator", "jump", "1", f"{never} 0", "1", effect, "1", "end_operator"]
