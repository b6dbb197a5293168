"""What every environment offers to the rollout: tasks in panels, episodes that take a policy's text and answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from scpo.schema import Imitation


@dataclass(frozen=True, order=True)
class Task:
    """One entry of a panel.

    Attributes:
        id: Stable name, the same on every machine (no absolute path), e.g. ``valid_seen/<family>-.../<trial>``.
        family: Column of the result table it counts for.
        sha256: Hash of the task's content, so that a changed game is noticed.
    """

    id: str
    family: str
    sha256: str


@dataclass(frozen=True)
class Panel:
    """A fixed, sorted list of tasks. ``sha256`` is stored with every result and is equal on every machine."""

    name: str
    tasks: tuple[Task, ...]

    @property
    def sha256(self) -> str:
        lines = "".join(f"{task.id} {task.sha256}\n" for task in self.tasks)
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True)
class StepResult:
    """What one step gave.

    Attributes:
        action: The projected action that was executed.
        valid: The response had the required format (never: was admissible).
        observation: Raw text of the answer; the anchor state of the next step.
        reward: Environment reward of this step.
        done: The episode is over, won or at the horizon.
        won: The benchmark's meaning of success.
        score: The benchmark's graded result of this step in [0, 1]; None where a benchmark has none.
        state: ``state_text`` after this step; None where the environment gives none.
    """

    action: str
    valid: bool
    observation: str
    reward: float
    done: bool
    won: bool
    score: float | None = None
    state: str | None = None


class Episode(Protocol):
    """One rollout of one task."""

    task: Task
    observation: str
    done: bool

    def prompt(self) -> str:
        """The text the policy reads now: instructions, history, current observation."""

    def step(self, response: str) -> StepResult:
        """Project the policy's text to an action, execute it and advance the episode."""


class StatefulEpisode(Episode, Protocol):
    """An episode that can say in one text all that the agent was shown of its present state."""

    @property
    def state_text(self) -> str:
        """Made of what the agent read and did, never of what the simulator knows; equal texts are one state."""


def state_text(episode: Episode) -> str | None:
    """The state that an episode is in; None if its environment gives none."""
    text: str | None = getattr(episode, "state_text", None)
    return text


class Environment(Protocol):
    """All episodes of one process; owns engines and caches."""

    families: tuple[str, ...]

    def panel(self, name: str) -> Panel:
        """The panel of that name in the configuration (``train``, ``probe`` or a validation panel).

        Raises:
            PanelError: No such panel, or its split has too few tasks.
            GameError: A game of it cannot be read.
        """

    def start(self, task: Task, slot: int) -> Episode:
        """Begin an episode; ``slot`` is the sibling's index in its group (siblings share cached transitions)."""


@runtime_checkable
class OpenableEnvironment(Environment, Protocol):
    """An environment that can do beforehand what its first episodes would wait for."""

    def open_panels(self) -> None:
        """Read all tasks of all panels into memory, and keep them there."""


@runtime_checkable
class PlanningEnvironment(Environment, Protocol):
    """An environment that knows how far its tasks are from done."""

    def remaining_plan(self, task: Task, actions: Sequence[str]) -> int | None:
        """Steps of a shortest way to win after these actions from the task's start; None if none was found."""


@runtime_checkable
class ReplayingEnvironment(PlanningEnvironment, Protocol):
    """A planning environment that can say what an agent was shown in an episode that it did not play."""

    def replay(self, task: Task, actions: Sequence[str]) -> tuple[list[str], list[str]]:
        """The answers to these actions, and the texts of the states before each of them and after the last."""


@dataclass(frozen=True)
class Demonstration:
    """A successful episode as text pairs to imitate: what the policy read, what it should answer."""

    task_id: str
    prompts: Sequence[str]
    responses: Sequence[str]


@runtime_checkable
class DemonstratingEnvironment(Environment, Protocol):
    """An environment that can show how its tasks are solved, for the warm start of a small policy."""

    def demonstrations(self, config: Imitation) -> list[Demonstration]:
        """Successful episodes on training tasks outside the training panel; the same list for the same config."""

    def vocabulary(self) -> list[str]:
        """Texts that together hold every word the environment can say."""
