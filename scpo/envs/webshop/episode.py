"""Episode: one rollout of a goal, with verl-agent's protocol or one for small policies."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from scpo.envs.base import GivenState, StepResult, Task
from scpo.envs.projection import project_for
from scpo.envs.rewording import rewording_of
from scpo.envs.webshop.compact_actions import expand
from scpo.envs.webshop.prompts import compact, memory, verl_agent
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript
from scpo.envs.webshop.wordings import reworded
from scpo.schema.env import WebshopConfig

# In WebShop, verl-agent executes this many last characters of a response without action tags.
UNTAGGED_TAIL = 20


def projected(prompt: str, response: str, clickables: Sequence[str]) -> tuple[str, bool]:
    """The shop's action in a response, and whether the response has the format of the prompt."""
    action, valid = project_for(prompt, response, tail=UNTAGGED_TAIL)
    if valid and prompt == "compact":
        action = expand(action, clickables)
    return action, valid


class WebshopEpisode:
    """Rollout of one goal; see ``scpo.envs.base.Episode``.

    Success is a purchase with the full score. ``observation`` is the current page after the
    instruction, without any score: the anchor state.

    Args:
        task: The panel entry of the goal.
        shop: A shop that was just reset to the goal; the episode's own.
        config: Prompt, horizon, reward and rewording.
        slot: The sibling's index, which the draws of a rewording depend on.
    """

    def __init__(self, task: Task, shop: WebShop, config: WebshopConfig, slot: int = 0) -> None:
        self.task = task
        self.done = False
        self.shop = shop
        self.transcript = Transcript.of(shop)
        self.rewording = rewording_of(config.wordings, task.id, slot)
        self._config = config
        self._set_observation()

    @property
    def state_text(self) -> str:
        """See ``scpo.envs.base.StatefulEpisode``."""
        return f"{self.observation} | {self.transcript.facts}"

    @property
    def given_state(self) -> GivenState:
        """See ``scpo.envs.base.GivenState``."""
        transcript = self.transcript
        if self.rewording is None:
            return GivenState(transcript.facts, transcript.commands)
        return GivenState(
            transcript.facts,
            transcript.commands,
            true_anchor=transcript.observation,
            true_state=transcript.state_text,
        )

    def _set_observation(self) -> None:
        """Set the observation, reworded if the draws of this step ask for it."""
        transcript = self.transcript
        self.observation = transcript.observation
        if self.rewording is None:
            return
        draw = self.rewording.draw(len(transcript.history))
        if draw is not None:
            self.observation = reworded(transcript.observation, draw)
        self.rewording.told.append(self.observation)

    @property
    def _shown(self) -> Transcript:
        """The transcript that verl-agent's prompts are made from."""
        if self.rewording is None or self.rewording.config.told_to == "credit":
            return self.transcript
        shown = copy.copy(self.transcript)
        shown.history = self.rewording.told_history(shown.history)
        shown.observation = self.observation
        return shown

    def prompt(self) -> str:
        """The text that the policy reads now."""
        match self._config.prompt:
            case "verl_agent":
                return verl_agent(
                    self._shown, self._config.history_length, self._config.max_prompt_characters
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

        # As in verl-agent, an invalid response is executed too; estimators subtract a penalty.
        action, valid = projected(
            self._config.prompt, response, self.transcript.actions["clickables"]
        )
        before = self.transcript.observation
        _, score, bought = self.shop.step(action)
        self.transcript.record(action, self.shop)
        self._set_observation()

        # WebShop counts only a purchase with the full score as success.
        won = score == 1.0
        self.done = bought or number + 1 >= self._config.horizon
        achieved = score if self._config.reward == "score" else float(won)
        return StepResult(
            action=action,
            valid=valid,
            observation=self.observation,
            reward=self._config.reward_scale * achieved,
            done=self.done,
            won=won,
            score=score,
            state=self.state_text,
            given=self.given_state,
            no_op=self._no_op(before),
        )

    def _no_op(self, before: str) -> bool | None:
        """Return True if the page before rewording is a no-op; None if nothing is reworded.

        Args:
            before: The page before the action, not reworded.
        """
        if self.rewording is None:
            return None
        page = self.transcript.observation
        unchanged = self._config.step_filter.no_op_if_unchanged and page.strip() == before.strip()
        return unchanged or page.strip() in self._config.step_filter.no_op_observations
