"""verl-agent's protocol: action projection and the history fields of the prompts.

``project`` and ``earlier_steps`` reproduce verl-agent's commit 796ed31, for both environments; the
forms for compact prompts are ours. Validity concerns only the format, not admissibility: ALFWorld
answers "fly" with "Nothing happens.", and a click on something that is not on a page of WebShop
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPEN_TAG = "<action>"
CLOSE_TAG = "</action>"

# CJK unified ideographs, the range that verl-agent tests for.
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def earlier_steps(history: Sequence[tuple[str, str]], length: int) -> dict[str, int | str]:
    """Fields ``taken``, ``shown``, ``history`` and ``step`` of verl-agent's prompt templates.

    Args:
        history: (observation, action) of each step so far.
        length: Number of latest steps that are shown (the paper's K), at least 1.
    """
    recent = history[-length:]
    pairs = (
        f"[Observation {number}: '{observation}', Action {number}: '{action}']"
        for number, (observation, action) in enumerate(recent, start=len(history) - len(recent) + 1)
    )
    return {
        "taken": len(history),
        "shown": len(recent),
        "history": "\n".join(pairs),
        "step": len(history) + 1,
    }


def respond(action: str) -> str:
    """Response that executes ``action`` under a compact prompt or one with a memory."""
    return f"{action} {CLOSE_TAG}"


def project(response: str, *, require_think: bool, tail: int) -> tuple[str, bool]:
    """Extract the action from a response, and check the required format.

    Without both action tags the last ``tail`` characters are the action and the response is
    invalid. Without the thinking tags (in lower case), or with a Chinese character, the action is
    executed but the response is invalid.

    Args:
        response: The policy's text.
        require_think: Whether thinking tags are part of the format.
        tail: Characters of a response without tags that are executed.

    Returns:
        The action, in lower case, and whether the format is right.
    """
    lowered = response.lower()
    # As in verl-agent, the first tag of each kind counts; if the closing tag comes first, the
    # action is empty.
    start = lowered.find(OPEN_TAG)
    end = lowered.find(CLOSE_TAG)
    if start == -1 or end == -1:
        return lowered[-tail:], False
    action = lowered[start + len(OPEN_TAG) : end].strip()
    has_thought = "<think>" in response and "</think>" in response
    valid = (has_thought or not require_think) and _CHINESE.search(response) is None
    return action, valid


def project_for(prompt: str, response: str, *, tail: int) -> tuple[str, bool]:
    """Project a response to verl-agent's prompt (``project``) or another (``project_compact``)."""
    if prompt == "verl_agent":
        return project(response, require_think=True, tail=tail)
    return project_compact(response, tail=tail)


def project_compact(response: str, *, tail: int) -> tuple[str, bool]:
    """Project a response to a prompt that ends with the opening tag.

    The response needs neither that tag nor thinking tags: small policies write only the command
    and the closing tag.
    """
    lowered = response.lower()
    if CLOSE_TAG not in lowered:
        return lowered[-tail:], False
    if OPEN_TAG not in lowered:
        response = OPEN_TAG + response
    return project(response, require_think=False, tail=tail)
