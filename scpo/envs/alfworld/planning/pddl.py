"""PDDL problems, parsed and normalised by Fast Downward and grounded here.

Fast Downward's own grounder takes 0.2 s per game, its parser and normaliser 6 ms. So only the
grounding is reimplemented; a test checks that both ground to the same task.

The grounding is relaxed reachability: an operator exists if its positive preconditions can all
become true when nothing ever becomes false, and its conditions on static facts hold. Atoms are
taken from a queue. Each is matched with every precondition that it unifies with, and the remaining
preconditions are joined with the atoms processed so far, through an index by predicate and
argument.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import product
from typing import Any

from scpo.errors import GameError

Atom = tuple[str, ...]
"""A predicate or action and its arguments, in lower case as the translator writes them."""

Term = int | str
"""An argument in an action: the number of a parameter, or an object's name."""


@dataclass(frozen=True)
class Literal:
    """A predicate over parameters and objects, or its negation.

    Attributes:
        predicate: Its name.
        terms: Its arguments.
        negated: It is the negation.
    """

    predicate: str
    terms: tuple[Term, ...]
    negated: bool

    def ground(self, values: Sequence[str]) -> Atom:
        """Substitute objects for the parameters."""
        return (
            self.predicate,
            *[term if isinstance(term, str) else values[term] for term in self.terms],
        )


@dataclass(frozen=True)
class Effect:
    """A literal made true where the conditions hold.

    Attributes:
        conditions: All must hold before the action; empty: it always happens.
        literal: What becomes true; a negated one: what becomes false.
    """

    conditions: tuple[Literal, ...]
    literal: Literal


@dataclass(frozen=True)
class Action:
    """An action, or an axiom if it is ``derived`` (then its one effect is the derived atom).

    Attributes:
        name: Its name; the variants that a disjunction splits an action into share it.
        types: Type of each parameter.
        shown: How many of the parameters the operator's name shows.
        preconditions: All must hold.
        effects: What happens.
        derived: Its effect is not an event but holds whenever the preconditions do.
    """

    name: str
    types: tuple[str, ...]
    shown: int
    preconditions: tuple[Literal, ...]
    effects: tuple[Effect, ...]
    derived: bool = False


@dataclass(frozen=True)
class Problem:
    """A normalised problem.

    Attributes:
        actions: Actions and axioms.
        facts: Atoms of the initial state, equality included.
        goal: Literals without parameters.
        objects: Type of each object.
        ancestors: All types that an object of a type also has.
        parameters: (name, type) of the parameters by action name; of several variants, the last.
    """

    actions: tuple[Action, ...]
    facts: frozenset[Atom]
    goal: tuple[Literal, ...]
    objects: dict[str, str]
    ancestors: dict[str, frozenset[str]]
    parameters: dict[str, tuple[tuple[str, str], ...]]


def read_problem(domain: str, problem: str) -> Problem:
    """Parse and normalise a problem.

    Raises:
        GameError: The parser refused the text, or the problem has a feature that games do not use.
    """
    try:
        # The parser prints warnings.
        with _arguments_kept(), redirect_stdout(io.StringIO()):
            from fast_downward.translate import normalize
            from fast_downward.translate.pddl_parser import lisp_parser, parsing_functions

            parsed = [lisp_parser.parse_nested_list(text.split("\n")) for text in (domain, problem)]
            task = parsing_functions.parse_task(*parsed)
            normalize.normalize(task)
    except (Exception, SystemExit) as error:
        # The parser raises errors of any class, SystemExit included.
        raise GameError(
            f"the PDDL parser refused the game: {type(error).__name__}: {error}"
        ) from error

    return Problem(
        actions=tuple(
            [_action(action) for action in task.actions] + [_axiom(axiom) for axiom in task.axioms]
        ),
        # The initial values of numeric functions have no predicate; lengths of plans ignore them.
        facts=frozenset(
            (fact.predicate, *fact.args) for fact in task.init if hasattr(fact, "predicate")
        ),
        goal=tuple(_literals(task.goal, {})),
        objects={entity.name: entity.type_name for entity in task.objects},
        ancestors={kind.name: frozenset({kind.name, *kind.supertype_names}) for kind in task.types},
        parameters={
            action.name: tuple(
                (parameter.name.strip("?"), parameter.type_name) for parameter in action.parameters
            )
            for action in task.actions
        },
    )


@contextmanager
def _arguments_kept() -> Iterator[None]:
    """Replace ``sys.argv`` while Fast Downward's modules are imported.

    They parse it at their first import and end the process if the arguments are not theirs.
    """
    arguments = sys.argv
    sys.argv = ["translate.py", "domain", "task"]
    try:
        yield
    finally:
        sys.argv = arguments


