"""One rollout of one WebShop goal, with verl-agent's protocol or one of those for small policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scpo.envs.base import StepResult, Task
from scpo.envs.projection import project, project_compact
from scpo.envs.webshop.compact import compact
from scpo.envs.webshop.compact_actions import expand
from scpo.envs.webshop.memory import memory
from scpo.envs.webshop.prompts import verl_agent
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript
from scpo.schema.env import WebshopConfig

UNTAGGED_TAIL = 20  # verl-agent's projection of this environment


@dataclass(frozen=True)
class Interface:
    """How text passes between a policy and the shop: the prompt, and the projection of a response."""

    prompt: Callable[[Transcript, WebshopConfig], str]
    project: Callable[[str, Transcript], tuple[str, bool]]


def _project_compact(response: str, transcript: Transcript) -> tuple[str, bool]:
    action, valid = project_compact(response, tail=UNTAGGED_TAIL)
    return (expand(action, transcript.actions["clickables"]) if valid else action), valid


INTERFACES = {
    "verl_agent": Interface(
        lambda transcript, config: verl_agent(transcript, config.history_length, config.max_prompt_characters),
        lambda response, _transcript: project(response, require_think=True, tail=UNTAGGED_TAIL),
    ),
    "compact": Interface(
        lambda transcript, config: compact(transcript, config.history_length),
        _project_compact,
    ),
    "memory": Interface(
        lambda transcript, _config: memory(transcript),
        lambda response, _transcript: project_compact(response, tail=UNTAGGED_TAIL),
    ),
}


class WebshopEpisode:
    """One rollout of one goal; see ``scpo.envs.base.Episode``. Success is a purchase with the full score.

    ``observation`` is the current page after the instruction, without any score: the anchor state.
    """

    def __init__(self, task: Task, shop: WebShop, config: WebshopConfig) -> None:
        self.task = task
        self.done = False
        self.shop = shop
        self.transcript = Transcript.of(shop)
        self.observation = self.transcript.observation
        self._config = config
        self._interface = INTERFACES[config.prompt]

    @property
    def state_text(self) -> str:
        """See ``scpo.envs.base.StatefulEpisode``."""
        return self.transcript.state_text

    def prompt(self) -> str:
        """The text that the policy reads now."""
        return self._interface.prompt(self.transcript, self._config)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(f"episode of {self.task.id} is over after {number} steps; start a new one")
        action, valid = self._interface.project(response, self.transcript)
        _, score, bought = self.shop.step(action)
        self.transcript.record(action, self.shop)
        self.observation = self.transcript.observation
        won = score == 1.0
        self.done = bought or number + 1 >= self._config.horizon
        reward = self._config.reward_scale * (score if self._config.reward == "score" else won)
        return StepResult(action, valid, self.observation, reward, self.done, won, score, self.transcript.state_text)
