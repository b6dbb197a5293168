"""Pages of the shop: their text, their clickable elements, and where a click leads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from scpo.envs.webshop.catalogue.catalogue import Product

SEPARATOR = " [SEP] "
PAGE_SIZE = 10
SEARCH, BACK, PREVIOUS, NEXT, BUY = "search", "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
DONE_TITLE = "Thank you for shopping with us!"

# The done page shows the score from here on.
DONE_SCORE = "Reward"
_ASCII_SPACES = " \n\t\f\r"

Kind = Literal["search", "results", "item", "description", "features", "reviews", "done"]
Find = Callable[[str], tuple[Product, ...]]


@dataclass(frozen=True, slots=True)
class Page:
    """Page that the customer is on.

    It keeps what going back needs: keywords, page number, product, options.

    Attributes:
        kind: What is shown.
        keywords: Keywords of the search that led here.
        number: Number of the page of results, from 1.
        hits: All results of the search, at most 50.
        product: The product whose page or sub-page it is.
        options: Chosen values by the option's name.
    """

    kind: Kind
    keywords: str = ""
    number: int = 1
    hits: tuple[Product, ...] = ()
    product: Product | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> tuple[Product, ...]:
        """The products that this page of results lists."""
        return self.hits[max(self.number - 1, 0) * PAGE_SIZE : self.number * PAGE_SIZE]


START = Page("search")


def clickables(page: Page) -> list[str]:
    """Clickable elements, in the order of the original's page source."""
    if page.kind == "search":
        return [SEARCH]
    if page.kind == "done":
        return []
    if page.kind == "results":
        asins = [product.asin.lower() for product in page.shown]
        previous = [PREVIOUS] if page.number > 1 else []
        return list(dict.fromkeys([BACK, *previous, NEXT, *asins]))
    if page.kind in SUB_PAGES or page.product is None:
        return [BACK, PREVIOUS]
    values = (value for values in page.product.options.values() for value in values)
    # An option value may occur under two names, but a click can only name it once.
    return list(dict.fromkeys([BACK, PREVIOUS, *SUB_PAGES, BUY, *values]))


def search(keywords: str, find: Find, number: int = 1) -> Page:
    """A page of the results for ``keywords``, without a product or chosen options."""
    return Page("results", keywords, number, find(keywords))


def click(page: Page, target: str, find: Find) -> Page:
    """Page after a click on ``target``, which must be clickable.

    ``buy now`` leads to the done page.
    """
    if target == BUY:
        return replace(page, kind="done")
    if target == BACK:
        return START
    if page.kind == "results":
        return _click_on_results(page, target, find)
    # A sub-page has no other link than "< prev".
    if page.kind in SUB_PAGES:
        return replace(page, kind="item")
    return _click_on_item(page, target, find)


def _click_on_item(page: Page, target: str, find: Find) -> Page:
    """Page after a click on a product's page; going back to the results forgets the options."""
    if target == PREVIOUS:
        return search(page.keywords, find, page.number)
    if target in SUB_PAGES:
        return replace(page, kind=cast("Kind", target))
    return replace(page, options={**page.options, _option_of(page, target): target})


def _click_on_results(page: Page, target: str, find: Find) -> Page:
    """Page after a click on a page of results.

    Turning a page searches anew, so a random search (``<r>``) shows other products on each page.
    """
    if target == NEXT:
        return search(page.keywords, find, page.number + 1)
    if target == PREVIOUS:
        return search(page.keywords, find, page.number - 1)
    product = next(product for product in page.shown if product.asin.lower() == target)
    return replace(page, kind="item", product=product, options={})


def _option_of(page: Page, value: str) -> str:
    """The option that has ``value``; if several have it, the last one on the page."""
    for name, values in reversed(list(_product(page).options.items())):
        if value in values:
            return name
    raise KeyError(value)


def observation(page: Page, instruction: str, score: float) -> str:
    """Visible text of the page, piece by piece; only the done page shows ``score``."""
    if page.kind == "done":
        return _done(page, score)
    wish = ["Instruction:", *_pieces(instruction)]
    if page.kind == "search":
        return SEPARATOR.join(["WebShop", *wish, "Search"])
    return SEPARATOR.join([*wish, "Back to Search", *_BODIES[page.kind](page)])


def _results(page: Page) -> list[str]:
    """Pieces of a page of results; "Next >" is shown after the last page too."""
    texts = [f"Page {page.number} (Total results: {len(page.hits)})"]
    if page.number > 1:
        texts.append("< Prev")
    texts.append("Next >")
    for product in page.shown:
        texts += [product.asin, *_pieces(product.title), product.price_tag]
    return texts


def _item(page: Page) -> list[str]:
    """Pieces of a product's page; chosen options leave no mark on it."""
    product = _product(page)
    texts = ["< Prev"]
    for name, values in product.options.items():
        texts += _pieces(name)
        for value in values:
            texts += _pieces(value)
    buttons = ["Description", "Features", "Reviews", "Buy Now"]
    return [
        *texts,
        *_pieces(product.title),
        f"Price: {product.price_tag}",
        "Rating: N.A.",
        *buttons,
    ]


def _features(page: Page) -> list[str]:
    """Pieces of the page of features."""
    # The page puts a space before each bullet, so that even an empty bullet is a piece.
    texts = ["< Prev"]
    for bullet in _product(page).bullets:
        texts += _pieces(f" {bullet}")
    return texts


_BODIES: dict[Kind, Callable[[Page], list[str]]] = {
    "results": _results,
    "item": _item,
    "description": lambda page: ["< Prev", *_pieces(_product(page).description)],
    "features": _features,
    # No review was ever published with the catalogue.
    "reviews": lambda page: ["< Prev"],
}


def _done(page: Page, score: float) -> str:
    """Text of the done page: as in the original, a survey without answers, purchase and score."""
    options = json.dumps(dict(page.options), sort_keys=True)
    # The original writes JSON that is safe inside HTML.
    for character, escape in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("'", "\\u0027"),
    ):
        options = options.replace(character, escape)

    # The original prints fields without an answer as Python's None.
    none = "None"
    purchased = [f"asin{SEPARATOR}{_product(page).asin}", f"options{SEPARATOR}{options}"]
    empty_fields = ("attrs", "category", "query", "product category")
    unfilled = [f"{label}{SEPARATOR}{none}" for label in empty_fields]
    target = [
        "asin",
        "options",
        "attrs",
        "price upper",
        "instuction text",
        "category",
        "product category",
        "query",
    ]
    head = [DONE_TITLE, "Your code:", none, "(Paste it in your MTurk interface.)"]
    score_part = [DONE_SCORE, "Your score (min 0.0, max 1.0)", str(score), "Reward Details", none]
    return SEPARATOR.join(
        [*head, "Purchased", *purchased, *unfilled, "Target", *target, "Goal", none, *score_part],
    )


def _product(page: Page) -> Product:
    """The product of a page whose kind has one."""
    assert page.product is not None, f"a page of kind {page.kind} has a product"  # noqa: S101
    return page.product


def _pieces(text: str) -> list[str]:
    """Pieces that the original's HTML parser makes of a text: at most one.

    White space with a line break makes no piece, other white space an empty one.
    """
    if text.strip(_ASCII_SPACES):
        return [text.strip()]
    return [""] if text and "\n" not in text else []
