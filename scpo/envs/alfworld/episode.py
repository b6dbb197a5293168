"""Episode: one rollout of a game, with verl-agent's protocol or one for small policies."""

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

# Last characters that verl-agent executes of a response without action tags, in ALFWorld.
UNTAGGED_TAIL = 30

PROMPTS = {"verl_agent": prompts.verl_agent, "compact": prompts.compact, "memory": prompts.memory}


class AlfworldEpisode:
    """One rollout of one game; see ``scpo.envs.base.Episode``.

    Args:
        task: The panel entry of the game.
        opened: The game, whose graph is shared with the siblings.
        engine: Computes transitions that the graph lacks.
        config: Prompt, horizon, reward and rewording.
        slot: The sibling's index, which the draws of a rewording depend on.
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
        course = self.transcript
        if self.rewording is None:
            return GivenState(course.facts, course.commands)
        return GivenState(course.facts, course.commands, course.observation, course.state_text)

    def prompt(self) -> str:
        """The text that the policy reads now."""
        shown = self.transcript
        if self.rewording is not None and self.rewording.config.told_to == "policy":
            # A shallow copy: the transcript itself keeps the texts of the game.
            shown = copy.copy(shown)
            shown.history = self.rewording.told_history(shown.history)
            shown.observation = self.observation
        return PROMPTS[self._config.prompt](shown, self._config.history_length)

    def _set_observation(self) -> None:
        """Set the observation and the state text, reworded if the draws of this step ask for it."""
        course = self.transcript
        self.observation = course.observation
        if self.rewording is None:
            return
        step = len(course.history)
        draw = self.rewording.draw(step)
        if draw is not None:
            action = course.history[-1][1] if step else ""
            self.observation = reworded(course.observation, draw, action)
        # Without the commands: they are not reworded, and would still identify the state.
        self._state_text = reworded_state(
            self.observation, course.location, course.held_text, course.moved, draw
        )
        self.rewording.told.append(self.observation)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            EnvironmentFailure: The engine broke; start the episode again.
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(
                f"episode of {self.task.id} is over after {number} steps; start a new one"
            )

        # An invalid response is executed all the same, as in verl-agent; it costs a penalty.
        action, valid = project_for(self._config.prompt, response, tail=UNTAGGED_TAIL)

        # Stripped, as the game does with its commands.
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

        # verl-agent's reward: paid once, on the step that wins.
        won = self.state.won
        self.done = won or number + 1 >= self._config.horizon
        reward = self._config.win_reward if won else 0.0
        no_op = None
        if self.rewording is not None:
            # Compared before rewording: a reworded answer never equals a configured one.
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
