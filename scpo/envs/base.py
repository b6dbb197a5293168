"""Environment interface: tasks in panels, and episodes that exchange texts with a policy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from scpo.schema.model import Imitation


@dataclass(frozen=True, order=True)
class Task:
    """One entry of a panel.

    Attributes:
        id: Stable name, the same on every machine (no absolute path), e.g.
            ``valid_seen/<family>-.../<trial>``.
        family: Task family, by which result tables are split into columns.
        sha256: Hash of the task's content, so that a changed game is noticed.
    """

    id: str
    family: str
    sha256: str


@dataclass(frozen=True)
class Panel:
    """Fixed, sorted list of tasks.

    Its ``sha256`` is stored with every result, so that success rates on different games, or on
    games of different content, are never compared as if they were the same.
    """

    name: str
    tasks: tuple[Task, ...]

    @property
    def sha256(self) -> str:
        # A seed draws tasks by their position, so the order is part of the hash.
        lines = "".join(f"{task.id} {task.sha256}\n" for task in self.tasks)
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True)
class GivenState:
    """Facts of a state besides its text, from the environment, for identities of states.

    Attributes:
        facts: Structured facts, in one canonical text.
        commands: Admissible actions, sorted, in one text.
        true_anchor: The observation before rewording; None if nothing is reworded.
        true_state: The state text before rewording; None if nothing is reworded.
    """

    facts: str
    commands: str
    true_anchor: str | None = None
    true_state: str | None = None


@dataclass(frozen=True)
class StepResult:
    """Result of one step.

    Attributes:
        action: The projected action that was executed.
        valid: The response had the required format; its action may still be inadmissible.
        observation: Raw text of the answer; the anchor state of the next step.
        reward: Environment reward of this step.
        done: The episode is over, won or at the horizon.
        won: The benchmark's meaning of success.
        score: The benchmark's graded result of this step in [0, 1]; None for benchmarks without
            one.
        state: ``state_text`` after this step; None for environments without one.
        given: ``given_state`` after this step; None for environments without one.
        no_op: True if the answer reports a no-op, judged before rewording. None if nothing is
            reworded: the step filter then compares the observation's text.
    """

    action: str
    valid: bool
    observation: str
    reward: float
    done: bool
    won: bool
    score: float | None = None
    state: str | None = None
    given: GivenState | None = None
    no_op: bool | None = None


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
    """Episode with a textual description of its state."""

    @property
    def state_text(self) -> str:
        """Text that identifies the present state, made from what the agent observed and did.

        It never reads the simulator's state. Equal texts are one state.
        """


def state_text(episode: Episode) -> str | None:
    """State text of an episode; None for environments without one."""
    text: str | None = getattr(episode, "state_text", None)
    return text


def given_state(episode: Episode) -> GivenState | None:
    """Facts and commands of an episode's state; None for environments without them."""
    given: GivenState | None = getattr(episode, "given_state", None)
    return given


class Environment(Protocol):
    """All episodes of one process, with their engines and caches."""

    families: tuple[str, ...]

    def panel(self, name: str) -> Panel:
        """Panel of this name in the configuration (``train``, ``probe`` or a validation panel).

        Raises:
            PanelError: The panel is unknown, or its split has too few tasks.
            GameError: A game of it cannot be read.
        """

    def start(self, task: Task, slot: int) -> Episode:
        """Begin an episode; ``slot`` is the sibling's index in its group.

        Raises:
            EnvironmentFailure: The engine broke.
        """


@runtime_checkable
class OpenableEnvironment(Environment, Protocol):
    """Environment that can load its panels before the first episodes."""

    def open_panels(self) -> None:
        """Read all tasks of all panels into memory, and keep them there."""


@runtime_checkable
class CachingEnvironment(Environment, Protocol):
    """Environment with caches on disk, which later runs reuse."""

    @property
    def uncached_s(self) -> float:
        """Seconds spent so far, in this process, on what the caches did not hold."""

    def fill_caches(self, tasks: Sequence[Task]) -> None:
        """Fill the caches for these tasks in advance, where that takes longest, on all cores."""


@runtime_checkable
class PlanningEnvironment(Environment, Protocol):
    """Environment that knows the length of a shortest plan, for ``credit/precision``.

    Only diagnostics call it: the plan is computed from the simulator's state, which no policy and
    no estimator may see.
    """

    def remaining_plan(self, task: Task, actions: Sequence[str]) -> int | None:
        """Length of a shortest plan after these actions; None if none was found."""


@runtime_checkable
class ReplayingEnvironment(PlanningEnvironment, Protocol):
    """Planning environment that can reproduce an episode from its actions."""

    def replay(self, task: Task, actions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Replay the actions.

        Returns:
            The observations, and the state texts before each action and after the last.
        """


@dataclass(frozen=True)
class Demonstration:
    """Successful episode to imitate: pairs of prompt and response.

    Attributes:
        task_id: Id of a training task outside the training panel.
        prompts: What a policy would have read at each step.
        responses: What it should answer, in the same order.
    """

    task_id: str
    prompts: Sequence[str]
    responses: Sequence[str]


@runtime_checkable
class DemonstratingEnvironment(Environment, Protocol):
    """Environment with demonstrations for the warm start of a small policy."""

    def demonstrations(self, config: Imitation) -> list[Demonstration]:
        """Successful episodes on training tasks outside the training panel.

        Equal configurations give equal lists.
        """

    def vocabulary(self) -> list[str]:
        """Texts that together hold every word the environment can produce."""
