"""Grounding: which operators a game has, found by relaxed reachability.

An operator exists if its positive preconditions can all become true when nothing ever becomes false, and its conditions
on facts that never change hold. Atoms are taken one by one from a queue; each is matched with every precondition it can
fill, and the other preconditions are joined with the atoms taken so far, through an index by predicate and argument.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from scpo.envs.alfworld.planning.pddl import Action, Atom, Literal, Problem

Values = list[str | None]
"""Objects that stand for an action's parameters; None while open."""


@dataclass(frozen=True)
class Ground:
    """What is reachable.

    Attributes:
        instances: Actions and axioms with the objects that stand for their parameters, in the order found.
        atoms: Atoms that can change and can be true, in the order found.
    """

    instances: tuple[tuple[Action, tuple[str, ...]], ...]
    atoms: tuple[Atom, ...]


def ground(problem: Problem) -> Ground:
    """All reachable instances of a problem's actions and axioms."""
    fluent = frozenset(effect.literal.predicate for action in problem.actions for effect in action.effects)
    return _Grounder(problem, fluent).run()


@dataclass(frozen=True)
class _Plan:
    """How to complete an action once an atom fills its trigger: the other positive preconditions, in a good order."""

    action: Action
    trigger: Literal | None
    rest: tuple[Literal, ...]


class _Grounder:
    def __init__(self, problem: Problem, fluent: frozenset[str]) -> None:
        self._problem = problem
        self._fluent = fluent
        self._types = {name: problem.ancestors[kind] for name, kind in problem.objects.items()}
        self._index: defaultdict[tuple[str, int, str], list[Atom]] = defaultdict(list)
        self._queue: deque[Atom] = deque()
        self._reached: dict[Atom, None] = {}
        # The variants of an action share its name, so an instance is told by its place among the actions.
        self._instances: dict[tuple[int, tuple[str, ...]], tuple[Action, tuple[str, ...]]] = {}
        self._plans: defaultdict[str | None, list[_Plan]] = defaultdict(list)
        for action in problem.actions:
            for plan in _plans(action, fluent):
                self._plans[plan.trigger.predicate if plan.trigger else None].append(plan)

    def run(self) -> Ground:
        for atom in sorted(self._problem.facts):
            if atom[0] in self._fluent:
                self._reach(atom)
            else:
                self._take(atom)
        for plan in self._plans[None]:
            self._join(plan, 0, [None] * len(plan.action.types))
        while self._queue:
            atom = self._queue.popleft()
            self._take(atom)
            for plan in self._plans[atom[0]]:
                assert plan.trigger is not None  # noqa: S101 (plans without one stand under None)
                values = self._fill(plan.action, plan.trigger, atom, [None] * len(plan.action.types))
                if values is not None:
                    self._join(plan, 0, values)
        return Ground(tuple(self._instances.values()), tuple(self._reached))

    def _reach(self, atom: Atom) -> None:
        if atom not in self._reached:
            self._reached[atom] = None
            self._queue.append(atom)

    def _take(self, atom: Atom) -> None:
        predicate = atom[0]
        self._index[predicate, 0, ""].append(atom)
        for place in range(1, len(atom)):
            self._index[predicate, place, atom[place]].append(atom)

    def _join(self, plan: _Plan, depth: int, values: Values) -> None:
        if depth == len(plan.rest):
            self._complete(plan.action, values)
            return
        literal = plan.rest[depth]
        for atom in self._candidates(literal, values):
            extended = self._fill(plan.action, literal, atom, values)
            if extended is not None:
                self._join(plan, depth + 1, extended)

    def _candidates(self, literal: Literal, values: Values) -> Sequence[Atom]:
        """Atoms taken so far that agree with the literal in one argument, or all of its predicate."""
        best: Sequence[Atom] | None = None
        for place, term in enumerate(literal.terms, start=1):
            value = term if isinstance(term, str) else values[term]
            if value is not None:
                rows = self._index.get((literal.predicate, place, value), ())
                if best is None or len(rows) < len(best):
                    best = rows
        # The list grows while instances are found; atoms that come later bring their own triggers.
        return tuple(self._index[literal.predicate, 0, ""]) if best is None else best

    def _fill(self, action: Action, literal: Literal, atom: Atom, values: Values) -> Values | None:
        """The values extended so that the literal is this atom; None if that cannot be."""
        filled = values
        for place, term in enumerate(literal.terms, start=1):
            value = atom[place]
            known = term if isinstance(term, str) else filled[term]
            if known == value:
                continue
            if known is not None or action.types[int(term)] not in self._types[value]:
                return None
            if filled is values:
                filled = values.copy()
            filled[int(term)] = value
        return filled

    def _complete(self, action: Action, values: Values) -> None:
        """Add the instance, once for every choice of the parameters that no precondition names."""
        open_or_chosen = zip(action.types, values, strict=True)
        choices = [self._objects(kind) if value is None else (value,) for kind, value in open_or_chosen]
        for chosen in product(*choices):
            key = (id(action), chosen)
            if key not in self._instances and self._possible(action, chosen):
                self._instances[key] = (action, chosen)
                for effect in action.effects:
                    if not effect.literal.negated:
                        self._reach(effect.literal.ground(chosen))

    def _objects(self, kind: str) -> list[str]:
        return [name for name, types in self._types.items() if kind in types]

    def _possible(self, action: Action, values: tuple[str, ...]) -> bool:
        """Whether the negative conditions on facts that never change hold."""
        for literal in action.preconditions:
            settled = literal.negated and literal.predicate not in self._fluent
            if settled and literal.ground(values) in self._problem.facts:
                return False
        return True


def _plans(action: Action, fluent: frozenset[str]) -> Iterator[_Plan]:
    positive = [literal for literal in action.preconditions if not literal.negated]
    triggers = [literal for literal in positive if literal.predicate in fluent]
    for trigger in triggers:
        rest = [literal for literal in positive if literal is not trigger]
        yield _Plan(action, trigger, tuple(_in_order(rest, set(trigger.terms), fluent)))
    if not triggers:
        yield _Plan(action, None, tuple(_in_order(positive, set(), fluent)))


def _in_order(literals: list[Literal], bound: set[int | str], fluent: frozenset[str]) -> Iterator[Literal]:
    """Greedily the literal that leaves fewest parameters open; of equals, one on facts that never change."""
    left = list(literals)
    while left:
        counts = [sum(term not in bound for term in one.terms if isinstance(term, int)) for one in left]
        best = min(range(len(left)), key=lambda place: (counts[place], left[place].predicate in fluent))
        literal = left.pop(best)
        bound = bound | set(literal.terms)
        yield literal
