"""From a policy's response to an action, exactly as verl-agent's projections do it (commit 796ed31).

Validity is about the format alone. Whether the environment admits the action is never asked: ALFWorld answers "fly"
with "Nothing happens.", and a click on what is not on a page of WebShop changes nothing.
"""

from __future__ import annotations

import re

OPEN_TAG = "<action>"
CLOSE_TAG = "</action>"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def respond(action: str) -> str:
    """The response to a compact prompt, or to one with a memory, that does ``action``."""
    return f"{action} {CLOSE_TAG}"


def project(response: str, *, require_think: bool, tail: int) -> tuple[str, bool]:
    """The action that is executed, and whether the response had the required format.

    Without both action tags the last ``tail`` characters are sent. Without the thinking tags (as they are written, not
    in upper case), or with a Chinese character, the action is sent but the response is invalid.
    """
    lowered = response.lower()
    start, end = lowered.find(OPEN_TAG), lowered.find(CLOSE_TAG)
    if start == -1 or end == -1:
        return lowered[-tail:], False
    action = lowered[start + len(OPEN_TAG) : end].strip()
    thought = not require_think or ("<think>" in response and "</think>" in response)
    return action, thought and _CHINESE.search(response) is None


def project_for(prompt: str, response: str, *, tail: int) -> tuple[str, bool]:
    """As verl-agent does for its prompt; for a compact one, or one with a memory, as :func:`project_compact`."""
    if prompt == "verl_agent":
        return project(response, require_think=True, tail=tail)
    return project_compact(response, tail=tail)


def project_compact(response: str, *, tail: int) -> tuple[str, bool]:
    """The same for a compact prompt, which ends with the opening tag: the response need not repeat it, nor think."""
    lowered = response.lower()
    if CLOSE_TAG not in lowered:
        return lowered[-tail:], False
    return project(response if OPEN_TAG in lowered else OPEN_TAG + response, require_think=False, tail=tail)
