"""verl-agent's prompt.

The two templates are protocol constants: results compare only if every policy reads the same text. They are carried
over from https://github.com/langfengQ/verl-agent, commit 796ed31, agent_system/environments/prompts/webshop.py
(Copyright 2025 Nanyang Technological University and the verl-agent team, Apache License 2.0). That one of them has a
space before the first line's end, and both an unusual hyphen, is as it is there.
"""

from __future__ import annotations

from scpo.envs.projection import earlier_steps
from scpo.envs.webshop.transcript import Transcript

_SHOP = "\nYou are an expert autonomous agent operating in the WebShop e\u2011commerce environment."
_INSTRUCTIONS = (
    "Your admissible actions of the current situation are: \n"
    "[\n{available}\n].\n"
    "\nNow it's your turn to take one action for the current step.\n"
    "You should first reason step-by-step about the current situation, then think carefully which admissible action "
    "best advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step and present it "
    "within <action> </action> tags.\n"
)
_FIRST = _SHOP + " \nYour task is to: {task}.\nYour current observation is: {observation}.\n" + _INSTRUCTIONS
_LATER = (
    _SHOP + "\nYour task is to: {task}.\n"
    "Prior to this step, you have already taken {taken} step(s). Below are the most recent {shown} observations and "
    "the corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}.\n" + _INSTRUCTIONS
)


def verl_agent(transcript: Transcript, history_length: int, max_characters: int) -> str:
    """verl-agent's user message; one longer than ``max_characters`` is told without history."""
    available = "\n".join(f"'{action}'," for action in admissible(transcript))
    first = _FIRST.format(task=transcript.task, observation=transcript.observation, available=available)
    if not transcript.history or history_length == 0:
        return first
    earlier = earlier_steps(transcript.history, history_length)
    later = _LATER.format(task=transcript.task, observation=transcript.observation, available=available, **earlier)
    return first if len(later) > max_characters else later


def admissible(transcript: Transcript) -> list[str]:
    """The actions that the prompt offers."""
    search = ["search[<your query>]"] if transcript.actions["has_search_bar"] else []
    return search + [f"click[{name}]" for name in transcript.actions["clickables"]]