def _action(action: Any) -> Action:
    """Convert the translator's action; parameters become their numbers.

    Raises:
        GameError: The action has an effect that quantifies over objects.
    """
    numbers = {parameter.name: number for number, parameter in enumerate(action.parameters)}
    if any(effect.parameters for effect in action.effects):
        raise GameError(
            f"action {action.name} has an effect for all objects of a kind, which games do not use"
        )

    return Action(
        name=action.name,
        types=tuple(parameter.type_name for parameter in action.parameters),
        # Normalising turns existential conditions into further parameters, which come last and are
        # no part of the operator's name.
        shown=action.num_external_parameters,
        preconditions=tuple(_literals(action.precondition, numbers)),
        effects=tuple(
            Effect(
                tuple(_literals(effect.condition, numbers)),
                next(_literals(effect.literal, numbers)),
            )
            for effect in action.effects
        ),
    )


def _axiom(axiom: Any) -> Action:
    """Convert the translator's axiom; its head is the one effect."""
    numbers = {parameter.name: number for number, parameter in enumerate(axiom.parameters)}
    head = Literal(axiom.name, tuple(range(axiom.num_external_parameters)), negated=False)
    return Action(
        name=axiom.name,
        types=tuple(parameter.type_name for parameter in axiom.parameters),
        shown=axiom.num_external_parameters,
        preconditions=tuple(_literals(axiom.condition, numbers)),
        effects=(Effect((), head),),
        derived=True,
    )


def _literals(condition: Any, numbers: dict[str, int]) -> Iterator[Literal]:
    """Literals of a conjunction.

    Normalising has split disjunctions into variants of the action and removed quantifiers, so the
    conditions of a game are conjunctions.

    Raises:
        GameError: The condition is of another kind.
    """
    if hasattr(condition, "predicate"):
        terms = tuple(numbers.get(argument, argument) for argument in condition.args)
        yield Literal(condition.predicate, terms, bool(condition.negated))
    elif type(condition).__name__ in ("Conjunction", "Truth"):
        for part in condition.parts:
            yield from _literals(part, numbers)
    else:
        raise GameError(
            f"the game has a condition of kind {type(condition).__name__} that normalising left "
            "in place"
        )


Values = list[str | None]
"""Objects of an action's parameters; None while unbound."""


@dataclass(frozen=True)
class Ground:
    """Reachable part of a problem.

    Attributes:
        instances: Actions and axioms with the objects of their parameters, in the order found.
        atoms: Atoms that can change and can be true, in the order found.
    """

    instances: tuple[tuple[Action, tuple[str, ...]], ...]
    atoms: tuple[Atom, ...]


def ground(problem: Problem) -> Ground:
    """Ground a problem: all reachable instances of its actions and axioms."""
    fluent = frozenset(
        effect.literal.predicate for action in problem.actions for effect in action.effects
    )
    return _Grounder(problem, fluent).run()


@dataclass(frozen=True)
class _Plan:
    """How instances of an action are found: one precondition is matched first, then the others.

    Attributes:
        action: The action.
        trigger: Precondition that a newly reached atom is matched with; None: no precondition can
            change, so nothing triggers it.
        rest: The other positive preconditions, in the order in which they are joined.
    """

    action: Action
    trigger: Literal | None
    rest: tuple[Literal, ...]


