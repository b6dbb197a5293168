"""What an episode has seen of the products so far, and what was typed: a memory made of the pages that were shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from scpo.envs.webshop.catalogue.products import Product
from scpo.envs.webshop.shop.pages import SUB_PAGES, Page


@dataclass
class Sighting:
    """A product that was listed, and which of its pages were read: its own (``item``), ``description``, ``features``.

    Attributes:
        product: Only what was shown of it may be told.
        read: Those pages, in the order in which they were opened first.
    """

    product: Product
    read: list[str] = field(default_factory=list)

    @property
    def texts(self) -> Iterator[str]:
        """What was shown of it in words."""
        yield self.product.title
        if "description" in self.read:
            yield self.product.description
        if "features" in self.read:
            yield from self.product.bullets


class Sightings:
    """The products that were listed, in the order of their first sighting, and the searches, in theirs."""

    def __init__(self) -> None:
        self._products: dict[str, Sighting] = {}
        self.searched: list[str] = []

    def __iter__(self) -> Iterator[Sighting]:
        return iter(self._products.values())

    def record(self, page: Page) -> None:
        """Take in a page that was shown."""
        if page.kind == "results":
            if page.keywords not in self.searched:
                self.searched.append(page.keywords)
            for product in page.shown:
                self._products.setdefault(product.asin, Sighting(product))
        elif page.product is not None and page.kind in ("item", *SUB_PAGES):
            read = self._products.setdefault(page.product.asin, Sighting(page.product)).read
            if page.kind not in read:
                read.append(page.kind)
