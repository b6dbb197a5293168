"""ReAct (arXiv 2210.03629): prompts with alternating thoughts, actions and observations.

The paper prompts with worked examples and a text that grows with every step. Here the environment's
prompt, which asks for a thought and an action at every step, is unchanged, so that all methods of a
table read the same task. The agent prepends the model's latest thoughts, each with its action and
the observation that followed. It shows no examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from scpo.agents.base import Turn, one_line, thought

_INTRODUCTION = (
    "You solve a task by alternating between thinking and acting. Use each thought to keep track "
    "of your plan: what you have found out, which part of the task is done, and what the next "
    "action should achieve.\n"
)
_SO_FAR = "Your thoughts and actions so far, oldest first:\n{turns}\n\nThe situation now:\n"
_TURN = "Thought {number}: {thought}\nAction {number}: {action}\nObservation {number}: {answer}"


class React:
    """See ``scpo.agents.base.Agent``.

    Args:
        turns: Number of latest turns that are shown. ReAct's paper shows all turns, which do not
            fit into the 2,048 prompt tokens of SCPO's paper (ledger 21).
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """Introduction, latest turns, the environment's prompt."""
        # ReAct remembers nothing between attempts.
        del reflections
        so_far = _SO_FAR.format(turns=turns_text(turns, self.turns)) if turns else ""
        return f"{_INTRODUCTION}\n{so_far}{current}"


def turns_text(turns: Sequence[Turn], count: int) -> str:
    """The latest ``count`` turns as text, numbered from the attempt's beginning."""
    first = max(0, len(turns) - count)
    lines = []
    for number, turn in enumerate(turns[first:], start=first + 1):
        lines.append(
            _TURN.format(
                number=number,
                thought=thought(turn.response) or "(none)",
                action=one_line(turn.action),
                answer=one_line(turn.answer),
            )
        )
    return "\n".join(lines)