class _Grounder:
    """One grounding; see the module's docstring for the procedure.

    Args:
        problem: A normalised problem.
        fluent: Predicates that some effect sets; all others are static.
    """

    def __init__(self, problem: Problem, fluent: frozenset[str]) -> None:
        self._problem = problem
        self._fluent = fluent
        self._types = {name: problem.ancestors[kind] for name, kind in problem.objects.items()}
        self._index: defaultdict[tuple[str, int, str], list[Atom]] = defaultdict(list)
        self._queue: deque[Atom] = deque()
        self._reached: dict[Atom, None] = {}
        # Keyed by ``id(action)``, because the variants of an action share its name.
        self._instances: dict[tuple[int, tuple[str, ...]], tuple[Action, tuple[str, ...]]] = {}
        self._plans: defaultdict[str | None, list[_Plan]] = defaultdict(list)
        for action in problem.actions:
            for plan in _plans(action, fluent):
                self._plans[plan.trigger.predicate if plan.trigger else None].append(plan)

    def run(self) -> Ground:
        """Process atoms until no new one is reached."""
        # Sorted, so that the order of operators does not depend on hashes.
        for atom in sorted(self._problem.facts):
            # Static atoms never trigger an action, they only complete one.
            if atom[0] in self._fluent:
                self._reach(atom)
            else:
                self._take(atom)

        # Actions without a fluent precondition can be applied from the start.
        for plan in self._plans[None]:
            self._join(plan, 0, [None] * len(plan.action.types))
        while self._queue:
            atom = self._queue.popleft()
            self._take(atom)
            for plan in self._plans[atom[0]]:
                assert plan.trigger is not None  # noqa: S101 (plans without one are under None)
                values = self._fill(
                    plan.action, plan.trigger, atom, [None] * len(plan.action.types)
                )
                if values is not None:
                    self._join(plan, 0, values)
        return Ground(tuple(self._instances.values()), tuple(self._reached))

    def _reach(self, atom: Atom) -> None:
        """Note that an atom can become true; it is processed later."""
        if atom not in self._reached:
            self._reached[atom] = None
            self._queue.append(atom)

    def _take(self, atom: Atom) -> None:
        """Put an atom into the index: from now on it completes instances."""
        predicate = atom[0]
        self._index[predicate, 0, ""].append(atom)
        for place in range(1, len(atom)):
            self._index[predicate, place, atom[place]].append(atom)

    def _join(self, plan: _Plan, depth: int, values: Values) -> None:
        """Match the preconditions from ``depth`` on with indexed atoms, in all ways."""
        if depth == len(plan.rest):
            self._complete(plan.action, values)
            return
        literal = plan.rest[depth]
        for atom in self._candidates(literal, values):
            extended = self._fill(plan.action, literal, atom, values)
            if extended is not None:
                self._join(plan, depth + 1, extended)

    def _candidates(self, literal: Literal, values: Values) -> Sequence[Atom]:
        """Processed atoms that agree with the literal in one argument, or all of its predicate."""
        # The shortest list of the index means the least work for the join.
        shortest: Sequence[Atom] = self._index.get((literal.predicate, 0, ""), ())
        for place, term in enumerate(literal.terms, start=1):
            value = term if isinstance(term, str) else values[term]
            if value is not None:
                atoms = self._index.get((literal.predicate, place, value), ())
                if len(atoms) < len(shortest):
                    shortest = atoms
        return shortest

    def _fill(self, action: Action, literal: Literal, atom: Atom, values: Values) -> Values | None:
        """Extend the values so that the literal becomes this atom; None if that is impossible."""
        filled = values
        for place, term in enumerate(literal.terms, start=1):
            value = atom[place]
            known = term if isinstance(term, str) else filled[term]
            if known == value:
                continue
            # Another object is required or bound already.
            if known is not None:
                return None
            # So the term is an unbound parameter; `int` for mypy.
            if action.types[int(term)] not in self._types[value]:
                return None
            # Copied on the first assignment: most atoms do not match.
            if filled is values:
                filled = values.copy()
            filled[int(term)] = value
        return filled

    def _complete(self, action: Action, values: Values) -> None:
        """Add the instance, once for every choice of the parameters that no precondition names."""
        choices = []
        for kind, value in zip(action.types, values, strict=True):
            choices.append(self._objects(kind) if value is None else [value])
        for chosen in product(*choices):
            key = (id(action), chosen)
            if key not in self._instances and self._possible(action, chosen):
                self._instances[key] = (action, chosen)
                for effect in action.effects:
                    if not effect.literal.negated:
                        self._reach(effect.literal.ground(chosen))

    def _objects(self, kind: str) -> list[str]:
        """All objects of a type or of its subtypes."""
        return [name for name, types in self._types.items() if kind in types]

    def _possible(self, action: Action, values: tuple[str, ...]) -> bool:
        """Return True if the negative conditions on static facts hold."""
        for literal in action.preconditions:
            settled = literal.negated and literal.predicate not in self._fluent
            if settled and literal.ground(values) in self._problem.facts:
                return False
        return True


def _plans(action: Action, fluent: frozenset[str]) -> Iterator[_Plan]:
    """Plans of an action: one for each precondition that can become true.

    Negated preconditions are left out: in the relaxation nothing becomes false, and those on static
    facts are checked when an instance is complete.
    """
    positive = [literal for literal in action.preconditions if not literal.negated]
    triggers = [literal for literal in positive if literal.predicate in fluent]
    # Whichever precondition becomes true last triggers the action, so each gets a plan.
    for trigger in triggers:
        rest = [literal for literal in positive if literal is not trigger]
        yield _Plan(action, trigger, tuple(_in_order(rest, set(trigger.terms), fluent)))
    if not triggers:
        yield _Plan(action, None, tuple(_in_order(positive, set(), fluent)))


def _in_order(
    literals: list[Literal], bound: set[int | str], fluent: frozenset[str]
) -> Iterator[Literal]:
    """Order literals for the join: next is always one with the fewest unbound parameters.

    Ties prefer static facts, then the earlier literal. ``bound``: the parameters that are bound
    before the first of them; it may also hold names of objects.
    """
    left = list(literals)
    while left:
        costs = []
        for literal in left:
            parameters = [term for term in literal.terms if isinstance(term, int)]
            unbound = sum(parameter not in bound for parameter in parameters)
            costs.append((unbound, literal.predicate in fluent))
        literal = left.pop(costs.index(min(costs)))
        bound = bound | set(literal.terms)
        yield literal
