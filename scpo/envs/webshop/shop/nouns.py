"""Which words of a title count as nouns when the reward compares two titles."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from scpo.errors import ConfigError

logger = logging.getLogger(__name__)

NounRule = Callable[[str], Sequence[str]]
NounRuleName = Literal["spacy", "stop_list", "all_tokens"]
SPACY_MODEL = "en_core_web_sm"
NOUN_TAGS = frozenset(("NOUN", "PROPN"))
CACHED_TITLES = 2**16

# Words of product titles that name no thing: function words, and the commonest qualities, verbs and adverbs.
STOP_LIST = frozenset(
    str.split(
        "a about above after all also an and any are as at be been before best better big both but by can cheap clean "
        "cool cute dark deep different dry each easy easily every extra fast fine for free fresh from full good great "
        "green hard has have healthy heavy high hot how if in include included includes including into is it its just "
        "keep large light like long low made make makes more most natural new nice no non not now of off old on one "
        "only or organic other our out over own perfect plus portable pretty pure quick rich safe set sexy short "
        "simple slim small smart so soft some strong such suitable super than that the their them then there these "
        "they thick thin this those three through to top two ultra under up use used using very warm was we well what "
        "when which white wide will with without women's men's you your"
    )
)


def noun_rule(rule: NounRuleName | NounRule) -> NounRule:
    """The rule of that name, with its answers cached; a callable is taken as it is.

    ``spacy`` is the original's rule and needs spaCy with ``en_core_web_sm``, which no package index carries: where it
    is not installed, ``stop_list`` stands in and the log says so. ``all_tokens`` is the rule of the golden episodes.
    """
    if callable(rule):
        return rule
    if rule not in _RULES:
        raise ConfigError(f"nouns is {', '.join(_RULES)} or a callable from a title to its nouns, got {rule!r}")
    return _named(rule)


@functools.cache
def _named(rule: str) -> NounRule:
    logger.info("WebShop nouns: rule %s", rule)
    return functools.lru_cache(CACHED_TITLES)(_RULES[rule]())


def _spacy() -> NounRule:
    try:
        import spacy

        model = spacy.load(SPACY_MODEL)
    except (ImportError, OSError) as error:
        logger.warning(
            "WebShop nouns: stop list, since spaCy's %s cannot be loaded (%s); rewards of purchases in another "
            "category may differ from the original's. `python -m spacy download %s` installs it",
            SPACY_MODEL, error, SPACY_MODEL,
        )  # fmt: skip
        return _stop_list()
    return lambda title: tuple(token.text.lower() for token in model(title) if token.pos_ in NOUN_TAGS)


def _stop_list() -> NounRule:
    return lambda title: tuple(word for word in all_tokens(title) if word.isalpha() and word not in STOP_LIST)


_RULES: dict[str, Callable[[], NounRule]] = {
    "spacy": _spacy,
    "stop_list": _stop_list,
    "all_tokens": lambda: all_tokens,
}

_UNITS = tuple(
    str.split(
        "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h mph hPa Pa "
        "mbar mb MB kb KB gb GB tb TB T G M K %"
    )
)
_MARKS = r"!?,;:\[\](){}<>_\#*&~¡¿。，、；：！·'\"”“’‘´`„‚«»「」『』（）〔〕【】《》〈〉"
_OPEN = rf"\.\.+|…|[§%=—–]|\+(?![0-9])|[{_MARKS}]|[\p{{Sc}}\p{{So}}]"
_CLOSE = (
    rf"(?:\.\.+|…|['’][sS]|[{_MARKS}—–\p{{So}}]|(?<=[0-9])(?:[+\p{{Sc}}]|"
    + "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
    + r")|(?<=[0-9a-z%²\-+'\"”’)\]])\.|(?<=[A-Z][A-Z])\.)$"
)
_INSIDE = (
    r"\.\.+|…|\p{So}|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[\p{Ll}'\"”’)\]])\.(?=[\p{Lu}'\"“‘(\[])|(?<=\p{L}),(?=\p{L})"
    r"|(?<=[\p{L}0-9])(?:--+|[-–—~])(?=\p{L})|(?<=[\p{L}0-9])[:<>=/](?=\p{L})"
)
_ABBREVIATIONS = frozenset(
    str.split(
        "adm. bros. co. corp. d.c. dr. e.g. gen. gov. i.e. inc. jr. ltd. md. messrs. mo. mont. mr. mrs. ms. p.m. "
        "ph.d. prof. rep. rev. sen. st. v.s. vs."
    )
)


@functools.cache
def _patterns() -> tuple[Any, Any, Any]:
    import regex  # type: ignore[import-untyped]

    return regex.compile(_OPEN), regex.compile(_CLOSE), regex.compile(_INSIDE)


def all_tokens(title: str) -> tuple[str, ...]:
    """Lower-case tokens of ``title`` that hold a letter or digit, cut as spaCy's blank English pipeline cuts them."""
    return tuple(
        token.lower()
        for chunk in title.split()
        for token in _tokens(chunk)
        if any(character.isalnum() for character in token)
    )


def _tokens(chunk: str) -> list[str]:
    """Strip marks from both ends of a chunk without spaces, then cut what is left at marks inside it."""
    opening, closing, inside = _patterns()
    before: list[str] = []
    after: list[str] = []
    while chunk and chunk.lower() not in _ABBREVIATIONS:
        if found := opening.match(chunk):
            before.append(found[0])
            chunk = chunk[found.end() :]
        elif found := closing.search(chunk):
            after.append(found[0])
            chunk = chunk[: found.start()]
        else:
            return [*before, *inside.split(chunk), *reversed(after)]
    return [*before, chunk, *reversed(after)]
