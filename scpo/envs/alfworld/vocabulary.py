"""Texts that hold every word the environment can say, for building a word-level tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.grammar import read_grammar
from scpo.envs.alfworld.engine.world import NOTHING_HAPPENS
from scpo.schema import FAMILIES

_NUMBERS = 60  # no game has sixty of a kind, nor an episode that counts that far
_COMPACT_WORDS = "start nothing holding at can hot cool clean | > : ;"


def vocabulary() -> list[str]:
    """Sentences over all kinds of objects and receptacles, all text templates, all tasks, numbers, compact marks."""
    constants = assets().constants
    kinds = {kind.lower() for kind in (*constants.OBJECTS, *constants.RECEPTACLES)}
    tasks = [template for family in FAMILIES.values() for template in assets().goals.gdict[family]["templates"]]
    tasks = [template.format(obj="", recep="", toggle="", mrecep="") for template in tasks]
    numbers = " ".join(map(str, range(_NUMBERS)))
    return [*sorted(kinds), *tasks, *_grammar_texts(), numbers, NOTHING_HAPPENS, _COMPACT_WORDS]


def _grammar_texts() -> Iterator[str]:
    """What the grammar says literally; its other symbols name rules or entities."""
    grammar = read_grammar(assets().grammar)
    symbols = [rule.symbols for rules in grammar.rules.values() for rule in rules]
    symbols += [(*action.command, *action.feedback) for action in grammar.actions.values()]
    return (symbol for row in symbols for symbol in row if isinstance(symbol, str))
