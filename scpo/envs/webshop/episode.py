"""Episode: one rollout of a goal, with verl-agent's protocol or one for small policies."""

from __future__ import annotations

from collections.abc import Sequence

from scpo.envs.base import StepResult, Task
from scpo.envs.projection import project_for
from scpo.envs.webshop.compact_actions import expand
from scpo.envs.webshop.prompts import compact, memory, verl_agent
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript
from scpo.schema.env import WebshopConfig

# verl-agent's projection of this environment.
UNTAGGED_TAIL = 20


def projected(prompt: str, response: str, clickables: Sequence[str]) -> tuple[str, bool]:
    """The shop's action in a response, and whether it has the form that the prompt asks for."""
    action, valid = project_for(prompt, response, tail=UNTAGGED_TAIL)
    return (expand(action, clickables) if valid and prompt == "compact" else action), valid


class WebshopEpisode:
    """Rollout of one goal; see ``scpo.envs.base.Episode``.

    Success is a purchase with the full score. ``observation`` is the current page after the
    instruction, without any score: the anchor state.
    """

    def __init__(self, task: Task, shop: WebShop, config: WebshopConfig) -> None:
        self.task = task
        self.done = False
        self.shop = shop
        self.transcript = Transcript.of(shop)
        self.observation = self.transcript.observation
        self._config = config

    @property
    def state_text(self) -> str:
        """See ``scpo.envs.base.StatefulEpisode``."""
        return self.transcript.state_text

    def prompt(self) -> str:
        """The text that the policy reads now."""
        match self._config.prompt:
            case "verl_agent":
                return verl_agent(
                    self.transcript, self._config.history_length, self._config.max_prompt_characters
                )
            case "compact":
                return compact(self.transcript, self._config.history_length)
            case "memory":
                return memory(self.transcript)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(
                f"episode of {self.task.id} is over after {number} steps; start a new one"
            )
        action, valid = projected(
            self._config.prompt, response, self.transcript.actions["clickables"]
        )
        _, score, bought = self.shop.step(action)
        self.transcript.record(action, self.shop)
        self.observation = self.transcript.observation
        # WebShop counts only a purchase with the full score as success.
        won = score == 1.0
        self.done = bought or number + 1 >= self._config.horizon
        reward = self._config.reward_scale * (score if self._config.reward == "score" else won)
        return StepResult(
            action,
            valid,
            self.observation,
            reward,
            self.done,
            won,
            score,
            self.transcript.state_text,
        )
