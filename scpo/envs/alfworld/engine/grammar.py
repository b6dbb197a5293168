"""Evaluator of TextWorld's context-sensitive text grammar, which is parsed only once.

The stock engine parses every template, condition and query anew for every admissible command of
every step, and deep copies the context of every symbol, which takes 98 % of its time. Here
TextWorld's parsers run once per distinct text and their result is kept. The texts and their order
are those of the stock engine, quirks included; the tests compare them byte for byte.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from scpo.errors import GameError

Parameter = tuple[str, str]
"""Name and type of a placeholder."""

Bindings = dict[Parameter, str]
"""Object bound to each placeholder."""

Facts = Mapping[str, Sequence[tuple[str, ...]]]
"""Arguments of each predicate's facts, sorted."""

# PDDL's root: a placeholder of this type takes any object.
ROOT_TYPE = "object"


@dataclass(frozen=True)
class Query:
    """Conjunction of predicates over placeholders.

    Attributes:
        terms: Predicate and placeholders of each conjunct.
    """

    terms: tuple[tuple[str, tuple[Parameter, ...]], ...]

    def assignments(
        self, bound: Bindings, facts: Facts, types: Mapping[str, str], depth: int = 0
    ) -> Iterator[Bindings]:
        """Extensions of ``bound`` that satisfy the terms from ``depth`` on.

        As in TextWorld, no two placeholders bind the same object.
        """
        if depth == len(self.terms):
            yield bound
            return
        predicate, parameters = self.terms[depth]
        for row in _possible(parameters, facts.get(predicate, ()), bound):
            extended = _unify(parameters, row, bound, types)
            if extended is not None:
                yield from self.assignments(extended, facts, types, depth + 1)


def _possible(
    parameters: Sequence[Parameter], rows: Sequence[Sequence[str]], bound: Bindings
) -> Sequence[Sequence[str]]:
    """Rows that agree with the first bound placeholder.

    Only these are unified: trying all rows dominates the run time.
    """
    for place, parameter in enumerate(parameters):
        entity = bound.get(parameter)
        if entity is not None:
            return [row for row in rows if row[place] == entity]
    return rows


def _unify(
    parameters: Sequence[Parameter], row: Sequence[str], bound: Bindings, types: Mapping[str, str]
) -> Bindings | None:
    """Extend bindings by the objects of a fact's row; None if the row contradicts them."""
    extended = bound
    for parameter, entity in zip(parameters, row, strict=True):
        known = extended.get(parameter)
        if known is not None:
            if known != entity:
                return None
        # As in TextWorld, an object is bound once, and types match exactly.
        elif entity in extended.values() or parameter[1] not in (types[entity], ROOT_TYPE):
            return None
        else:
            # A copy, because other rows extend the same bindings.
            extended = {**extended, parameter: entity}
    return extended


@dataclass(frozen=True)
class Nonterminal:
    """``#name#``: the first rule of that name whose condition holds."""

    name: str


@dataclass(frozen=True)
class Value:
    """``{expression | query}``: the expression, once per assignment of the query if there is one.

    Attributes:
        expression: What is written: attributes of the bound objects, or a rule.
        query: Finds the objects; None: use those that are bound already.
        listed: Written as ``[{...}]``: the values are joined with the grammar's separators.
    """

    expression: CodeType | Nonterminal
    query: Query | None
    listed: bool


Symbol = str | Nonterminal | Value
"""Literal text or a symbol that is expanded to text."""


@dataclass(frozen=True)
class Rule:
    """One production; the first whose condition holds is used.

    Attributes:
        condition: The rule applies if some assignment satisfies it; None: always. The symbols do
            not get the objects that it binds.
        symbols: What is written.
    """

    condition: Query | None
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class ActionText:
    """Template of an action's command, and the symbols of the answer to it."""

    command: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]


@dataclass(frozen=True)
class Grammar:
    """All texts of a game.

    Attributes:
        rules: Productions by name.
        actions: Texts of each action by its PDDL name.
    """

    rules: Mapping[str, tuple[Rule, ...]]
    actions: Mapping[str, ActionText]

    def predicates(self) -> set[str]:
        """Predicates that some text depends on."""
        symbols: list[Symbol] = []
        asked: list[Query] = []
        for rules in self.rules.values():
            for rule in rules:
                symbols += rule.symbols
                if rule.condition:
                    asked.append(rule.condition)
        for action in self.actions.values():
            symbols += [*action.command, *action.feedback]
        asked += queries(symbols)

        names = set()
        for query in asked:
            names |= {predicate for predicate, _ in query.terms}
        return names


