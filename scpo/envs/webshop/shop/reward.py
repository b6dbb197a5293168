"""Reward of a purchase: how well product, options and price fit the goal.

r = r_type · (matched attributes + matched options + [price ≤ bound]) / (attributes + options + 1)
(WebShop, arXiv 2207.01206, equation 1; details follow the published engine.)

r_type compares the nouns of two titles; :func:`noun_rule` selects how nouns are found.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from scpo.envs.webshop.catalogue.catalogue import Product
from scpo.envs.webshop.catalogue.goals import Goal
from scpo.errors import ConfigError

logger = logging.getLogger(__name__)

NounRule = Callable[[str], Sequence[str]]
NounRuleName = Literal["spacy", "stop_list", "all_tokens"]
SPACY_MODEL = "en_core_web_sm"

# Universal part-of-speech tags that the original counts as nouns.
NOUN_TAGS = frozenset(("NOUN", "PROPN"))

# Titles whose nouns are kept: a goal's title is compared with that of every purchase.
CACHED_TITLES = 2**16

# Words of product titles that do not name a thing: function words, and the most common qualities,
# verbs and adverbs.
STOP_LIST = frozenset(
    str.split(
        "a about above after all also an and any are as at be been before best better big both but "
        "by can cheap clean cool cute dark deep different dry each easy easily every extra fast "
        "fine for free fresh from full good great green hard has have healthy heavy high hot how "
        "if in include included includes including into is it its just keep large light like long "
        "low made make makes more most natural new nice no non not now of off old on one only or "
        "organic other our out over own perfect plus portable pretty pure quick rich safe set sexy "
        "short simple slim small smart so soft some strong such suitable super than that the their "
        "them then there these they thick thin this those three through to top two ultra under up "
        "use used using very warm was we well what when which white wide will with without women's "
        "men's you your"
    )
)


def noun_rule(rule: NounRuleName | NounRule) -> NounRule:
    """Noun rule of this name, with its results cached; a callable is returned as it is.

    ``spacy`` is the original's rule and needs spaCy with ``en_core_web_sm``, which no package index
    carries: where it is not installed, ``stop_list`` replaces it and the log reports that.
    ``all_tokens`` is the rule of the golden episodes.
    """
    if callable(rule):
        return rule
    if rule not in _RULES:
        raise ConfigError(
            f"nouns is {', '.join(_RULES)} or a callable from a title to its nouns, got {rule!r}"
        )
    return _named(rule)


@functools.cache
def _named(rule: str) -> NounRule:
    """The rule of this name, made once in a process, with its results cached."""
    function = _RULES[rule]()
    if function is None:
        rule, function = "stop_list", _stop_list()
    # After the fallback, so that the log names the rule that is used.
    logger.info("WebShop nouns: rule %s", rule)
    return functools.lru_cache(CACHED_TITLES)(function)


def _spacy() -> NounRule | None:
    """The original's rule; None, with a warning, where spaCy's model is missing."""
    try:
        import spacy

        model = spacy.load(SPACY_MODEL)
    except (ImportError, OSError) as error:
        logger.warning(
            "WebShop nouns: stop list, since spaCy's %s cannot be loaded (%s); rewards of "
            "purchases in another category may differ from the original's. `python -m spacy "
            "download %s` installs it",
            SPACY_MODEL, error, SPACY_MODEL,
        )  # fmt: skip
        return None

    return lambda title: tuple(
        token.text.lower() for token in model(title) if token.pos_ in NOUN_TAGS
    )


def _stop_list() -> NounRule:
    """Alphabetic tokens that are not on ``STOP_LIST``."""
    return lambda title: tuple(
        word for word in all_tokens(title) if word.isalpha() and word not in STOP_LIST
    )


_RULES: dict[str, Callable[[], NounRule | None]] = {
    "spacy": _spacy,
    "stop_list": _stop_list,
    "all_tokens": lambda: all_tokens,
}

# The next patterns are the rules of spaCy's English tokenizer (prefixes, suffixes, infixes and
# exceptions) that product titles need. They let the golden episodes be compared without spaCy.
_UNITS = tuple(
    str.split(
        "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz "
        "m/s km/h mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %"
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
    r"\.\.+|…|\p{So}|(?<=[0-9])[+\-*^](?=[0-9-])"
    r"|(?<=[\p{Ll}'\"”’)\]])\.(?=[\p{Lu}'\"“‘(\[])|(?<=\p{L}),(?=\p{L})"
    r"|(?<=[\p{L}0-9])(?:--+|[-–—~])(?=\p{L})|(?<=[\p{L}0-9])[:<>=/](?=\p{L})"
)
_ABBREVIATIONS = frozenset(
    str.split(
        "adm. bros. co. corp. d.c. dr. e.g. gen. gov. i.e. inc. jr. ltd. md. messrs. mo. mont. mr. "
        "mrs. ms. p.m. ph.d. prof. rep. rev. sen. st. v.s. vs."
    )
)


@functools.cache
def _patterns() -> tuple[Any, Any, Any]:
    import regex  # type: ignore[import-untyped]

    return regex.compile(_OPEN), regex.compile(_CLOSE), regex.compile(_INSIDE)


def all_tokens(title: str) -> tuple[str, ...]:
    """Lower-case tokens of ``title`` with a letter or digit, as spaCy's blank English pipeline."""
    kept = []
    for chunk in title.split():
        for token in _tokens(chunk):
            if any(character.isalnum() for character in token):
                kept.append(token.lower())
    return tuple(kept)


