"""The compact prompt of small policies: some 150 words instead of thousands of characters.

The wish, what was done last, and the page: of results the place, the first words of the title and the price of each
product; of a product its options, title and price. Actions need no brackets, see ``scpo.envs.webshop.compact_actions``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from scpo.envs.projection import CLOSE_TAG, OPEN_TAG, respond
from scpo.envs.webshop.catalogue.products import Product
from scpo.envs.webshop.compact_actions import compact_action, words
from scpo.envs.webshop.shop.pages import SUB_PAGES, Page
from scpo.envs.webshop.transcript import Transcript
from scpo.envs.webshop.wish import FILLER

TITLE_WORDS = 10
TEXT_WORDS = 40
_CENTS = re.compile(r"\.\d+")
MARKS = "results item chosen nothing none description features reviews done | > : ;"


def compact(transcript: Transcript, history_length: int) -> str:
    """The text that a small policy reads; its last word is the opening tag.

    Each action of the history ends with the closing tag, which is the small model's end-of-text token.
    """
    parts = [f"{wish(transcript.task)} |"]
    recent = transcript.compact_history[-history_length:] if history_length else []
    parts += [f"{OPEN_TAG} {action} {CLOSE_TAG}" for action in recent]
    return " ".join([*parts, f"| {_page(transcript.page)}", OPEN_TAG])


def compact_response(action: str, clickables: list[str]) -> str:
    """The response to a compact prompt that does ``action``."""
    return respond(compact_action(action, clickables))


def wish(task: str) -> str:
    """The words of the instruction that say something; prices in whole dollars."""
    text = _CENTS.sub("", task.lower().replace(", and price lower than", " | under"))
    kept = (word for word in re.findall(r"[a-z]+|\d+|[|:]", text) if word not in FILLER)
    return " ".join(kept)


def _page(page: Page) -> str:
    if page.kind == "results":
        return " ".join([f"results {page.number}", *_listing(page)])
    if page.product is None or page.kind == "done":
        return page.kind
    if page.kind in SUB_PAGES:
        text = page.product.description if page.kind == "description" else " ".join(page.product.bullets)
        return f"{page.kind} {_first_words(text, TEXT_WORDS) if page.kind != 'reviews' else 'none'}"
    chosen = " ".join(words(value) for value in page.options.values()) or "nothing"
    return f"item {_offer(page.product)} | chosen {chosen}"


def _listing(page: Page) -> Iterator[str]:
    for place, product in enumerate(page.shown, start=1):
        yield f"; {place} {_first_words(product.title, TITLE_WORDS)} : {_price(product)}"


def _offer(product: Product) -> str:
    options = (f"{words(name)} > {' : '.join(map(words, values))} ;" for name, values in product.options.items())
    return " ".join([_first_words(product.title, TITLE_WORDS), ":", _price(product), "|", *options])


def _price(product: Product) -> str:
    return str(int(product.prices[0]))


@functools.lru_cache(2**16)
def _first_words(text: str, count: int) -> str:
    found = (word for word in words(text).split() if word not in FILLER)
    return " ".join([word for word, _ in zip(found, range(count), strict=False)])