def queries(symbols: Iterable[Symbol]) -> Iterator[Query]:
    """Queries of these symbols, without those of the rules that they name."""
    for symbol in symbols:
        if isinstance(symbol, Value) and symbol.query is not None:
            yield symbol.query


def read_by(symbols: Iterable[Symbol], bound: Bindings) -> set[Parameter]:
    """Bound placeholders that the text of these symbols depends on.

    All of them if the symbols name a rule, which may read any of them. All of them, too, if a query
    binds further placeholders: no two placeholders bind the same object, so every bound one
    excludes an object.
    """
    names: set[str] = set()
    for symbol in symbols:
        if isinstance(symbol, str):
            continue
        if isinstance(symbol, Nonterminal) or isinstance(symbol.expression, Nonterminal):
            return set(bound)
        asked: list[Parameter] = []
        if symbol.query:
            for _, parameters in symbol.query.terms:
                asked += parameters
        if any(parameter not in bound for parameter in asked):
            return set(bound)
        # The placeholders that the compiled expression names, and those of its query.
        names |= {*symbol.expression.co_names, *(name for name, _ in asked)}
    return {parameter for parameter in bound if parameter[0] in names}


@dataclass(frozen=True)
class Writer:
    """Writes texts about one state of a game.

    Attributes:
        grammar: The game's texts.
        entities: Objects with the attributes that expressions name (``name``, ``indefinite``).
        types: Type of each object.
        facts: Facts of the state.
    """

    grammar: Grammar
    entities: Mapping[str, Any]
    types: Mapping[str, str]
    facts: Facts

    def write(self, symbols: Iterable[Symbol], bound: Bindings) -> str:
        """The text of the symbols when these placeholders are bound."""
        return "".join([self._symbol(symbol, bound) for symbol in symbols])

    def _symbol(self, symbol: Symbol, bound: Bindings) -> str:
        if isinstance(symbol, str):
            return symbol
        if isinstance(symbol, Nonterminal):
            return self._rule(symbol.name, bound)
        # A list, because the separator before the last value differs from the others.
        texts = list(self._values(symbol, bound))
        if symbol.listed:
            return self._join(texts, bound)
        return "".join(texts)

    def _rule(self, name: str, bound: Bindings) -> str:
        """Text of the first production of this name that applies.

        Raises:
            GameError: No production applies.
        """
        for rule in self.grammar.rules.get(name, ()):
            if self._applies(rule, bound):
                return self.write(rule.symbols, bound)
        raise GameError(f"the game's grammar has no applicable rule for {name!r}")

    def _applies(self, rule: Rule, bound: Bindings) -> bool:
        if rule.condition is None:
            return True
        return any(rule.condition.assignments(bound, self.facts, self.types))

    def _values(self, value: Value, bound: Bindings) -> Iterator[str]:
        """Texts of a symbol, one for each assignment, in the order of the sorted facts."""
        contexts: Iterable[Bindings] = [bound]
        if value.query is not None:
            contexts = value.query.assignments(bound, self.facts, self.types)
        for context in contexts:
            if isinstance(value.expression, Nonterminal):
                yield self._rule(value.expression.name, context)
            else:
                names = {name: self.entities[entity] for (name, _), entity in context.items()}
                # Only attribute access on the bound entities: checked in _expression.
                yield str(eval(value.expression, {"__builtins__": {}}, names))  # noqa: S307

    def _join(self, texts: list[str], bound: Bindings) -> str:
        """A list with the grammar's separators, or its word for an empty one."""
        if not texts:
            return self._rule("list_empty", bound)
        if len(texts) == 1:
            return texts[0]
        separator = self._rule("list_separator", bound)
        last = self._rule("list_last_separator", bound)
        return separator.join(texts[:-1]) + last + texts[-1]


# The task's sentence in the grammar's JSON, with its quotes escaped.
_TASK = re.compile(r'(?<="Your task is to: )(?:[^"\\]|\\.)*(?=")')


def read_grammar(text: str) -> Grammar:
    """Parse a game's grammar.

    Games that differ only in their task share all but the task's sentence.

    Raises:
        GameError: TextWorld cannot parse it.
    """
    # Parsing is slow, and generated games differ in this sentence only.
    tasks = _TASK.findall(text)
    if len(tasks) != 1:
        return _parse(text)
    # The sentence is replaced by a constant one, so that the cached parse serves every task.
    shared = _parse(_TASK.sub("UNKNOWN GOAL.", text))
    try:
        sentence = "Your task is to: " + json.loads(f'"{tasks[0]}"')
        task = Rule(None, _task_symbols(sentence))
    except Exception as error:
        # The parser's errors have no common class.
        raise GameError(f"the game's task cannot be parsed: {tasks[0]!r}: {error}") from error
    return Grammar({**shared.rules, "task": (task,)}, shared.actions)


