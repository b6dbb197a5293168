"""Episode: one rollout of a game, with verl-agent's protocol or one for small policies."""

from __future__ import annotations

from scpo.envs.alfworld import prompts
from scpo.envs.alfworld.engine.engine import Engine, OpenGame
from scpo.envs.alfworld.games.games import Game
from scpo.envs.alfworld.transcript import Transcript
from scpo.envs.base import StepResult, Task
from scpo.envs.projection import project_for
from scpo.errors import EnvironmentFailure
from scpo.schema.env import AlfworldConfig

# verl-agent's projection of this environment.
UNTAGGED_TAIL = 30

PROMPTS = {"verl_agent": prompts.verl_agent, "compact": prompts.compact, "memory": prompts.memory}


class AlfworldEpisode:
    """One rollout of one game; see ``scpo.envs.base.Episode``."""

    def __init__(
        self, task: Task, opened: OpenGame, engine: Engine, config: AlfworldConfig
    ) -> None:
        self.task = task
        self.done = False
        self.observation = opened.opening
        self.transcript = Transcript(opened.opening, opened.start.admissible)
        self.opened = opened
        self.state = opened.start
        self._engine = engine
        self._config = config

    @property
    def state_text(self) -> str:
        """See ``scpo.envs.base.StatefulEpisode``."""
        return self.transcript.state_text

    def prompt(self) -> str:
        """The text that the policy reads now."""
        return PROMPTS[self._config.prompt](self.transcript, self._config.history_length)

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
        action, valid = project_for(self._config.prompt, response, tail=UNTAGGED_TAIL)
        # The game strips its commands.
        executed = action.strip() in self.state.operators
        try:
            self.state, observation = self._engine.step(self.opened, self.state, action)
        except Exception as error:
            self._engine.drop(self.task.id)
            raise EnvironmentFailure(
                f"game {self.task.id} failed at step {number} on {action!r}: {error}"
            ) from error
        self.observation = observation
        self.transcript.record(action, observation, self.state.admissible, executed=executed)
        # verl-agent's reward: paid once, on the step that wins.
        won = self.state.won
        self.done = won or number + 1 >= self._config.horizon
        reward = self._config.win_reward if won else 0.0
        return StepResult(action, valid, observation, reward, self.done, won, state=self.state_text)


def task_of(game: Game) -> Task:
    """The panel entry of a game."""
    return Task(game.id, game.family, game.sha256)
