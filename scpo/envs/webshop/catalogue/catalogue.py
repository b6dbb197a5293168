"""The products of one shop with their search index, shared read-only by all environments of a process."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.envs.webshop.catalogue.products import Product, read_products
from scpo.errors import CatalogueError

if TYPE_CHECKING:
    from scpo.envs.webshop.catalogue.bm25 import SearchIndex

SMALL = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
FULL = ("items_shuffle.json", "items_ins_v2.json")
HUMAN = "items_human_ins.json"
HITS = 50  # what a search returns at most
CACHED_QUERIES = 4096


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """What a person wrote for a product, with the attributes and options that were asked for."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class Catalogue:
    """The products of one shop. Everything in it is shared: make one for a process.

    Args:
        products: In catalogue order, which ties of the goals' random draws depend on.
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
        self._ranked = functools.lru_cache(CACHED_QUERIES)(self._rank)

    def __len__(self) -> int:
        return len(self.products)

    @functools.cached_property
    def index(self) -> SearchIndex:
        """The search index, built at the first search (0.7 s for 1,000 products)."""
        from scpo.envs.webshop.catalogue.bm25 import SearchIndex

        return SearchIndex({product.asin: product.document for product in self.products})

    def find(self, keywords: str, rng: random.Random) -> tuple[Product, ...]:
        """What a search for ``keywords`` shows.

        Besides Lucene's ranking the original knows four commands: ``<r>`` draws random products, ``<a>`` takes those
        with an attribute, ``<c>`` those of a category, ``<q>`` those of a query. A ``<c>`` without its word crashes the
        original and finds nothing here.
        """
        command, _, argument = keywords.partition(" ")
        if command == "<r>":
            return tuple(rng.sample(self.products, min(HITS, len(self.products))))
        return self._ranked(command if command in _COMMANDS else "", argument if command in _COMMANDS else keywords)

    def _rank(self, command: str, text: str) -> tuple[Product, ...]:
        if command:
            return tuple(product for product in self.products if _COMMANDS[command](product, text))
        return tuple(self.by_asin[asin] for asin in self.index.search(text, HITS))


def _of_category(product: Product, text: str) -> bool:
    """The original reads one word of the category, none of which is empty."""
    return bool(text) and product.category == text.partition(" ")[0].strip()


_COMMANDS: dict[str, Callable[[Product, str], bool]] = {
    "<a>": lambda product, text: text.strip() in product.attributes,
    "<c>": _of_category,
    "<q>": lambda product, text: product.query == text.strip(),
}


def load_catalogue(folder: str | Path) -> Catalogue:
    """Read the official files of ``folder``: the 1,000 products if they are there, else the full release.

    Args:
        folder: Holds ``items_shuffle_1000.json`` and ``items_ins_v2_1000.json``, or the same names without ``_1000``;
            and ``items_human_ins.json`` where human goals are wanted.

    Raises:
        CatalogueError: A file is missing, corrupt or of another format; the message says which and what to do.
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
    for release in (SMALL, FULL):
        if (folder / release[0]).exists():
            return release
    there = sorted(path.name for path in folder.iterdir())[:20] if folder.is_dir() else "no folder"
    raise CatalogueError(
        f"no WebShop catalogue in {folder}: looked for {SMALL[0]} and {FULL[0]}, found {there}; "
        "`python -m scpo.envs.webshop <folder>` says where to get the files"
    )


def _read(path: Path, kind: type) -> Any:
    remedy = "`python -m scpo.envs.webshop <folder>` says where to get it"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CatalogueError(f"{path} is missing; {remedy}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} is not JSON ({error}); {remedy}") from error
    if not isinstance(content, kind):
        raise CatalogueError(f"{path} should hold a JSON {kind.__name__}, got {type(content).__name__}; {remedy}")
    return content


def _objects(content: dict[str, Any], path: Path) -> dict[str, Any]:
    for asin, entry in content.items():
        if not isinstance(entry, dict):
            raise CatalogueError(f"{path}, {asin}: an entry is an object with 'attributes', got {entry!r:.80}")
    return content


def _read_human(path: Path) -> dict[str, tuple[HumanInstruction, ...]]:
    try:
        return {
            asin: tuple(
                HumanInstruction(
                    entry["instruction"], tuple(entry["instruction_attributes"]), tuple(entry["instruction_options"])
                )
                for entry in entries
            )
            for asin, entries in _read(path, dict).items()
        }
    except (KeyError, TypeError) as error:
        raise CatalogueError(
            f"{path}: an entry is a list of objects with instruction, instruction_attributes and instruction_options; "
            f"{error!r} in it; get the official file again"
        ) from error
