"""One product as the shop shows it, read from a record of the official items file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from scpo.errors import CatalogueError

REQUIRED: dict[str, type | tuple[type, ...]] = {
    "asin": str,
    "name": str,
    "full_description": str,
    "small_description": (list, str),
    "pricing": (str, type(None)),
    "customization_options": (dict, str, type(None)),
    "product_category": str,
    "category": str,
    "query": str,
}
# What the official release holds besides, and the engine does not read.
IGNORED = frozenset(
    str.split(
        "aplus_present availability_quantity availability_status average_rating brand brand_url fast_track_message "
        "fulfilled_by_amazon images list_price model page product_information seller_id seller_name "
        "small_description_old total_answered_questions total_reviews"
    )
)
MAX_ASIN = 10  # the original skips longer ones, and "nan"
UNPRICED, UNPRICED_TAG = (100.0,), "$100.0"
NO_ATTRIBUTES = ("DUMMY_ATTR",)  # what the original gives a product that the attribute file does not name


@dataclass(frozen=True, slots=True)
class Product:
    """A product with the fields that pages, search and reward read.

    Attributes:
        prices: One price, or the two ends of a range.
        price_tag: What the pages print.
        options: Lower-case option name to its lower-case values, in the order of the file.
        attributes: Mined attributes, what a goal's attributes are compared with.
        instruction: Synthetic instruction, None where no synthetic goal is made of the product.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    query: str
    category: str
    product_category: str
    attributes: tuple[str, ...]
    instruction: str | None
    instruction_attributes: tuple[str, ...]

    @property
    def document(self) -> str:
        """What the search engine indexes."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, self.bullets[0], options]).lower()


def read_products(records: list[Any], attributes: Mapping[str, Any], origin: str) -> Iterator[Product]:
    """Products of an items file, in file order; records that the original skips are skipped."""
    seen: set[str] = set()
    for index, record in enumerate(records):
        where = f"{origin}, record {index}"
        check_columns(record, where)
        asin = record["asin"]
        if asin == "nan" or len(asin) > MAX_ASIN or asin in seen:
            continue
        seen.add(asin)
        yield read_product(record, attributes.get(asin, {}), f"{where} ({asin})")


def check_columns(record: Any, where: str) -> None:
    """Refuse a record that is not one of the official format."""
    remedy = "use the official items_shuffle*.json files (python -m scpo.envs.webshop says where they are)"
    if not isinstance(record, dict):
        raise CatalogueError(f"{where}: a product is an object, got {type(record).__name__}; {remedy}")
    if missing := [name for name in REQUIRED if name not in record and name != "pricing"]:
        raise CatalogueError(f"{where}: missing columns {missing}, got {sorted(record)}; {remedy}")
    if foreign := sorted(record.keys() - REQUIRED.keys() - IGNORED):
        allowed = sorted(REQUIRED.keys() | IGNORED)
        raise CatalogueError(f"{where}: foreign columns {foreign}, allowed are {allowed}; {remedy}, or drop them")
    for name, kinds in REQUIRED.items():
        if not isinstance(record.get(name), kinds):
            got = f"{type(record[name]).__name__} {record[name]!r:.80}"
            raise CatalogueError(f"{where}: column {name} has the wrong type, got {got}; {remedy}")


def read_product(record: Mapping[str, Any], mined: Mapping[str, Any], where: str) -> Product:
    """One product; ``mined`` is its entry in the attribute file."""
    prices, tag = _prices(record.get("pricing"), where)
    bullets = record["small_description"]
    instruction, wanted = mined.get("instruction"), tuple(mined.get("instruction_attributes") or ())
    if instruction is not None and not wanted:
        raise CatalogueError(f"{where}: an instruction without instruction_attributes; remove one or add the other")
    return Product(
        asin=record["asin"],
        title=record["name"],
        description=record["full_description"],
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        prices=prices,
        price_tag=tag,
        options=_options(record["customization_options"], where),
        query=record["query"].lower().strip(),
        category=record["category"],
        product_category=record["product_category"],
        attributes=tuple(mined["attributes"]) if "attributes" in mined else NO_ATTRIBUTES,
        instruction=instruction,
        instruction_attributes=wanted,
    )


def _prices(pricing: str | None, where: str) -> tuple[tuple[float, ...], str]:
    if not pricing:
        return UNPRICED, UNPRICED_TAG
    try:
        prices = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation:
        prices = []
    if not prices:
        raise CatalogueError(f"{where}: pricing is '$<price>' or '$<low> to $<high>', got {pricing!r}")
    return tuple(prices[:2]), " to ".join(f"${price}" for price in prices[:2])


def _options(options: Any, where: str) -> dict[str, tuple[str, ...]]:
    """Names and values in lower case; a slash in a value becomes `` | ``, since the original puts values into URLs."""
    try:
        return {
            name.lower(): tuple(entry["value"].strip().replace("/", " | ").lower() for entry in entries)
            for name, entries in (options or {}).items()
            if entries is not None
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise CatalogueError(
            f"{where}: customization_options maps a name to a list of objects with a text 'value', got {options!r:.200}"
        ) from error