def _tokens(chunk: str) -> list[str]:
    """Tokens of a chunk without spaces: marks stripped at both ends, then cut at inner marks."""
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


# A token-set ratio, rounded, above this is a match.
SIMILAR = 85

# Two products with this many common parts of their category paths are of the same category.
SAME_CATEGORY = 2

# The engine's colours, in its order: an option is replaced by the first colour found in it.
COLOURS = tuple(
    str.split(
        "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze "
        "brown burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas "
        "coffee cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso "
        "fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki "
        "lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
        "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
        "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone "
        "stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow"
    )
)

# The fuzzy matcher of the original drops these characters.
_LATIN_1 = dict.fromkeys(range(128, 256))


def reward(
    product: Product, options: Mapping[str, str], price: float, goal: Goal, nouns: NounRule
) -> float:
    """Reward in [0, 1] of buying ``product`` at ``price`` with ``options`` chosen."""
    matched = matched_attributes(product, goal.attributes)
    matched += matched_options(options.values(), goal.options)
    # The price is one more wish.
    matched += price <= goal.price_upper
    share = matched / (len(goal.attributes) + len(goal.options) + 1)
    return share * type_factor(product, goal, nouns)


def type_factor(product: Product, goal: Goal, nouns: NounRule) -> float:
    """Factor for the kind of product: query, category path, nouns shared by the titles.

    0, 0.1, 0.5 or 1. As in the original the number of shared nouns is divided by the length of the
    goal's list, in which a noun may occur twice: a title need not share all nouns with itself.
    """
    wanted = nouns(goal.title)
    shared = len(set(nouns(product.title)) & set(wanted)) / len(wanted) if wanted else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    same_query = product.query == goal.query
    if same_query or _same_category(product, goal) or shared > 0.2:
        return 1.0
    return 0.5


def _same_category(product: Product, goal: Goal) -> bool:
    shared = _category_parts(product.product_category) & _category_parts(goal.product_category)
    return len(shared) >= SAME_CATEGORY


def _category_parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}


def matched_attributes(product: Product, wanted: Sequence[str]) -> int:
    """Number of wanted attributes that the product has or its texts mention."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    matched = 0
    for attribute in wanted:
        has_it = any(similar(own, attribute) for own in product.attributes)
        matched += has_it or any(attribute in text for text in texts)
    return matched


def matched_options(chosen: Iterable[str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """Number of wanted options among the chosen ones.

    For a synthetic goal the original compares the *pair* (name, value), written as a Python tuple,
    with the chosen values: a colour in it counts only as a whole element. This is kept, since
    rewards depend on it.
    """
    chosen_values = [_colour_in(value) for value in chosen]
    if isinstance(wanted, Mapping):
        wanted_values = [_colour_among(pair) for pair in wanted.items()]
    else:
        wanted_values = [_colour_in(value) for value in wanted]
    matched = 0
    for wanted_value in wanted_values:
        matched += any(similar(value, wanted_value) for value in chosen_values)
    return matched


def _colour_in(value: str) -> str:
    """The first colour named in a value; the value itself if it names no colour."""
    return next((colour for colour in COLOURS if colour in value), value)


def _colour_among(pair: tuple[str, str]) -> str:
    """A colour that is the whole name or value of a pair; otherwise the pair as Python prints it.

    ``in`` on a tuple compares elements, where ``_colour_in`` looks for a part of a text.
    """
    return next((colour for colour in COLOURS if colour in pair), str(pair))


def similar(text: str, other: str) -> bool:
    """The original's fuzzy match: a rounded token-set ratio above ``SIMILAR``."""
    from rapidfuzz.fuzz import token_set_ratio
    from rapidfuzz.utils import default_process

    ratio = token_set_ratio(
        text.translate(_LATIN_1), other.translate(_LATIN_1), processor=default_process
    )
    return round(ratio) > SIMILAR
