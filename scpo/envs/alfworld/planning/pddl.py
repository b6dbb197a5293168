"""A PDDL problem, parsed and normalised by Fast Downward, as plain rows: facts, actions, axioms, goal.

Fast Downward's grounder takes a fifth of a second per game, its parser and normaliser 6 ms. So the parsing is theirs
and the grounding (``grounding``) ours; a test proves that both ground to the same task.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from scpo.errors import GameError

Atom = tuple[str, ...]
"""A predicate or action and its arguments, in lower case as the translator writes them."""

Term = int | str
"""An argument in an action: the number of a parameter, or an object's name."""


@dataclass(frozen=True)
class Literal:
    """A predicate over parameters and objects, or its negation."""

    predicate: str
    terms: tuple[Term, ...]
    negated: bool

    def ground(self, values: Sequence[str]) -> Atom:
        """The atom when these objects stand for the parameters."""
        return (self.predicate, *[term if isinstance(term, str) else values[term] for term in self.terms])


@dataclass(frozen=True)
class Effect:
    """A literal made true where the conditions hold."""

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
    """Parse and normalise.

    Raises:
        GameError: The parser refused the text, or the problem has a feature that games do not use.
    """
    try:
        with _arguments_kept(), redirect_stdout(io.StringIO()):  # the parser prints warnings
            from fast_downward.translate import normalize
            from fast_downward.translate.pddl_parser import lisp_parser, parsing_functions

            parsed = [lisp_parser.parse_nested_list(text.split("\n")) for text in (domain, problem)]
            task = parsing_functions.parse_task(*parsed)
            normalize.normalize(task)
    except (Exception, SystemExit) as error:  # the parser raises anything, exits included
        raise GameError(f"the PDDL parser refused the game: {type(error).__name__}: {error}") from error
    return Problem(
        actions=tuple([_action(action) for action in task.actions] + [_axiom(axiom) for axiom in task.axioms]),
        facts=frozenset((fact.predicate, *fact.args) for fact in task.init if hasattr(fact, "predicate")),
        goal=tuple(_literals(task.goal, {})),
        objects={entity.name: entity.type_name for entity in task.objects},
        ancestors={kind.name: frozenset({kind.name, *kind.supertype_names}) for kind in task.types},
        parameters={
            action.name: tuple((parameter.name.strip("?"), parameter.type_name) for parameter in action.parameters)
            for action in task.actions
        },
    )


@contextmanager
def _arguments_kept() -> Iterator[None]:
    """Fast Downward's modules parse ``sys.argv`` when they are first imported."""
    arguments = sys.argv
    sys.argv = ["translate.py", "domain", "task"]
    try:
        yield
    finally:
        sys.argv = arguments


def _action(action: Any) -> Action:
    numbers = {parameter.name: number for number, parameter in enumerate(action.parameters)}
    if any(effect.parameters for effect in action.effects):
        raise GameError(f"action {action.name} has an effect for all objects of a kind, which games do not use")
    return Action(
        name=action.name,
        types=tuple(parameter.type_name for parameter in action.parameters),
        shown=action.num_external_parameters,
        preconditions=tuple(_literals(action.precondition, numbers)),
        effects=tuple(
            Effect(tuple(_literals(effect.condition, numbers)), next(_literals(effect.literal, numbers)))
            for effect in action.effects
        ),
    )


def _axiom(axiom: Any) -> Action:
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
    if hasattr(condition, "predicate"):
        terms = tuple(numbers.get(argument, argument) for argument in condition.args)
        yield Literal(condition.predicate, terms, bool(condition.negated))
    elif type(condition).__name__ in ("Conjunction", "Truth"):
        for part in condition.parts:
            yield from _literals(part, numbers)
    else:
        raise GameError(f"the game has a condition of kind {type(condition).__name__} that normalising left in place")
