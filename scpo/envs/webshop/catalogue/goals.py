"""Goals: what a customer wants. Their order is that of the original WebShop for the same seed."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from scpo.envs.webshop.catalogue.catalogue import Catalogue, Product
from scpo.errors import CatalogueError

# Price bounds in US dollars: 10, 20, ..., 990.
BOUNDS = tuple(10.0 * step for step in range(1, 100))

# Number of bounds above the price from which two are drawn.
CANDIDATES = 4

# The original's price bound in US dollars of a goal without one.
NO_BOUND = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """An instruction, and what the reward compares a purchase with.

    Attributes:
        asin: Amazon's id of the wanted product.
        instruction: What the agent reads, price bound included.
        attributes: Properties that a purchase is compared with.
        options: Option name -> value in a synthetic goal; only the values in a human goal.
        price_upper: Highest price in US dollars; ``NO_BOUND`` if the instruction names none.
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
    """The goals of a catalogue in the order of ``seed``; a goal is built at each access.

    Random numbers are used as in the original. One generator draws the prices of all products with
    a price range, in catalogue order, and then two price bounds for each product (synthetic) or
    annotation (human), of which the larger counts. A new generator with the same seed shuffles the
    goals.

    Args:
        catalogue: The products.
        seed: Seed of prices, bounds and order.
        human: Use goals that people wrote, instead of goals made from attributes.

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

        # Arrays of numbers save memory, and a run reads only few goals.
        self._product = array("l", (source.product for source in sources))
        self._annotation = array("l", (source.annotation for source in sources))
        self._bound = array("d", (_draw_bound(prices[source.product], rng) for source in sources))
        # Number of goals of each source and all earlier ones.
        self._end = array("l", itertools.accumulate(source.goals for source in sources))
        order = list(range(self._end[-1] if self._end else 0))
        random.Random(seed).shuffle(order)
        self._order = array("l", order)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Goal]:
        # Sequence's own __iter__ ends at an IndexError, but __getitem__ raises CatalogueError.
        return (self[index] for index in range(len(self)))

    # Slices and negative indices are not supported.
    def __getitem__(self, index: int) -> Goal:  # type: ignore[override]
        source, position = self._source(index)
        product = self._products[self._product[source]]
        bound = self._bound[source]
        options: Mapping[str, str] | tuple[str, ...]
        if self.human:
            human = self._human_instructions[product.asin][self._annotation[source]]
            # Without the final period, because the price bound is appended.
            text = human.text.strip(".")
            attributes = human.attributes
            options = human.options
        else:
            # A product has a goal for each combination of its options; before the shuffle, these
            # goals follow one another.
            first = self._end[source - 1] if source else 0
            options = _combination(product, position - first)
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
        """The product of goal ``index``, without building the goal."""
        source, _ = self._source(index)
        return self._products[self._product[source]]

    def _source(self, index: int) -> tuple[int, int]:
        """Number of the goal's source, and the goal's position before the shuffle."""
        if not 0 <= index < len(self):
            raise CatalogueError(
                f"goal {index} is out of range: {self._origin} has {len(self)} "
                f"{'human' if self.human else 'synthetic'} goals, 0 to {len(self) - 1}"
            )
        position = self._order[index]
        # The goal belongs to the first source whose running total exceeds the position.
        return bisect.bisect_right(self._end, position), position

    def price(self, product: Product) -> float:
        """Price of ``product`` under this seed, drawn from its range."""
        return self._drawn.get(product.asin, product.prices[0])


class _Source(NamedTuple):
    """A product or annotation that goals are made of.

    Attributes:
        product: Index of the product in the catalogue.
        annotation: Index among the product's human instructions; 0 for synthetic goals.
        goals: Number of goals; for synthetic ones, the number of combinations of options.
    """

    product: int
    annotation: int
    goals: int


_ORDERS: WeakKeyDictionary[Catalogue, dict[tuple[int, bool], GoalOrder]] = WeakKeyDictionary()


def goal_order(catalogue: Catalogue, seed: int, human: bool) -> GoalOrder:
    """Goals in the order of ``seed``; calls with the same arguments share one object."""
    orders = _ORDERS.setdefault(catalogue, {})
    if (seed, human) not in orders:
        orders[seed, human] = GoalOrder(catalogue, seed, human=human)
    return orders[seed, human]


def _synthetic_sources(catalogue: Catalogue) -> Iterator[_Source]:
    """A source for each product with an instruction."""
    for index, product in enumerate(catalogue.products):
        if product.instruction is not None:
            combinations = math.prod(len(values) for values in product.options.values())
            yield _Source(index, 0, combinations)


def _human_sources(catalogue: Catalogue) -> Iterator[_Source]:
    """A source for each human instruction with an attribute."""
    if catalogue.human is None:
        raise CatalogueError(
            f"human goals need items_human_ins.json next to {catalogue.origin}; it does not exist"
        )
    for index, product in enumerate(catalogue.products):
        for annotation, human in enumerate(catalogue.human.get(product.asin, ())):
            if human.attributes:
                yield _Source(index, annotation, 1)


def _draw_bound(price: float, rng: random.Random) -> float:
    """Price bound: the larger of two that are drawn from the next ``CANDIDATES`` above ``price``.

    ``NO_BOUND`` if there are fewer than two bounds above the price.
    """
    above = bisect.bisect_right(BOUNDS, price)
    candidates = BOUNDS[above : above + CANDIDATES]
    # From 980 dollars on there are fewer than two.
    if len(candidates) >= 2:
        return max(rng.sample(candidates, 2))
    return NO_BOUND


def _combination(product: Product, number: int) -> dict[str, str]:
    """Combination ``number`` of the option values; names are sorted, the last varies fastest."""
    chosen: list[tuple[str, str]] = []
    # Digits of ``number``, the lowest (the last name's) first.
    for name in sorted(product.options, reverse=True):
        values = product.options[name]
        number, digit = divmod(number, len(values))
        chosen.append((name, values[digit]))
    return dict(reversed(chosen))
