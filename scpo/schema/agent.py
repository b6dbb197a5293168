"""Configuration of prompting agents: methods that are evaluated, not trained."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from scpo.strict import Strict


class PlainAgent(Strict):
    """Agent that sends the environment's prompt unchanged."""

    name: Literal["plain"]


class ReactAgent(Strict):
    """ReAct; the latest ``turns`` of the agent's own thoughts stay in the prompt."""

    name: Literal["react"]
    turns: PositiveInt


class ReflexionAgent(Strict):
    """ReAct in up to ``trials`` attempts at a task.

    After each failure but the last it writes a reflection; its later prompts begin with the latest
    ``memory`` reflections. ``turns`` as in :class:`ReactAgent`.
    """

    name: Literal["reflexion"]
    turns: PositiveInt
    trials: PositiveInt
    memory: PositiveInt


AgentConfig = Annotated[PlainAgent | ReactAgent | ReflexionAgent, Field(discriminator="name")]

AGENT_LABELS = {"plain": "Plain prompt", "react": "ReAct", "reflexion": "Reflexion"}
"""Labels of the prompting methods in tables and figures."""
