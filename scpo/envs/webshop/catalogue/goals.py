"""Goals: what a customer wants, in the original's order for a catalogue and a seed."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from weakref import WeakKeyDictionary

from scpo.envs.webshop.catalogue.catalogue import Catalogue, Product
from scpo.errors import CatalogueError

# Price bounds in US dollars: 10, 20, ..., 990.
BOUNDS = tuple(10.0 * step for step in range(1, 100))

# Bounds above the price that are drawn from.
CANDIDATES = 4

# The original's price bound of a goal that names none.
NO_BOUND = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A wish and what the reward compares a purchase with.

    Attributes:
        asin: Amazon's id of the wanted product.
        instruction: What the agent reads, price bound included.
        attributes: Properties that a purchase is compared with.
        options: Names -> values in a synthetic goal; a human goal holds bare values.
        price_upper: Highest price in US dollars; ``NO_BOUND`` where none is named.
        title: The product's title, whose nouns the reward compares.
        query: The catalogue's query under which the product was found.
        category: The product's category (beauty, fashion, ...), the family of the task.
        product_category: Path of its categories.
    """

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    price_upper: float
    title: str
    query: str
    category: str
    product_category: str

    @property
    def content(self) -> str:
        """Canonical text of everything in the goal, to be hashed."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)


class GoalOrder(Sequence[Goal]):
    """The goals of a catalogue in the order of ``seed``; a goal is built when it is asked for.

    The original draws prices of products with a price range in catalogue order, then two price
    bounds for each product (synthetic) or annotation (human), all from one generator, and shuffles
    with a fresh one of the same seed.

    Args:
        catalogue: The products.
        seed: Of prices, bounds and order.
        human: Goals that people wrote instead of those made from attributes.

    Raises:
        CatalogueError: ``human`` is True, but the catalogue has no human goals.
    """

    def __init__(self, catalogue: Catalogue, seed: int, *, human: bool) -> None:
        self.seed = seed
        self.human = human
        self._products = catalogue.products
        self._origin = catalogue.origin
        self._human_instructions = catalogue.human or {}
        rng = random.Random(seed)

        # The order of the draws is the original's: all prices first, then all bounds.
        prices = array("d")
        self._drawn: dict[str, float] = {}
        for product in catalogue.products:
            price = product.prices[0]
            if len(product.prices) > 1:
                price = self._drawn[product.asin] = rng.uniform(*product.prices)
            prices.append(price)

        sources = list(_human_sources(catalogue) if human else _synthetic_sources(catalogue))

        # Arrays of numbers instead of goals: a run reads few of them.
        self._product = array("l", (product for product, _, _ in sources))
        self._annotation = array("l", (annotation for _, annotation, _ in sources))
        self._bound = array("d", (_draw_bound(prices[product], rng) for product, _, _ in sources))
        self._end = array("l", itertools.accumulate(count for _, _, count in sources))
        # The original shuffles with a fresh generator of the same seed.
        order = list(range(self._end[-1] if self._end else 0))
        random.Random(seed).shuffle(order)
        self._order = array("l", order)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Goal]:
        return (self[index] for index in range(len(self)))

    # Slices are not supported: goals are made lazily.
    def __getitem__(self, index: int) -> Goal:  # type: ignore[override]
        source, position = self._source(index)
        product = self._products[self._product[source]]
        bound = self._bound[source]
        options: Mapping[str, str] | tuple[str, ...]
        if self.human:
            human = self._human_instructions[product.asin][self._annotation[source]]
            # The price bound follows the sentence.
            text = human.text.strip(".")
            attributes = human.attributes
            options = human.options
        else:
            # Goals of a product are its combinations of options, in their order before the shuffle.
            options = _combination(product, position - (self._end[source - 1] if source else 0))
            wish = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = f"{product.instruction} with {wish}" if wish else str(product.instruction)
            attributes = product.instruction_attributes
        limit = "" if bound == NO_BOUND else f", and price lower than {bound:.2f} dollars"
        return Goal(
            asin=product.asin,
            instruction=text + limit,
            attributes=attributes,
            options=options,
            price_upper=bound,
            title=product.title,
            query=product.query,
            category=product.category,
            product_category=product.product_category,
        )

    def product(self, index: int) -> Product:
        """The product of goal ``index``, without making the goal."""
        return self._products[self._product[self._source(index)[0]]]

    def _source(self, index: int) -> tuple[int, int]:
        """Source of goal ``index``, and its place in it before the shuffle."""
        if not 0 <= index < len(self):
            raise CatalogueError(
                f"goal {index} is out of range: {self._origin} has {len(self)} "
                f"{'human' if self.human else 'synthetic'} goals, 0 to {len(self) - 1}"
            )
        position = self._order[index]
        # _end holds running totals: the first one above the position belongs to its source.
        return bisect.bisect_right(self._end, position), position

    def price(self, product: Product) -> float:
        """Price of ``product`` under this seed, drawn from its range."""
        return self._drawn.get(product.asin, product.prices[0])


_ORDERS: WeakKeyDictionary[Catalogue, dict[tuple[int, bool], GoalOrder]] = WeakKeyDictionary()


def goal_order(catalogue: Catalogue, seed: int, human: bool) -> GoalOrder:
    """Goals in the order of ``seed``, made once for a catalogue and shared by all that ask."""
    orders = _ORDERS.setdefault(catalogue, {})
    if (seed, human) not in orders:
        orders[seed, human] = GoalOrder(catalogue, seed, human=human)
    return orders[seed, human]


def _synthetic_sources(catalogue: Catalogue) -> Iterator[tuple[int, int, int]]:
    """(product, 0, number of option combinations) of each product with an instruction."""
    for index, product in enumerate(catalogue.products):
        if product.instruction is not None:
            yield index, 0, math.prod(len(values) for values in product.options.values())


def _human_sources(catalogue: Catalogue) -> Iterator[tuple[int, int, int]]:
    """(product, annotation, 1) of each human instruction that names an attribute."""
    if catalogue.human is None:
        raise CatalogueError(
            f"human goals need items_human_ins.json next to {catalogue.origin}; it does not exist"
        )
    for index, product in enumerate(catalogue.products):
        for annotation, human in enumerate(catalogue.human.get(product.asin, ())):
            if human.attributes:
                yield index, annotation, 1


def _draw_bound(price: float, rng: random.Random) -> float:
    """Price bound: the larger of two of the next round prices above ``price``.

    None if fewer than two are left.
    """
    above = bisect.bisect_right(BOUNDS, price)
    candidates = BOUNDS[above : above + CANDIDATES]
    # From 980 dollars on, fewer than two round prices are left.
    if len(candidates) >= 2:
        return max(rng.sample(candidates, 2))
    return NO_BOUND


def _combination(product: Product, number: int) -> dict[str, str]:
    """Combination ``number`` of the option values; names are sorted, the last varies fastest."""
    chosen: list[tuple[str, str]] = []
    # Reversed, so that the last name takes the remainder and varies fastest.
    for name in sorted(product.options, reverse=True):
        number, place = divmod(number, len(product.options[name]))
        chosen.append((name, product.options[name][place]))
    return dict(reversed(chosen))
