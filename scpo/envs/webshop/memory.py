"""The prompt with a memory, and the actions that it lists, for policies that choose one of them (``model=choice``)."""

from __future__ import annotations

import functools

from scpo.envs.webshop.shop.pages import SEARCH
from scpo.envs.webshop.transcript import Sighting, Transcript
from scpo.envs.webshop.wish import one_line, parse_wish, searches, words_of


def memory(transcript: Transcript) -> str:
    """The wish, the page, what was typed and chosen, the products that were seen, and what can be done.

    A function of the transcript alone: of a product it tells the price and which words of the wish its title has, and
    the texts of its pages that were read; of the page of a product its options::

        wish: Find me slim fit jeans with arch support with color: navy, and price lower than 50.00 dollars
        page: item 1
        product: b0a1b2c3d4
        last: click[b0a1b2c3d4]
        step: 2
        searched slim fit jeans
        option color: navy
        option color: blue
        seen b0a1b2c3d4 | $45.6 | item | slim jeans arch support
        seen b0zzzzzzzz | $12.0 |  | fit jeans
        > click[back to search]
        > click[navy]
    """
    page, taken = transcript.page, len(transcript.history)
    lines = [
        f"wish: {one_line(transcript.task)}",
        f"page: {page.kind} {page.number}",
        f"product: {page.product.asin.lower() if page.product else ''}",
        f"last: {one_line(transcript.history[-1][1]) if taken else ''}",
        f"step: {taken}",
        *(f"searched {one_line(keywords)}" for keywords in transcript.searched),
    ]
    if page.kind == "item" and page.product is not None:
        lines += (f"chosen {one_line(name)}: {value}" for name, value in sorted(page.options.items()))
        lines += _option_lines(tuple(page.product.options.items()))
    lines += (_seen(one, transcript.task) for one in transcript.sightings.values())
    return "\n".join([*lines, *(f"> {action}" for action in choices(transcript))])


def choices(transcript: Transcript) -> list[str]:
    """What a policy may choose from: the clicks of the page and, where there is a search bar, some searches.

    The searches are made from the instruction's words (``scpo.envs.webshop.wish.searches``). ``click[search]``, which
    does nothing, is left out, and so is what no action can name: one goes on for one line.
    """
    typed = searches(transcript.task) if transcript.actions["has_search_bar"] else ()
    clicked = (name for name in transcript.actions["clickables"] if name != SEARCH and "\n" not in name)
    return [*(f"search[{query}]" for query in typed), *(f"click[{name}]" for name in clicked)]


@functools.lru_cache(maxsize=4096)
def _option_lines(options: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    return tuple(
        f"option {one_line(name)}: {value}" for name, values in options for value in values if "\n" not in value
    )


def _seen(sighting: Sighting, task: str) -> str:
    product = sighting.product
    return _seen_line(product.asin, product.price_tag, tuple(sighting.read), tuple(sighting.texts), task)


@functools.lru_cache(maxsize=65536)
def _seen_line(asin: str, price: str, read: tuple[str, ...], texts: tuple[str, ...], task: str) -> str:
    shown = frozenset[str]().union(*map(words_of, texts))
    matched = " ".join(word for word in parse_wish(task).words if word in shown)
    return f"seen {asin.lower()} | {price} | {' '.join(read)} | {matched}"
