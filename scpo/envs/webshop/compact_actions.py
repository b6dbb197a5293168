"""Compact forms of the shop's actions, for small policies.

``search red shoes`` is ``search[red shoes]``. ``click`` names an element by its words, or a product
of a page of results by its position: ``click 3``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"[a-z]+|\d+")


def expand(action: str, clickables: Sequence[str]) -> str:
    """Convert a compact action to the shop's form; anything else is returned unchanged."""
    name, _, rest = action.partition(" ")
    if "[" in action or name not in ("search", "click"):
        return action
    if name == "search":
        return f"search[{rest}]"
    return f"click[{_target(rest, clickables)}]"


def _target(text: str, clickables: Sequence[str]) -> str:
    """Clickable element that the text of a compact click names; the text itself if none is."""
    products = listed(clickables)
    if text.isdecimal() and 0 < int(text) <= len(products):
        return products[int(text) - 1]
    wanted = words(text)
    return next((name for name in clickables if words(name) == wanted), text)


def compact_action(action: str, clickables: Sequence[str]) -> str:
    """Compact form of a shop action; ``expand`` inverts it on the same page."""
    name, bracket, rest = action.partition("[")
    if not bracket or name not in ("search", "click"):
        return words(action)
    argument = rest.removesuffix("]")
    products = listed(clickables)
    if name == "click" and argument in products:
        return f"click {products.index(argument) + 1}"
    return f"{name} {words(argument)}".strip()


def listed(clickables: Sequence[str]) -> Sequence[str]:
    """Products among the clickable elements: on a page of results, those after "next >"."""
    # On a page of results only "back to search" and "< prev" precede it. On a product's page, where
    # more elements come first, an option could have this value.
    if "next >" not in clickables[:3]:
        return ()
    return clickables[clickables.index("next >") + 1 :]


def words(text: str) -> str:
    """Words and numbers of a text, as a small policy writes them."""
    return " ".join(_WORD.findall(text.lower()))
