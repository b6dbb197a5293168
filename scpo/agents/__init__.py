"""Prompting agents by the name that a configuration gives them: texts in, texts out.

An agent writes what the model reads at each step; who plays the episodes is ``scpo.trainers.evaluate``.
"""

from __future__ import annotations

from scpo.agents.base import Agent, Plain
from scpo.agents.react import React
from scpo.agents.reflexion import Reflexion
from scpo.schema.agent import AgentConfig


def make_agent(config: AgentConfig) -> Agent:
    """The agent that the configuration describes."""
    match config.name:
        case "plain":
            return Plain()
        case "react":
            return React(config.turns)
        case "reflexion":
            return Reflexion(config.turns, config.trials, config.memory)
