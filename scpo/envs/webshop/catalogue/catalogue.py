"""Products and the catalogue: official item records, parsed and indexed for search.

A catalogue is read-only and shared by all environments of a process.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import CatalogueError

if TYPE_CHECKING:
    from scpo.envs.webshop.catalogue.bm25 import SearchIndex

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

# Further columns of the official release, which the engine does not read.
IGNORED = frozenset(
    str.split(
        "aplus_present availability_quantity availability_status average_rating brand brand_url "
        "fast_track_message fulfilled_by_amazon images list_price model page product_information "
        "seller_id seller_name small_description_old total_answered_questions total_reviews"
    )
)

# The original skips products with a longer id, or with the id "nan".
MAX_ASIN = 10
# What the original gives a product without a price.
UNPRICED, UNPRICED_TAG = (100.0,), "$100.0"

# What the original gives a product that the attribute file does not name.
NO_ATTRIBUTES = ("DUMMY_ATTR",)


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
        """Text that the search engine indexes."""
        options = [f"{name}: {', '.join(values)}" for name, values in self.options.items()]

        # The original indexes the first bullet only.
        parts = [self.title, self.description, self.bullets[0], ", and ".join(options)]
        return " ".join(parts).lower()


def read_products(
    records: list[Any], attributes: Mapping[str, Any], origin: str
) -> Iterator[Product]:
    """Products of an items file, in file order, without the records that the original skips."""
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
    """Refuse a record that is not one of the official format.

    Raises:
        CatalogueError: A column is missing, unknown or of another type; names it and the fix.
    """
    remedy = (
        "use the official items_shuffle*.json files (python -m scpo.envs.webshop says where "
        "they are)"
    )
    if not isinstance(record, dict):
        raise CatalogueError(
            f"{where}: a product is an object, got {type(record).__name__}; {remedy}"
        )
    missing = [name for name in REQUIRED if name not in record and name != "pricing"]
    if missing:
        raise CatalogueError(f"{where}: missing columns {missing}, got {sorted(record)}; {remedy}")
    # An unknown column suggests a file of another format.
    foreign = sorted(record.keys() - REQUIRED.keys() - IGNORED)
    if foreign:
        allowed = sorted(REQUIRED.keys() | IGNORED)
        raise CatalogueError(
            f"{where}: foreign columns {foreign}, allowed are {allowed}; {remedy}, or drop them"
        )

    for name, kinds in REQUIRED.items():
        if not isinstance(record.get(name), kinds):
            got = f"{type(record[name]).__name__} {record[name]!r:.80}"
            raise CatalogueError(f"{where}: column {name} has the wrong type, got {got}; {remedy}")


def read_product(record: Mapping[str, Any], mined: Mapping[str, Any], where: str) -> Product:
    """One product; ``mined`` is its entry in the attribute file."""
    prices, tag = _prices(record.get("pricing"), where)
    bullets = record["small_description"]
    instruction = mined.get("instruction")
    wanted = tuple(mined.get("instruction_attributes") or ())
    if instruction is not None and not wanted:
        raise CatalogueError(
            f"{where}: an instruction without instruction_attributes; remove one or add the other"
        )
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
    """One price or the ends of a range, in US dollars, and the text that pages print."""
    if not pricing:
        return UNPRICED, UNPRICED_TAG
    try:
        prices = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation:
        prices = []
    if not prices:
        raise CatalogueError(
            f"{where}: pricing is '$<price>' or '$<low> to $<high>', got {pricing!r}"
        )
    return tuple(prices[:2]), " to ".join(f"${price}" for price in prices[:2])


def _options(options: Any, where: str) -> dict[str, tuple[str, ...]]:
    """Option names and values in lower case.

    A slash in a value becomes `` | ``, since the original puts values into URLs.
    """
    lowered = {}
    try:
        for name, entries in (options or {}).items():
            if entries is not None:
                values = [entry["value"].strip().replace("/", " | ") for entry in entries]
                lowered[name.lower()] = tuple(value.lower() for value in values)
        return lowered
    except (AttributeError, KeyError, TypeError) as error:
        raise CatalogueError(
            f"{where}: customization_options maps a name to a list of objects with a text "
            f"'value', got {options!r:.200}"
        ) from error


SMALL = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
FULL = ("items_shuffle.json", "items_ins_v2.json")
HUMAN = "items_human_ins.json"

# What a search returns at most.
HITS = 50

# Searches whose results are kept.
CACHED_QUERIES = 4096


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """Instruction written by a person.

    Attributes:
        text: The instruction, without a price bound, which the goal's seed draws.
        attributes: Attributes that it asks for, as annotated.
        options: Values that it asks for; the option's name is not annotated.
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class Catalogue:
    """The products of one shop; read-only, so that all environments of a process share it.

    Args:
        products: In catalogue order, which the goals' random draws depend on.
        human: Human instructions by ASIN; None where the file was not there.
        origin: Where the products come from, for messages.
    """

    def __init__(
        self,
        products: tuple[Product, ...],
        human: Mapping[str, tuple[HumanInstruction, ...]] | None,
        origin: str,
    ) -> None:
        self.products = products
        self.human = human
        self.origin = origin
        self.by_asin = {product.asin: product for product in products}
        # Siblings of a group often type the same words.
        self._ranked = functools.lru_cache(CACHED_QUERIES)(self._rank)

    def __len__(self) -> int:
        return len(self.products)

    @functools.cached_property
    def index(self) -> SearchIndex:
        """The search index, built at the first search (0.7 s for 1,000 products)."""
        from scpo.envs.webshop.catalogue.bm25 import SearchIndex

        return SearchIndex({product.asin: product.document for product in self.products})

    def find(self, keywords: str, rng: random.Random) -> tuple[Product, ...]:
        """Products that a search for ``keywords`` shows.

        Besides Lucene's ranking the original knows four commands: ``<r>`` draws random products,
        ``<a>`` takes those with an attribute, ``<c>`` those of a category, ``<q>`` those of a
        query. A ``<c>`` without its word crashes the original and finds nothing here.
        """
        command, _, argument = keywords.partition(" ")
        if command == "<r>":
            # Not cached: each search draws anew.
            return tuple(rng.sample(self.products, min(HITS, len(self.products))))
        if command in _COMMANDS:
            return self._ranked(command, argument)
        return self._ranked("", keywords)

    def _rank(self, command: str, text: str) -> tuple[Product, ...]:
        """Products of a command, in catalogue order; without a command of a search, best first."""
        if command:
            matches = _COMMANDS[command]
            return tuple(product for product in self.products if matches(product, text))
        return tuple(self.by_asin[asin] for asin in self.index.search(text, HITS))


