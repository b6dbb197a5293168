"""Rewording of WebShop's pages: labels, order of listed products, irrelevant suffix."""

from __future__ import annotations

import re

from scpo.envs.rewording import Draw
from scpo.envs.webshop.shop.pages import PAGE_SIZE, SEPARATOR

LABELS: dict[str, tuple[str, ...]] = {
    "Back to Search": (
        "Return to Search",
        "New Search",
        "Search Again",
        "Go Back to Search",
        "To the Search",
        "Search Page",
        "Start Over",
        "Home",
    ),
    "Next >": (
        "More >",
        "Next Page",
        "Following >",
        "Forward",
        ">>",
        "Show More",
        "Onwards",
        "Next",
    ),
    "< Prev": (
        "< Back",
        "Previous Page",
        "< Earlier",
        "Backward",
        "<<",
        "Go Back",
        "Return",
        "Previous",
    ),
    "Description": (
        "About",
        "Details",
        "Product Text",
        "What It Is",
        "Read More",
        "Info",
        "Summary",
        "Overview",
    ),
    "Features": (
        "Properties",
        "Highlights",
        "Key Points",
        "Specification",
        "Qualities",
        "Traits",
        "Aspects",
        "Points",
    ),
    "Reviews": (
        "Opinions",
        "Ratings",
        "Feedback",
        "Comments",
        "Customers Say",
        "Testimonials",
        "Votes",
        "Notes",
    ),
    "Buy Now": (
        "Purchase",
        "Order Now",
        "Check Out",
        "Get It",
        "Add and Pay",
        "Buy This",
        "Order",
        "Pay Now",
    ),
    "Rating: N.A.": (
        "No rating",
        "Not rated",
        "Unrated",
        "Rating missing",
        "Stars: none",
        "No stars yet",
        "Rating: -",
        "Rated by nobody",
    ),
    "Search": (
        "Find",
        "Look Up",
        "Query",
        "Seek",
        "Go",
        "Search the Shop",
        "Find Products",
        "Look For",
    ),
}
"""Paraphrases of each label of the shop."""

_RESULTS_PAGE = re.compile(r"Page (?P<page>\d+) \(Total results: (?P<total>\d+)\)")

PATTERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        _RESULTS_PAGE,
        (
            "Page {page} (Total results: {total})",
            "Results page {page}, {total} in all",
            "{total} products found, page {page}",
            "Page no. {page} of {total} results",
            "Showing page {page} ({total} hits)",
            "{total} hits: page {page}",
            "You are on page {page} of {total} products",
            "Hits: {total}. Page: {page}",
            "{page} ({total})",
        ),
    ),
    (
        re.compile(r"Price: (?P<price>.+)"),
        (
            "Price: {price}",
            "Costs {price}",
            "For {price}",
            "{price} only",
            "Pay {price}",
            "At {price}",
            "Now {price}",
            "{price} each",
            "Our price: {price}",
        ),
    ),
)
"""Patterns of labels with a value, and their forms; the first is the shop's own."""

# Amazon's id of a product, as pages quote it.
_ASIN = re.compile(r"'[A-Z0-9]{10}'")


def reworded(page: str, draw: Draw) -> str:
    """Reword the labels of a page that ``transcript.page_text`` has quoted; product texts stay."""
    pieces = _in_order(page.split(SEPARATOR), draw)
    relabelled = [_relabelled(piece, draw) for piece in pieces]
    return draw.with_suffix(SEPARATOR.join(relabelled))


def _relabelled(piece: str, draw: Draw) -> str:
    """A piece of the page, reworded if it is a label of the shop."""
    # Texts of products are quoted too; only labels are looked up below.
    quoted = len(piece) >= 2 and piece[0] == piece[-1] == "'"
    text = piece[1:-1] if quoted else piece
    if text in LABELS:
        text = draw.form((text, *LABELS[text]))
    for pattern, forms in PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            text = draw.form(forms).format(**match.groupdict())
            break
    return f"'{text}'" if quoted else text


def _in_order(pieces: list[str], draw: Draw) -> list[str]:
    """Reorder the products of a page of results if the arm ``order`` is on.

    A product consists of the pieces from its ASIN to the one before the next ASIN.
    """
    starts = [index for index, piece in enumerate(pieces) if _ASIN.fullmatch(piece)]
    is_results_page = any(_RESULTS_PAGE.fullmatch(piece.strip("'")) for piece in pieces)
    # Only pages of results list products; a title may contain something that looks like an ASIN.
    if not is_results_page or not 1 < len(starts) <= PAGE_SIZE:
        return pieces
    ends = [*starts[1:], len(pieces)]
    products = []
    for start, end in zip(starts, ends, strict=True):
        products.append(SEPARATOR.join(pieces[start:end]))

    page = pieces[: starts[0]]
    for product in draw.ordered(products):
        page += product.split(SEPARATOR)
    return page
