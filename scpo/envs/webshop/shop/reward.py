"""The reward of a purchase: how well product, options and price fit the goal.

r = r_type · (matched attributes + matched options + [price ≤ bound]) / (attributes + options + 1)
(WebShop, arXiv 2207.01206, equation 1; the details follow the published engine.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scpo.envs.webshop.catalogue.goals import Goal
from scpo.envs.webshop.catalogue.products import Product
from scpo.envs.webshop.shop.nouns import NounRule

SIMILAR = 85  # a rounded token-set ratio above it is a match
SAME_CATEGORY = 2  # shared parts of the category path
# The engine's colours, in its order: the first that is found inside an option stands for it.
COLOURS = tuple(
    str.split(
        "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
        "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
        "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green "
        "grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot "
        "midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
        "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan "
        "taupe teal tiger turquoise violet walnut wheat white wine yellow"
    )
)
_LATIN_1 = dict.fromkeys(range(128, 256))  # the fuzzy matcher of the original drops these characters


def reward(product: Product, options: Mapping[str, str], price: float, goal: Goal, nouns: NounRule) -> float:
    """Reward in [0, 1] of buying ``product`` at ``price`` with ``options`` chosen."""
    matched = matched_attributes(product, goal.attributes) + matched_options(options.values(), goal.options)
    share = (matched + (price <= goal.price_upper)) / (len(goal.attributes) + len(goal.options) + 1)
    return share * type_factor(product, goal, nouns)


def type_factor(product: Product, goal: Goal, nouns: NounRule) -> float:
    """Is it the kind of product that was asked for? By query, category path, and nouns shared by the titles."""
    wanted = nouns(goal.title)
    shared = len(set(nouns(product.title)) & set(wanted)) / len(wanted) if wanted else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    same_query = product.query == goal.query
    return 1.0 if same_query or _same_category(product, goal) or shared > 0.2 else 0.5


def _same_category(product: Product, goal: Goal) -> bool:
    ours, theirs = (
        {part.strip() for part in path.split("›")} for path in (product.product_category, goal.product_category)
    )
    return len(ours & theirs) >= SAME_CATEGORY


def matched_attributes(product: Product, wanted: Sequence[str]) -> int:
    """How many of the wanted attributes the product has, or its texts mention."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(own, attribute) for own in product.attributes) or any(attribute in text for text in texts)
        for attribute in wanted
    )


def matched_options(chosen: Iterable[str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """How many of the wanted options are among the chosen ones.

    Of a synthetic goal the original compares the *pair* (name, value), written as a Python tuple, with the chosen
    values: a colour in it counts only if it is a whole element. Kept, since rewards depend on it.
    """
    ours = [_colour_in(value) for value in chosen]
    theirs = (
        [_colour_among(pair) for pair in wanted.items()] if isinstance(wanted, Mapping) else map(_colour_in, wanted)
    )
    return sum(any(similar(own, other) for own in ours) for other in theirs)


def _colour_in(value: str) -> str:
    return next((colour for colour in COLOURS if colour in value), value)


def _colour_among(pair: tuple[str, str]) -> str:
    return next((colour for colour in COLOURS if colour in pair), str(pair))


def similar(one: str, other: str) -> bool:
    """The original's fuzzy match: a token-set ratio, rounded, above 85."""
    from rapidfuzz.fuzz import token_set_ratio
    from rapidfuzz.utils import default_process

    ratio = token_set_ratio(one.translate(_LATIN_1), other.translate(_LATIN_1), processor=default_process)
    return round(ratio) > SIMILAR
