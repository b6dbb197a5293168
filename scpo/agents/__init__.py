"""Prompting agents: texts in, texts out, selected by the configuration.

An agent writes what the model reads at each step; ``scpo.trainers.evaluate`` plays the episodes.
"""

from __future__ import annotations

from scpo.agents.base import Agent, Plain
from scpo.agents.react import React
from scpo.agents.reflexion import Reflexion
from scpo.schema.agent import AgentConfig


def make_agent(config: AgentConfig) -> Agent:
    """Build the configured agent."""
    match config.name:
        case "plain":
            return Plain()
        case "react":
            return React(config.turns)
        case "reflexion":
            return Reflexion(config.turns, config.trials, config.memory)
