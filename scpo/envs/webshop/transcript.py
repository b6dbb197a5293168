"""Transcript of an episode: everything that its prompts are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from scpo.envs.webshop.catalogue.catalogue import Product
from scpo.envs.webshop.compact_actions import compact_action
from scpo.envs.webshop.shop.pages import DONE_SCORE, DONE_TITLE, SEPARATOR, SUB_PAGES, Page
from scpo.envs.webshop.shop.shop import Actions, WebShop

# Number of words of an action that the compact history keeps; a policy may write more.
ACTION_WORDS = 16


@dataclass
class Sighting:
    """Product that was listed or opened, and its pages that were read.

    Attributes:
        product: The product; prompts may use only the parts that were shown.
        read: Kinds of its pages (``item`` or one of SUB_PAGES), in the order in which they were
            first opened.
    """

    product: Product
    read: list[str] = field(default_factory=list)

    @property
    def texts(self) -> Iterator[str]:
        """Texts of the product that were shown."""
        yield self.product.title
        if "description" in self.read:
            yield self.product.description
        if "features" in self.read:
            yield from self.product.bullets


@dataclass
class Transcript:
    """The course of one episode as text.

    Attributes:
        task: The instruction.
        observation: The current page as the policy reads it.
        actions: The available actions.
        page: The shop's current page, from which the compact prompt is made.
        history: (observation, action) of every step taken.
        compact_history: The same actions in their compact form.
        sightings: The products that were listed or opened, by ASIN, in the order of their first
            sighting.
        searched: Keywords of the searches, each once.
    """

    task: str
    observation: str
    actions: Actions
    page: Page
    history: list[tuple[str, str]] = field(default_factory=list)
    compact_history: list[str] = field(default_factory=list)
    sightings: dict[str, Sighting] = field(default_factory=dict)
    searched: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, shop: WebShop) -> Transcript:
        """The transcript of a shop that was just reset."""
        task = shop.goal.instruction.strip()
        return cls(task, page_text(shop.observation, task), shop.available_actions(), shop.page)

    @property
    def state_text(self) -> str:
        """Page, query, product and chosen options."""
        return f"{self.observation} | {self.facts}"

    @property
    def facts(self) -> str:
        """Query, product and chosen options."""
        page = self.page
        chosen = ", ".join(f"{name}: {value}" for name, value in sorted(page.options.items()))
        product = page.product.asin if page.product else ""
        return f"query: {page.keywords} | product: {product} | chosen: {chosen}"

    @property
    def commands(self) -> str:
        """Presence of the search bar, and the sorted clickables."""
        search = ["search"] if self.actions["has_search_bar"] else []
        return ", ".join([*search, *sorted(self.actions["clickables"])])

    def record(self, action: str, shop: WebShop) -> None:
        """Add a step that the shop has just taken."""
        self.history.append((self.observation, action))
        # With the clickables of the page that the action was taken on, before they are replaced:
        # they determine the positions of products.
        compacted = compact_action(action, self.actions["clickables"])
        self.compact_history.append(" ".join(compacted.split()[:ACTION_WORDS]))
        self.observation = page_text(shop.observation, self.task)
        self.actions = shop.available_actions()
        self.page = shop.page
        self._see(self.page)

    def _see(self, page: Page) -> None:
        """Remember the products that a page lists, or the page of a product that was opened."""
        if page.kind == "results":
            if page.keywords not in self.searched:
                self.searched.append(page.keywords)
            for product in page.shown:
                self.sightings.setdefault(product.asin, Sighting(product))
        elif page.product is not None and page.kind in ("item", *SUB_PAGES):
            read = self.sightings.setdefault(page.product.asin, Sighting(page.product)).read
            if page.kind not in read:
                read.append(page.kind)


def page_text(observation: str, task: str) -> str:
    """Text of a page as in verl-agent's prompts: the pieces after the instruction, quoted.

    The done page has no instruction. It is cut before its score, which would reveal the outcome.
    """
    pieces = observation.split(SEPARATOR)
    if pieces[0] == DONE_TITLE:
        # The last such piece, because an option's text, which precedes the score, may equal it.
        from_the_end = pieces[::-1].index(DONE_SCORE) + 1
        return SEPARATOR.join(pieces[:-from_the_end])
    # An instruction that contains the separator is split too, and cannot be found.
    if task not in pieces:
        return observation
    return SEPARATOR.join(f"'{piece}'" for piece in pieces[pieces.index(task) + 1 :])
