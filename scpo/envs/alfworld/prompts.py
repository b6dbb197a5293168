"""Prompts: verl-agent's, a compact one for small policies, and one with a memory (choice policy).

verl-agent's two templates are protocol constants: results are only comparable if every policy reads
the same text. They are taken from https://github.com/langfengQ/verl-agent, commit 796ed31,
agent_system/environments/prompts/alfworld.py (Copyright 2025 Nanyang Technological University and
the verl-agent team, Apache License 2.0).
"""

from __future__ import annotations

import functools
import re

from scpo.envs.alfworld.engine.world import NOTHING_HAPPENS
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.projection import CLOSE_TAG, OPEN_TAG, earlier_steps

_INSTRUCTIONS = (
    "\n\nNow it's your turn to take an action.\n"
    "You should first reason step-by-step about the current situation. "
    "This reasoning process MUST be enclosed within <think> </think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step "
    "and present it "
    "within <action> </action> tags.\n"
)
_FIRST = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment.\n"
    "Your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}]." + _INSTRUCTIONS
)
_LATER = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment. Your task is to: "
    "{task}\n"
    "Prior to this step, you have already taken {taken} step(s). Below are the most recent "
    "{shown} observations and "
    "the corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}]." + _INSTRUCTIONS
)


def verl_agent(transcript: Transcript, history_length: int) -> str:
    """verl-agent's user message.

    Args:
        transcript: The episode so far.
        history_length: Latest steps that are shown (the paper's K); 0: the first step's template.
    """
    # The game admits "help", but verl-agent does not list it.
    admissible = "\n ".join(
        f"'{command}'" for command in transcript.admissible if command != "help"
    )
    if not transcript.history or history_length == 0:
        return _FIRST.format(observation=transcript.observation, admissible=admissible)
    earlier = earlier_steps(transcript.history, history_length)
    return _LATER.format(
        task=transcript.task, observation=transcript.observation, admissible=admissible, **earlier
    )


# The small vocabulary has words, numbers and a few marks. The words of _FILLER carry no information
# in ALFWorld's texts, so compact prompts leave them out.
_FILLER = {"a", "an", "the", "you", "and", "s", "welcome", "textworld", "alfred"}
_TOKEN = re.compile(r"[a-z]+|\d+|[>|:;]")

# Number of words that the compact prompt keeps of the latest observation, and of each earlier one.
_OBSERVATION_WORDS = 30
_HISTORY_WORDS = 10

# Verbs that apply nearly everywhere: their commands would fill the prompt without information.
_EVERYWHERE = ("go to", "examine", "look", "inventory", "help", "close")


def compact(transcript: Transcript, history_length: int) -> str:
    """Compact prompt of about 81 words.

    Its parts: task, number of receptacles of each kind, held object, location, local commands, the
    latest ``history_length`` pairs of observation and action, and the observation. The last word is
    the opening tag, so a response has the form ``go to desk 1 </action>``. Each pair of the history
    ends with the closing tag, which is the small model's end-of-text token.
    """
    counts = " ".join(f"{kind} {count}" for kind, count in transcript.receptacle_counts.items())
    parts = [
        f"{_words(transcript.task)} | {counts} | holding {_held(transcript)}",
        f"| at {transcript.location or 'start'} | "
        f"{_local_commands(transcript.admissible, transcript.location)} |",
    ]
    steps = len(transcript.history)
    # The first observation is written as "start": it only lists the receptacles and the task.
    for step in range(max(0, steps - history_length), steps):
        observation, action = transcript.history[step]
        seen = _first_words(observation, _HISTORY_WORDS) if step else "start"
        parts.append(f"{seen} {OPEN_TAG} {_words(action)} {CLOSE_TAG}")
    parts.append(_first_words(transcript.observation, _OBSERVATION_WORDS) if steps else "start")
    return " ".join([*parts, OPEN_TAG])


def memory(transcript: Transcript, _history_length: int) -> str:
    """Prompt with a memory: task, held object, location, last command, step, sightings, commands.

    It lists what was seen where and how many steps ago, so a policy without a recurrent state can
    search systematically. It depends on the transcript only. The commands are those that the game
    admits, without ``help``::

        task: put a hot mug in safe.
        holding: mug 1 | hot
        at: microwave 1
        last: heat mug 1 with microwave 1
        step: 4
        seen desk 2 | 3: pen 1
        seen microwave 1 | 1: closed
        > close microwave 1
        > go to desk 1
    """
    taken = len(transcript.history)
    mark = " | nothing" if transcript.observation == NOTHING_HAPPENS else ""
    lines = [
        f"task: {transcript.task}",
        f"holding: {transcript.held} | {' '.join(transcript.treatments.get(transcript.held, ()))}",
        f"at: {transcript.location}",
        f"last: {transcript.history[-1][1].strip() if taken else ''}{mark}",
        f"step: {taken}",
    ]
    for place, sighting in transcript.sightings.items():
        things = "closed" if sighting.things is None else ", ".join(sighting.things)
        lines.append(f"seen {place} | {taken - 1 - sighting.step}: {things}")
    return "\n".join([*lines, _listed(transcript.admissible)])


@functools.lru_cache(maxsize=16384)
def _listed(admissible: tuple[str, ...]) -> str:
    """Lines of the admissible commands; cached, since many states admit the same ones."""
    return "\n".join(f"> {command}" for command in admissible if command != "help")


def _held(transcript: Transcript) -> str:
    if not transcript.held:
        return "nothing"
    return " ".join([transcript.held, *transcript.treatments.get(transcript.held, ())])


@functools.lru_cache(maxsize=65536)
def _words(text: str) -> str:
    """Words, numbers and marks of a text in the form of the small vocabulary, without filler."""
    return " ".join(word for word in _TOKEN.findall(text.lower()) if word not in _FILLER)


@functools.lru_cache(maxsize=65536)
def _first_words(text: str, count: int) -> str:
    return " ".join(_words(text).split()[:count])


@functools.lru_cache(maxsize=16384)
def _local_commands(admissible: tuple[str, ...], location: str) -> str:
    """The word "can" and the commands that are specific to this location, without its name."""
    shown = []
    for command in admissible:
        if not command.startswith(_EVERYWHERE):
            # The prompt's "at" names the location already. The name of another receptacle that can
            # be reached from there is kept.
            shown.append(command.removesuffix(f" from {location}").removesuffix(f" to {location}"))
    return " ".join(["can", *shown])
