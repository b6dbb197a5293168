"""Record each row's step, action, next observation and win, which the fork's rollout drops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scpo.envs.alfworld.transcript import Transcript

logger = logging.getLogger(__name__)

# Columns added to the batch. ``SLOT`` numbers the episodes of a training step.
SLOT = "scpo_slot"
STEP = "scpo_step"
ACTION = "scpo_action"
ANSWER = "scpo_answer"
WON = "scpo_won"

# Added if the method reads states: ALFWorld's state before and after the step.
STATE = "scpo_state"
NEXT_STATE = "scpo_next_state"


class RecordingEnvironments:
    """Wrapper of the fork's environment manager that records what happens at each step.

    Args:
        environments: The fork's manager.
        states: Also record the states of ALFWorld episodes, derived from observations and
            admissible commands.

    Attributes:
        actions: Projected actions, by step and then by episode.
        answers: Raw observations after these actions, likewise.
        won: True where the environment reports a win after the step, likewise.
        states: State texts before the first step and after each step, likewise; empty without
            ``states``.
    """

    def __init__(self, environments: Any, *, states: bool) -> None:
        self._environments = environments
        self._keeps_states = states
        self._transcripts: list[Transcript] = []
        self.states: list[list[str]] = []
        self._actions: Sequence[str] = ()
        self.actions: list[list[str]] = []
        self.answers: list[list[str]] = []
        self.won: list[list[bool]] = []

    def __getattr__(self, name: str) -> Any:
        # All attributes but `step` and `reset` are the manager's.
        return getattr(self._environments, name)

    def reset(self, *args: Any, **options: Any) -> Any:
        """Reset the manager, and begin a transcript of each episode."""
        observations, infos = self._environments.reset(*args, **options)
        if self._keeps_states:
            self._transcripts = []
            for opening, admissible in zip(observations["anchor"], self._admissible(), strict=True):
                self._transcripts.append(Transcript(str(opening), admissible))
            self.states = [[transcript.state_text for transcript in self._transcripts]]
        return observations, infos

    def _admissible(self) -> list[tuple[str, ...]]:
        """Admissible commands of each environment now."""
        return [tuple(commands) for commands in self._environments.envs.get_admissible_commands]

    def step(self, text_actions: Any) -> Any:
        """Make a step of the manager; record projected actions, raw observations and wins."""
        project = self._environments.projection_f

        def project_and_keep(*args: Any, **options: Any) -> Any:
            projected = project(*args, **options)
            self._actions = projected[0]
            return projected

        # The manager does not return the projected actions, but it looks up `projection_f` at each
        # step.
        self._environments.projection_f = project_and_keep
        try:
            observations, rewards, dones, infos = self._environments.step(text_actions)
        finally:
            self._environments.projection_f = project

        self.actions.append([str(action) for action in self._actions])
        self.answers.append([str(answer) for answer in observations["anchor"]])
        self.won.append([bool(info.get("won", False)) for info in infos])
        if self._keeps_states:
            self._follow(self.actions[-1], self.answers[-1])
        return observations, rewards, dones, infos

    def _follow(self, actions: list[str], answers: list[str]) -> None:
        """Record a step in every transcript; rows never read the states of finished episodes."""
        moves = zip(self._transcripts, actions, answers, self._admissible(), strict=True)
        for transcript, action, answer, admissible in moves:
            executed = action.strip() in transcript.admissible
            transcript.record(action, answer, admissible, executed=executed)
        self.states.append([transcript.state_text for transcript in self._transcripts])


class Recorder:
    """Wrappers of the two rollout methods of the fork's ``TrajectoryCollector``.

    They record training rollouts only, because validation assigns no credit.
    """

    def __init__(self, *, states: bool = False) -> None:
        self._states = states
        self._training = False
        self._slots = 0

    def multi_turn_loop(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the outer loop, which knows whether it trains; it numbers slots from 0."""

        def wrapped(
            collector: Any, gen_batch: Any, actor_rollout_wg: Any, envs: Any, is_train: bool = True
        ) -> Any:
            self._training = is_train
            self._slots = 0
            try:
                return original(
                    collector,
                    gen_batch=gen_batch,
                    actor_rollout_wg=actor_rollout_wg,
                    envs=envs,
                    is_train=is_train,
                )
            finally:
                self._training = False

        return wrapped

    def vanilla_multi_turn_loop(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the inner loop, which dynamic sampling repeats, and add the columns to its rows."""

        def wrapped(collector: Any, gen_batch: Any, actor_rollout_wg: Any, envs: Any) -> Any:
            if not self._training:
                return original(
                    collector, gen_batch=gen_batch, actor_rollout_wg=actor_rollout_wg, envs=envs
                )
            recording = RecordingEnvironments(envs, states=self._states)
            result = original(
                collector, gen_batch=gen_batch, actor_rollout_wg=actor_rollout_wg, envs=recording
            )
            self._add_columns(result[0], recording)
            return result

        return wrapped

    def _add_columns(
        self, rows: list[list[dict[str, Any]]], recording: RecordingEnvironments
    ) -> None:
        """Add the recorded columns to the rows of each episode, in place."""
        for slot, episode in enumerate(rows):
            for step, row in enumerate(episode):
                row[SLOT] = np.int64(self._slots + slot)
                row[STEP] = np.int64(step)
                row[ACTION] = recording.actions[step][slot]
                row[ANSWER] = recording.answers[step][slot]
                row[WON] = recording.won[step][slot]
                if self._states:
                    row[STATE] = recording.states[step][slot]
                    row[NEXT_STATE] = recording.states[step + 1][slot]
        # Dynamic sampling plays several rounds in a step; their episodes must not share a number.
        self._slots += len(rows)