def _of_category(product: Product, text: str) -> bool:
    """Return True if a product is of the category; the original reads only the first word."""
    return bool(text) and product.category == text.partition(" ")[0].strip()


_COMMANDS: dict[str, Callable[[Product, str], bool]] = {
    "<a>": lambda product, text: text.strip() in product.attributes,
    "<c>": _of_category,
    "<q>": lambda product, text: product.query == text.strip(),
}


def load_catalogue(folder: str | Path) -> Catalogue:
    """Load the official files of ``folder``: the 1,000 products if present, else the full release.

    Args:
        folder: Holds ``items_shuffle_1000.json`` and ``items_ins_v2_1000.json``, or the same names
            without ``_1000``; and ``items_human_ins.json`` where human goals are wanted.

    Raises:
        CatalogueError: A file is missing, corrupt or of another format; the message names it and
            what to do.
    """
    folder = Path(folder)
    items_path, attributes_path = (folder / name for name in _release(folder))
    attributes = _objects(_read(attributes_path, dict), attributes_path)
    products = tuple(read_products(_read(items_path, list), attributes, str(items_path)))
    if not products:
        raise CatalogueError(f"{items_path} holds no product; get the official file again")
    human_path = folder / HUMAN
    human = _read_human(human_path) if human_path.exists() else None
    return Catalogue(products, human, str(items_path))


def _release(folder: Path) -> tuple[str, str]:
    """Names of the items file and the attribute file that the folder holds."""
    for release in (SMALL, FULL):
        if (folder / release[0]).exists():
            return release
    there = sorted(path.name for path in folder.iterdir())[:20] if folder.is_dir() else "no folder"
    raise CatalogueError(
        f"no WebShop catalogue in {folder}: looked for {SMALL[0]} and {FULL[0]}, found {there}; "
        "`python -m scpo.envs.webshop <folder>` says where to get the files"
    )


def _read(path: Path, kind: type) -> Any:
    """JSON content of a file, checked to be of a kind.

    Raises:
        CatalogueError: The file is missing, is not JSON, or its content is of another kind.
    """
    remedy = "`python -m scpo.envs.webshop <folder>` says where to get it"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CatalogueError(f"{path} is missing; {remedy}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} is not JSON ({error}); {remedy}") from error
    if not isinstance(content, kind):
        raise CatalogueError(
            f"{path} should hold a JSON {kind.__name__}, got {type(content).__name__}; {remedy}"
        )
    return content


def _objects(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of the attribute file; check that each of its entries is an object."""
    for asin, entry in content.items():
        if not isinstance(entry, dict):
            raise CatalogueError(
                f"{path}, {asin}: an entry is an object with 'attributes', got {entry!r:.80}"
            )
    return content


def _read_human(path: Path) -> dict[str, tuple[HumanInstruction, ...]]:
    """Human instructions by ASIN.

    Raises:
        CatalogueError: An entry lacks a part.
    """
    instructions = {}
    try:
        for asin, entries in _read(path, dict).items():
            own = []
            for entry in entries:
                attributes = tuple(entry["instruction_attributes"])
                options = tuple(entry["instruction_options"])
                own.append(HumanInstruction(entry["instruction"], attributes, options))
            instructions[asin] = tuple(own)
        return instructions
    except (KeyError, TypeError) as error:
        raise CatalogueError(
            f"{path}: an entry is a list of objects with instruction, instruction_attributes and "
            f"instruction_options; {error!r} in it; get the official file again"
        ) from error
