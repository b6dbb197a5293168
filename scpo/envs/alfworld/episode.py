"""Episode: one rollout of a game, with verl-agent's prompt or one for small policies."""

from __future__ import annotations

import copy

from scpo.envs.alfworld import prompts
from scpo.envs.alfworld.engine.engine import Engine, OpenGame
from scpo.envs.alfworld.games.games import Game
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.alfworld.wordings import reworded, reworded_state
from scpo.envs.base import GivenState, StepResult, Task
from scpo.envs.projection import project_for
from scpo.envs.rewording import rewording_of
from scpo.errors import EnvironmentFailure
from scpo.schema.env import AlfworldConfig

# In ALFWorld, verl-agent executes this many last characters of a response without action tags.
UNTAGGED_TAIL = 30

PROMPTS = {"verl_agent": prompts.verl_agent, "compact": prompts.compact, "memory": prompts.memory}


class AlfworldEpisode:
    """One rollout of one game; see ``scpo.envs.base.Episode``.

    Args:
        task: The panel entry of the game.
        opened: The game; siblings share its graph.
        engine: Computes transitions that the graph lacks.
        config: Prompt, horizon, reward and rewording.
        slot: The episode's index in its group, which selects the draws of a rewording.
    """

    def __init__(
        self, task: Task, opened: OpenGame, engine: Engine, config: AlfworldConfig, slot: int = 0
    ) -> None:
        self.task = task
        self.done = False
        self.transcript = Transcript(opened.opening, opened.start.admissible)
        self.rewording = rewording_of(config.wordings, task.id, slot)
        self._set_observation()
        self.opened = opened
        self.state = opened.start
        self._engine = engine
        self._config = config

    @property
    def state_text(self) -> str:
        """See ``scpo.envs.base.StatefulEpisode``."""
        if self.rewording is not None:
            return self._state_text
        return self.transcript.state_text

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

    def prompt(self) -> str:
        """The text that the policy reads now."""
        shown = self.transcript
        if self.rewording is not None and self.rewording.config.told_to == "policy":
            # A copy, because the transcript itself keeps the texts of the game.
            shown = copy.copy(shown)
            shown.history = self.rewording.told_history(shown.history)
            shown.observation = self.observation
        return PROMPTS[self._config.prompt](shown, self._config.history_length)

    def _set_observation(self) -> None:
        """Set the observation and the state text, reworded if this step draws a rewording."""
        transcript = self.transcript
        self.observation = transcript.observation
        if self.rewording is None:
            return
        step = len(transcript.history)
        draw = self.rewording.draw(step)
        if draw is not None:
            last_action = transcript.history[-1][1] if step else ""
            self.observation = reworded(transcript.observation, draw, last_action)
        # The commands are left out: they are not reworded and would still identify the state.
        self._state_text = reworded_state(
            self.observation, transcript.location, transcript.held_text, transcript.moved, draw
        )
        self.rewording.told.append(self.observation)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            EnvironmentFailure: The engine failed; start the episode again.
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(
                f"episode of {self.task.id} is over after {number} steps; start a new one"
            )

        # As in verl-agent, an invalid response is executed too; estimators subtract a penalty.
        action, valid = project_for(self._config.prompt, response, tail=UNTAGGED_TAIL)

        # `Engine.step` strips the command too.
        executed = action.strip() in self.state.operators
        try:
            self.state, observation = self._engine.step(self.opened, self.state, action)
        except Exception as error:
            self._engine.drop(self.task.id)
            raise EnvironmentFailure(
                f"game {self.task.id} failed at step {number} on {action!r}: {error}"
            ) from error

        self.transcript.record(action, observation, self.state.admissible, executed=executed)
        self._set_observation()

        # As in verl-agent, only the step that wins has a reward.
        won = self.state.won
        self.done = won or number + 1 >= self._config.horizon
        reward = self._config.win_reward if won else 0.0
        no_op = None
        if self.rewording is not None:
            # The original observation: a reworded one would equal none of the configured ones.
            no_op = observation.strip() in self._config.step_filter.no_op_observations
        return StepResult(
            action=action,
            valid=valid,
            observation=self.observation,
            reward=reward,
            done=self.done,
            won=won,
            state=self.state_text,
            given=self.given_state,
            no_op=no_op,
        )


def task_of(game: Game) -> Task:
    """The panel entry of a game."""
    return Task(game.id, game.family, game.sha256)
