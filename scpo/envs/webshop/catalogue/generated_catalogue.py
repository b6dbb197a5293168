"""The offline default: a catalogue made from a seed, in the official files' format and with their statistics."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

from scpo.envs.webshop.catalogue.catalogue import Catalogue
from scpo.envs.webshop.catalogue.product_templates import BRANDS, DEPARTMENTS, EXTRAS, SENTENCES, Department
from scpo.envs.webshop.catalogue.products import read_products

# Statistics of the official 1,000 products.
SHARES = {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}
NUMBER_OF_OPTIONS = {0: 523, 1: 247, 2: 214, 3: 16}
NUMBER_OF_VALUES = (2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 8)
INSTRUCTED = 0.415  # share of products that synthetic goals are made of
PRICED_AS_RANGE = 0.093
PRICES = (9.0, 200.0)
TITLE = 117  # characters

Record = dict[str, Any]


def generated_catalogue(seed: int, products: int) -> Catalogue:
    """The catalogue of ``generate(seed, products)``."""
    items, attributes = generate(seed, products)
    origin = f"the generated catalogue (seed {seed}, {products} products)"
    return Catalogue(tuple(read_products(items, attributes, origin)), None, origin)


def generate(seed: int, products: int) -> tuple[list[Record], dict[str, Record]]:
    """Contents of an items file and of its attribute file, a pure function of the arguments."""
    rng = random.Random(f"webshop {seed}")
    items: list[Record] = []
    attributes: dict[str, Record] = {}
    for category, query in _queries(rng, products):
        item, mined = _product(rng, category, query, taken=attributes.keys())
        attributes[item["asin"]] = mined
        items.append(item)
    return items, attributes


def _queries(rng: random.Random, products: int) -> list[tuple[str, str]]:
    """(category, query) of each product: every query at least once where there are enough products, then by share."""
    every = [(category, query) for category, department in DEPARTMENTS.items() for query in department.queries]
    rng.shuffle(every)
    categories = rng.choices(list(SHARES), list(SHARES.values()), k=max(products - len(every), 0))
    more = [(category, rng.choice(DEPARTMENTS[category].queries)) for category in categories]
    chosen = (every + more)[:products]
    rng.shuffle(chosen)
    return chosen


def _product(rng: random.Random, category: str, query: str, taken: Any) -> tuple[Record, Record]:
    department = DEPARTMENTS[category]
    qualities = rng.sample(department.qualities, rng.randint(1, 3))
    features = rng.sample(department.features, rng.randint(1, 3))
    title = _title(rng, query, qualities, features)
    asin = _asin(rng, taken)
    item = {
        "name": title,
        "full_description": " ".join(rng.sample(SENTENCES, 3)).format(query=query),
        "pricing": _pricing(rng),
        "images": [],
        "product_category": _category_path(department, query),
        "average_rating": "",
        "small_description": _bullets(rng, query, qualities, features),
        "customization_options": _options(rng, department) or "",
        "asin": asin,
        "category": category,
        "query": query,
        "page": rng.randint(1, 400),
    }
    mined: Record = {"attributes": [*qualities, *features]}
    if rng.random() < INSTRUCTED:
        mined |= _instruction(rng, query, qualities, features)
    return item, mined


def _title(rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]) -> str:
    """Brand, qualities, query and features, then what sellers add until the title has the usual length."""
    title = f"{rng.choice(BRANDS)} {' '.join(qualities)} {query} with {', '.join(features)}".title().replace("'S", "'s")
    for extra in rng.sample(EXTRAS, len(EXTRAS)):
        if len(title) + len(extra) / 2 > TITLE:
            break
        title += f", {extra.capitalize()}"
    return title


def _asin(rng: random.Random, taken: Any) -> str:
    while (asin := "B0" + "".join(rng.choices(string.ascii_uppercase + string.digits, k=8))) in taken:
        pass
    return asin


def _pricing(rng: random.Random) -> str:
    low, high = PRICES
    price = low * (high / low) ** rng.random()
    if rng.random() < PRICED_AS_RANGE:
        return f"${price:.2f} to ${price * rng.uniform(1.1, 1.8):.2f}"
    return f"${price:.2f}"


def _category_path(department: Department, query: str) -> str:
    thing = max((thing for thing in department.things if query.endswith(thing)), key=len)
    return f"{department.path} › {thing.split()[-1].title()} › {query.title()}"


def _bullets(rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]) -> list[str]:
    bullets = [f"{attribute.upper()}: our {query} is known for it. " for attribute in (*qualities, *features)]
    return rng.sample(bullets, len(bullets)) + [f"{extra.capitalize()}. " for extra in rng.sample(EXTRAS, 2)]


def _options(rng: random.Random, department: Department) -> dict[str, list[Record]]:
    count = rng.choices(list(NUMBER_OF_OPTIONS), list(NUMBER_OF_OPTIONS.values()))[0]
    names = rng.sample(list(department.options), count)
    return {name: [{"value": value} for value in _values(rng, department.options[name])] for name in names}


def _values(rng: random.Random, values: Sequence[str]) -> list[str]:
    """Some of the values, in the shop's order."""
    chosen = set(rng.sample(values, min(rng.choice(NUMBER_OF_VALUES), len(values))))
    return [value.title() for value in values if value in chosen]


def _instruction(rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]) -> Record:
    before = rng.sample(qualities, rng.randint(1, min(2, len(qualities))))
    behind = rng.sample(features, rng.randint(1, min(2, len(features))))
    return {
        "instruction": f"Find me {', '.join(before)} {query} with {', '.join(behind)}",
        "instruction_attributes": [*before, *behind],
    }
