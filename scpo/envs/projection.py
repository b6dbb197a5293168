"""verl-agent's protocol in both environments: from a response to an action, and what a prompt tells of earlier steps.

Exactly as in the stack's commit 796ed31. Validity is about the format alone. Whether the environment admits the action
is never asked: ALFWorld answers "fly" with "Nothing happens.", and a click on what is not on a page of WebShop changes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPEN_TAG = "<action>"
CLOSE_TAG = "</action>"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def earlier_steps(history: Sequence[tuple[str, str]], length: int) -> dict[str, int | str]:
    """The fields ``taken``, ``shown``, ``history``, ``step`` of the stack's templates, from (observation, action)."""
    recent = history[-length:]
    pairs = (
        f"[Observation {number}: '{observation}', Action {number}: '{action}']"
        for number, (observation, action) in enumerate(recent, start=len(history) - len(recent) + 1)
    )
    return {"taken": len(history), "shown": len(recent), "history": "\n".join(pairs), "step": len(history) + 1}


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
