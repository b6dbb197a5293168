"""Prompts: verl-agent's, a compact one for small policies, and one with a memory (choice policy).

verl-agent's two templates are protocol constants: results are only comparable if every policy reads
the same text. They are taken from https://github.com/langfengQ/verl-agent, commit 796ed31,
agent_system/environments/prompts/webshop.py (Copyright 2025 Nanyang Technological University and
the verl-agent team, Apache License 2.0), including the trailing space of one of them and the
unusual hyphen of both.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from scpo.envs.projection import CLOSE_TAG, OPEN_TAG, earlier_steps, respond
from scpo.envs.webshop.catalogue.catalogue import Product
from scpo.envs.webshop.compact_actions import compact_action, words
from scpo.envs.webshop.shop.pages import SEARCH, SUB_PAGES, Page
from scpo.envs.webshop.transcript import Sighting, Transcript
from scpo.envs.webshop.wish import FILLER, one_line, parse_wish, searches, words_of

_SHOP = "\nYou are an expert autonomous agent operating in the WebShop e\u2011commerce environment."
_INSTRUCTIONS = (
    "Your admissible actions of the current situation are: \n"
    "[\n{available}\n].\n"
    "\nNow it's your turn to take one action for the current step.\n"
    "You should first reason step-by-step about the current situation, then think carefully which "
    "admissible action "
    "best advances the shopping goal. This reasoning process MUST be enclosed within <think> "
    "</think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step "
    "and present it "
    "within <action> </action> tags.\n"
)
_FIRST = (
    _SHOP
    + " \nYour task is to: {task}.\nYour current observation is: {observation}.\n"
    + _INSTRUCTIONS
)
_LATER = (
    _SHOP + "\nYour task is to: {task}.\n"
    "Prior to this step, you have already taken {taken} step(s). Below are the most recent "
    "{shown} observations and "
    "the corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}.\n" + _INSTRUCTIONS
)


def verl_agent(transcript: Transcript, history_length: int, max_characters: int) -> str:
    """verl-agent's user message.

    Args:
        transcript: The episode so far.
        history_length: Latest steps that are shown (the paper's K); 0: the first step's template.
        max_characters: Longer messages are sent without the history
            (``env.max_prompt_characters``).
    """
    available = "\n".join(f"'{action}'," for action in admissible(transcript))
    first = _FIRST.format(
        task=transcript.task, observation=transcript.observation, available=available
    )
    if not transcript.history or history_length == 0:
        return first
    earlier = earlier_steps(transcript.history, history_length)
    later = _LATER.format(
        task=transcript.task, observation=transcript.observation, available=available, **earlier
    )
    # verl-agent also drops the history of a prompt that is too long.
    return first if len(later) > max_characters else later


def admissible(transcript: Transcript) -> list[str]:
    """The actions that the prompt offers."""
    search = ["search[<your query>]"] if transcript.actions["has_search_bar"] else []
    return search + [f"click[{name}]" for name in transcript.actions["clickables"]]


def memory(transcript: Transcript) -> str:
    """Prompt with a memory: wish, page, searches, chosen options, seen products, listed actions.

    It depends on the transcript only. A seen product is listed with its price, its pages that were
    read, and the words of the wish that its title or these pages contain. On a product's page, the
    chosen and all available options are listed::

        wish: Find me slim fit jeans with color: navy, and price lower than 50.00 dollars
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
    page = transcript.page
    taken = len(transcript.history)
    lines = [
        f"wish: {one_line(transcript.task)}",
        f"page: {page.kind} {page.number}",
        f"product: {page.product.asin.lower() if page.product else ''}",
        f"last: {one_line(transcript.history[-1][1]) if taken else ''}",
        f"step: {taken}",
        *(f"searched {one_line(keywords)}" for keywords in transcript.searched),
    ]
    # Options only where they can be clicked.
    if page.kind == "item" and page.product is not None:
        for name, value in sorted(page.options.items()):
            lines.append(f"chosen {one_line(name)}: {value}")
        lines += _option_lines(tuple(page.product.options.items()))
    lines += (_seen(sighting, transcript.task) for sighting in transcript.sightings.values())
    return "\n".join([*lines, *(f"> {action}" for action in choices(transcript))])


def choices(transcript: Transcript) -> list[str]:
    """Actions that a policy may choose from: the page's clicks and, with a search bar, searches.

    The searches are made of the instruction's words (:func:`scpo.envs.webshop.wish.searches`).
    ``click[search]`` is left out, since it does nothing, and so are elements with a line break,
    since an action is a single line.
    """
    actions = []
    if transcript.actions["has_search_bar"]:
        actions += [f"search[{query}]" for query in searches(transcript.task)]
    for name in transcript.actions["clickables"]:
        if name != SEARCH and "\n" not in name:
            actions.append(f"click[{name}]")
    return actions


@functools.lru_cache(maxsize=4096)
def _option_lines(options: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    """A line for each option value, except values with a line break, which cannot be clicked."""
    lines = []
    for name, values in options:
        for value in values:
            if "\n" not in value:
                lines.append(f"option {one_line(name)}: {value}")
    return tuple(lines)


def _seen(sighting: Sighting, task: str) -> str:
    product = sighting.product
    return _seen_line(
        product.asin, product.price_tag, tuple(sighting.read), tuple(sighting.texts), task
    )


@functools.lru_cache(maxsize=65536)
def _seen_line(
    asin: str, price: str, read: tuple[str, ...], texts: tuple[str, ...], task: str
) -> str:
    """Line of a seen product; ``read``: kinds of its pages that were read, ``texts``: its texts."""
    shown: set[str] = set()
    for text in texts:
        shown |= words_of(text)
    matched = " ".join(word for word in parse_wish(task).words if word in shown)
    return f"seen {asin.lower()} | {price} | {' '.join(read)} | {matched}"


# Number of words that the compact prompt keeps of a title, and of a description or features.
TITLE_WORDS = 10
TEXT_WORDS = 40
_CENTS = re.compile(r"\.\d+")

# Words and marks of the compact prompt that no text of the shop has.
MARKS = "results item chosen nothing none description features reviews done | > : ;"


def compact(transcript: Transcript, history_length: int) -> str:
    """Compact prompt: wish, the latest ``history_length`` actions, and the page.

    Its last word is the opening tag. Each action of the history ends with the closing tag, which is
    the small model's end-of-text token.
    """
    parts = [f"{wish(transcript.task)} |"]
    recent = transcript.compact_history[-history_length:] if history_length else []
    parts += [f"{OPEN_TAG} {action} {CLOSE_TAG}" for action in recent]
    return " ".join([*parts, f"| {_page(transcript.page)}", OPEN_TAG])


def compact_response(action: str, clickables: list[str]) -> str:
    """Response that executes ``action`` under a compact prompt."""
    return respond(compact_action(action, clickables))


def wish(task: str) -> str:
    """Content words of the instruction, numbers and option values; prices in whole dollars."""
    # Whole dollars, as in `_price`, so that the small vocabulary needs no decimals.
    text = _CENTS.sub("", task.lower().replace(", and price lower than", " | under"))
    kept = (word for word in re.findall(r"[a-z]+|\d+|[|:]", text) if word not in FILLER)
    return " ".join(kept)


def _page(page: Page) -> str:
    """The page in a compact prompt: its kind, then what can be read and clicked on it."""
    if page.kind == "results":
        return " ".join([f"results {page.number}", *_listing(page)])
    if page.product is None or page.kind == "done":
        return page.kind
    if page.kind == "reviews":
        return "reviews none"
    if page.kind in SUB_PAGES:
        description = page.kind == "description"
        text = page.product.description if description else " ".join(page.product.bullets)
        return f"{page.kind} {_first_words(text, TEXT_WORDS)}"
    chosen = " ".join(words(value) for value in page.options.values()) or "nothing"
    return f"item {_offer(page.product)} | chosen {chosen}"


def _listing(page: Page) -> Iterator[str]:
    """For each listed product, its number on the page, title and price."""
    for number, product in enumerate(page.shown, start=1):
        yield f"; {number} {_first_words(product.title, TITLE_WORDS)} : {_price(product)}"


def _offer(product: Product) -> str:
    """Title, price and options of the product whose page is open."""
    parts = [_first_words(product.title, TITLE_WORDS), ":", _price(product), "|"]
    for name, values in product.options.items():
        listed = " : ".join(words(value) for value in values)
        parts.append(f"{words(name)} > {listed} ;")
    return " ".join(parts)


def _price(product: Product) -> str:
    """Lowest price in whole dollars, as ``wish`` writes the bound."""
    return str(int(product.prices[0]))


@functools.lru_cache(maxsize=65536)
def _first_words(text: str, count: int) -> str:
    """The first ``count`` content words of a text."""
    content = [word for word in words(text).split() if word not in FILLER]
    return " ".join(content[:count])
