"""From a policy's response to an action, exactly as verl-agent does it (commit 796ed31, webshop/projection.py).

Validity is about the format alone: a click on what is not on the page is valid and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPEN_TAG = "<action>"
CLOSE_TAG = "</action>"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_TAIL = 20
_WORD = re.compile(r"[a-z]+|\d+")


def project(response: str, *, require_think: bool) -> tuple[str, bool]:
    """The action that is sent to the shop, and whether the response had the required format.

    Without both action tags the last 20 characters are sent. Without the thinking tags (as they are written, not in
    upper case), or with a Chinese character, the action is sent but the response is invalid.
    """
    lowered = response.lower()
    start, end = lowered.find(OPEN_TAG), lowered.find(CLOSE_TAG)
    if start == -1 or end == -1:
        return lowered[-_TAIL:], False
    action = lowered[start + len(OPEN_TAG) : end].strip()
    thought = not require_think or ("<think>" in response and "</think>" in response)
    return action, thought and _CHINESE.search(response) is None


def project_compact(response: str, clickables: Sequence[str]) -> tuple[str, bool]:
    """The same for the compact prompt, which ends with the opening tag; no thinking, and no brackets needed.

    ``search red shoes`` becomes ``search[red shoes]``. ``click`` names what is clickable by its words, or a product
    of a page of results by its place: ``click 3``. An action with brackets is taken as it is.
    """
    if CLOSE_TAG not in response.lower():
        return response.lower()[-_TAIL:], False
    action, valid = project(response if OPEN_TAG in response.lower() else OPEN_TAG + response, require_think=False)
    return expand(action, clickables), valid


def expand(action: str, clickables: Sequence[str]) -> str:
    """The shop's form of a compact action; what is none stays as it is."""
    name, _, rest = action.partition(" ")
    if "[" in action or name not in ("search", "click"):
        return action
    return f"search[{rest}]" if name == "search" else f"click[{_target(rest, clickables)}]"


def _target(text: str, clickables: Sequence[str]) -> str:
    products = listed(clickables)
    if text.isdecimal() and 0 < int(text) <= len(products):
        return products[int(text) - 1]
    wanted = words(text)
    return next((name for name in clickables if words(name) == wanted), text)


def compact_action(action: str, clickables: Sequence[str]) -> str:
    """The compact form of an action of the shop; ``expand`` turns it back on the same page."""
    name, bracket, rest = action.partition("[")
    if not bracket or name not in ("search", "click"):
        return words(action)
    argument = rest.removesuffix("]")
    products = listed(clickables)
    if name == "click" and argument in products:
        return f"click {products.index(argument) + 1}"
    return f"{name} {words(argument)}".strip()


def listed(clickables: Sequence[str]) -> Sequence[str]:
    """The products among what is clickable: on a page of results they stand behind "next >"."""
    return clickables[clickables.index("next >") + 1 :] if "next >" in clickables[:3] else ()


def words(text: str) -> str:
    """The words and numbers of a text, as a small policy writes them."""
    return " ".join(_WORD.findall(text.lower()))