@functools.lru_cache(maxsize=16)
def _parse(text: str) -> Grammar:
    """Parse a whole grammar with TextWorld's parsers.

    Raises:
        GameError: TextWorld cannot parse it.
    """
    from textworld.envs.pddl.logic import model, parser

    try:
        read = parser.PddlLogicParser(semantics=model.PddlLogicModelBuilderSemantics())
        actions = {}
        rules = {}
        for part in read.parse(text, rule_name="pddlStart").parts:
            if isinstance(part, model.ActionTypeNode):
                template = part.template.template.strip('"')
                feedback = part.feedback.name.strip('"')
                actions[part.name.lower()] = ActionText(_symbols(template), _symbols(feedback))
                rules.update(_rules(part.grammar))
            else:
                rules.update(_rules(part))
    except Exception as error:
        # The parsers' errors have no common class.
        raise GameError(
            f"the game's text grammar cannot be parsed: {type(error).__name__}: {error}"
        ) from error
    return Grammar(rules, actions)


def _rules(block: Any) -> dict[str, tuple[Rule, ...]]:
    """Production rules of a grammar block in JSON, without the lines that begin with #."""
    if block is None:
        return {}
    lines = block.code.removeprefix('"""').removesuffix('"""').split("\n")
    data = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("#")))
    rules = {}
    for name, alternatives in data.items():
        rules[name] = tuple(
            Rule(_query(rule.get("condition")), _symbols(rule["rhs"])) for rule in alternatives
        )
    return rules


# Many games have the same task; its sentence is parsed once.
@functools.lru_cache(maxsize=4096)
def _task_symbols(sentence: str) -> tuple[Symbol, ...]:
    return _symbols(sentence)


def _symbols(text: str) -> tuple[Symbol, ...]:
    return tuple(map(_symbol, _symbol_parser().parse(text, rule_name="symbols")))


@functools.cache
def _symbol_parser() -> Any:
    from textworld.envs.pddl.textgen import model, parser

    return parser.CSGParser(semantics=model.CSGModelBuilderSemantics())


def _symbol(parsed: Any) -> Symbol:
    from textworld.envs.pddl.textgen import model

    if isinstance(parsed, model.TerminalSymbol):
        return str(parsed.literal).replace("\\n", "\n")
    if isinstance(parsed, model.NonterminalSymbol):
        return Nonterminal(parsed.symbol)
    listed = isinstance(parsed, model.ListSymbol)
    return _value(parsed.symbol if listed else parsed, listed=listed)


def _value(parsed: Any, *, listed: bool) -> Value:
    inner = parsed.expression
    expression: CodeType | Nonterminal
    if hasattr(inner, "statement"):
        expression = _expression(inner.statement)
    else:
        expression = Nonterminal(inner.symbol)
    return Value(expression, _query(parsed.given), listed)


@functools.cache
def _query(text: str | None) -> Query | None:
    from textworld.logic import Rule as LogicRule

    if not text:
        return None
    terms = []
    for term in LogicRule.parse_conjunctive_query(text).preconditions:
        parameters = tuple((parameter.name, parameter.type) for parameter in term.parameters)
        terms.append((term.name, parameters))
    return Query(tuple(terms))


# Nodes of an expression that only reads attributes and joins texts.
_HARMLESS = (
    ast.Expression,
    ast.Name,
    ast.Load,
    ast.Attribute,
    ast.BinOp,
    ast.Add,
    ast.BoolOp,
    ast.Or,
    ast.Constant,
)


def _expression(text: str) -> CodeType:
    """Compile an expression over entities, e.g. ``o.indefinite + ' ' + o.name``.

    A game file is downloaded data: its expressions may read attributes and join them, but not call
    anything.

    Raises:
        GameError: The expression does something else.
    """
    # A list of allowed nodes, not of forbidden ones, also refuses nodes that Python adds later.
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        # A private attribute would lead out of the object, as `__class__` does.
        private = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if private or not isinstance(node, _HARMLESS):
            raise GameError(
                "a game's text may only name and join attributes of objects, got the expression "
                f"{text!r}"
            )
    return compile(tree, "<grammar>", "eval")
