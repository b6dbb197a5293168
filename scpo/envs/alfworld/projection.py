"""From a policy's response to a command, exactly as verl-agent does it (commit 796ed31, alfworld/projection.py).

Validity is about the format alone. Whether the game admits the command is never asked: "fly" between the tags is a
valid action, to which the game answers that nothing happens.
"""

from __future__ import annotations

import re

OPEN_TAG = "<action>"
CLOSE_TAG = "</action>"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_TAIL = 30


def project(response: str, *, require_think: bool) -> tuple[str, bool]:
    """The command that is sent to the game, and whether the response had the required format.

    Without both action tags the last 30 characters are sent. Without the thinking tags (as they are written, not in
    upper case), or with a Chinese character, the command is sent but the response is invalid.
    """
    lowered = response.lower()
    start, end = lowered.find(OPEN_TAG), lowered.find(CLOSE_TAG)
    if start == -1 or end == -1:
        return lowered[-_TAIL:], False
    command = lowered[start + len(OPEN_TAG) : end].strip()
    thought = not require_think or ("<think>" in response and "</think>" in response)
    return command, thought and _CHINESE.search(response) is None


def project_compact(response: str) -> tuple[str, bool]:
    """The same for the compact prompt, which ends with the opening tag: the response need not repeat it, nor think."""
    if CLOSE_TAG not in response.lower():
        return response.lower()[-_TAIL:], False
    text = response if OPEN_TAG in response.lower() else OPEN_TAG + response
    return project(text, require_think=False)
