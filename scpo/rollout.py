"""Multi-turn rollout: a policy plays a batch of episodes in lockstep to form a StepBatch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.envs.base import (
    Environment,
    Episode,
    GivenState,
    StepResult,
    Task,
    given_state,
    state_text,
)
from scpo.errors import EnvironmentFailure, refuse_without_space
from scpo.generation import Generation
from scpo.steps import StepBatch, StrArray

logger = logging.getLogger(__name__)

ROLLOUT, SHUFFLE, TASKS, PROBE, AGAIN, CRITIC, PRECISION = range(7)
"""Random streams: the purpose in a generator's seed (run seed, training step, purpose).

Different purposes never share draws, so that switching one off (a probe, a critic) changes no other
and paired runs stay paired. The numbers are part of every recorded run: new ones are added at the
end. AGAIN is for further sampling rounds."""


class Policy(Protocol):
    """Anything that answers prompts: the model in training, a frozen one, an API."""

    max_response_tokens: int

    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """Sample one response per prompt; token ``l`` of row ``n`` uses ``uniforms_NL[n, l]``.

        The random numbers come from outside, so that a response depends on its own prompt and
        numbers and not on the other rows of the call. A policy that cannot be given them (an API)
        may use them as seeds or ignore them.

        Args:
            prompts: N texts.
            temperature: 0 is greedy.
            uniforms_NL: In [0, 1), with a column for each of ``max_response_tokens``.
        """


@dataclass(frozen=True)
class Slot:
    """Position of an episode in its batch.

    Attributes:
        group: Number of its group in the batch; siblings share it.
        sibling: Index in the group. Environments use it to choose the engine copy, and rewordings
            to draw, so that siblings differ in nothing else.
        task: The task that all siblings of the group play.
    """

    group: int
    sibling: int
    task: Task


@dataclass
class Trajectory:
    """One rollout; all lists have one entry for each step.

    Attributes:
        slot: Its place in the batch.
        prompts: What the policy read.
        anchors: The raw observation in each prompt, without history: GiGPO's anchor state.
        generations: The policy's responses, with token ids and log-probabilities.
        results: The environment's results of these responses.
        states: The state text before each step; None if the environment provides none.
        given: The environment's facts about that state; None if it provides none.
        restarts: How often the environment failed and the episode began again.
    """

    slot: Slot
    prompts: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    states: list[str | None] = field(default_factory=list)
    given: list[GivenState | None] = field(default_factory=list)
    restarts: int = 0

    def __len__(self) -> int:
        return len(self.results)

    @property
    def won(self) -> bool:
        """Success as the benchmark defines it; a graded return need not determine it."""
        return any(result.won for result in self.results)

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards."""
        return float(sum(result.reward for result in self.results))


@dataclass
class _Running:
    """A running episode.

    Attributes:
        episode: The environment's episode; replaced when it begins again.
        trajectory: Its finished steps.
        rng: Generator of the uniform numbers that sample its tokens.
        failures: How often its environment has failed.
    """

    episode: Episode
    trajectory: Trajectory
    rng: np.random.Generator
    failures: int = 0


def training_tasks(
    tasks: Sequence[Task], *, groups: int, seed: int, step: int, turn: int = 0
) -> list[Task]:
    """Select the ``groups`` tasks of training step ``step`` (from 1), in passes over the panel.

    Each pass visits the panel in a new order. The choice is a function of the arguments, so that a
    resumed run needs no saved position and paired methods play the same tasks.

    Args:
        tasks: The training panel, in its fixed order.
        groups: Tasks of a step.
        seed: The run's seed.
        step: Number of the training step, from 1.
        turn: Sampling round (DAPO), 0 for the first; later rounds visit the panel in other orders
            (ledger 26).
    """
    # The first round's seed has no turn, so that its tasks do not depend on further rounds.
    purpose = (TASKS, turn) if turn else (TASKS,)
    chosen = []
    # A step may cross the end of a pass; its tasks then come from two orders.
    for place in range((step - 1) * groups, step * groups):
        pass_number, index = divmod(place, len(tasks))
        order = np.random.default_rng((seed, pass_number, *purpose)).permutation(len(tasks))
        chosen.append(tasks[order[index]])
    return chosen


def group_slots(tasks: Sequence[Task], group_size: int, *, first_group: int = 0) -> list[Slot]:
    """``group_size`` siblings for each task; groups are numbered from ``first_group``."""
    groups = enumerate(tasks, start=first_group)
    return [Slot(group, sibling, task) for group, task in groups for sibling in range(group_size)]


def rollout(
    environment: Environment,
    policy: Policy,
    slots: Sequence[Slot],
    *,
    temperature: float,
    seed: Sequence[int],
    retries: int,
) -> list[Trajectory]:
    """Play one episode for each slot, all in lockstep.

    Each episode draws from its own stream, seeded by (``seed``, slot index), so that its samples do
    not depend on its neighbours or on their lengths.

    Args:
        environment: Starts the episodes.
        policy: Answers the prompts, one batch a turn.
        slots: One for each episode.
        temperature: Sampling temperature; 0 is greedy.
        seed: Non-negative integers, e.g. (run seed, training step).
        retries: How often an episode whose environment fails starts again before the rollout stops.

    Returns:
        One trajectory for each slot, in the order of ``slots``.

    Raises:
        EnvironmentFailure: An environment failed more often than ``retries`` allows.
    """
    running = [
        _start(environment, slot, (*seed, index), retries) for index, slot in enumerate(slots)
    ]
    while active := [run for run in running if not run.episode.done]:
        prompts = [run.episode.prompt() for run in active]
        # Numbers for a whole response are drawn even if it ends early, so that the next turn starts
        # at the same place of the stream.
        uniforms_NL = np.stack([run.rng.random(policy.max_response_tokens) for run in active])
        generations = policy.generate(prompts, temperature, uniforms_NL)
        for run, prompt, generation in zip(active, prompts, generations, strict=True):
            _step(environment, run, prompt, generation, retries)
    return [run.trajectory for run in running]


def _start(environment: Environment, slot: Slot, seed: Sequence[int], retries: int) -> _Running:
    """Begin the episode of a slot, with a generator seeded by ``seed``."""
    episode, failures = _episode(environment, slot, 0, retries)
    generator = np.random.default_rng(np.random.SeedSequence(list(seed)))
    return _Running(episode, Trajectory(slot, restarts=failures), generator, failures)


def _episode(
    environment: Environment, slot: Slot, failures: int, retries: int
) -> tuple[Episode, int]:
    """Start an episode; try again if the environment fails.

    Args:
        environment: Starts the episode.
        slot: Its task and its place in the group.
        failures: How often the slot's episodes failed before.
        retries: How many failures are allowed.

    Returns:
        The episode and the slot's failures so far.

    Raises:
        EnvironmentFailure: There are more failures than ``retries``.
    """
    while True:
        try:
            return environment.start(slot.task, slot.sibling), failures
        except EnvironmentFailure as failure:
            failures += 1
            _check_retries(slot, failure, failures, retries)


def _check_retries(slot: Slot, failure: EnvironmentFailure, failures: int, retries: int) -> None:
    """Log a failure after which the episode starts again.

    Raises:
        EnvironmentFailure: There are more failures than ``retries``.
        RecordWriteError: A disk, a quota or the limit on the size of files is full.
    """
    refuse_without_space(failure, f"episode of task {slot.task.id} cannot be played")
    if failures > retries:
        raise EnvironmentFailure(
            f"episode of task {slot.task.id} (group {slot.group}, sibling {slot.sibling}) "
            f"failed {failures} times, {retries} retries are allowed "
            f"(env.failure_retries): {failure}"
        ) from failure
    logger.warning("%s; the episode starts again (%d of %d retries)", failure, failures, retries)


def _step(
    environment: Environment, run: _Running, prompt: str, generation: Generation, retries: int
) -> None:
    """Advance one episode by one response, or begin it again where its environment fails.

    Raises:
        EnvironmentFailure: It failed more than ``retries`` times.
    """
    # Read before the step, which replaces the observation.
    anchor = run.episode.observation
    before = run.trajectory.results
    # The state before this step is the one after the previous step.
    state = before[-1].state if before else state_text(run.episode)
    given = before[-1].given if before else given_state(run.episode)
    try:
        result = run.episode.step(generation.text)
    except EnvironmentFailure as failure:
        # The whole episode is played again in its slot: without this sibling the group's statistics
        # would change, and half a trajectory has no return.
        slot = run.trajectory.slot
        _check_retries(slot, failure, run.failures + 1, retries)
        run.episode, run.failures = _episode(environment, slot, run.failures + 1, retries)
        # The generator of uniform numbers is kept: the new episode must not repeat the draws of the
        # broken one.
        run.trajectory = Trajectory(slot, restarts=run.failures)
        return

    run.trajectory.prompts.append(prompt)
    run.trajectory.anchors.append(anchor)
    run.trajectory.generations.append(generation)
    run.trajectory.results.append(result)
    run.trajectory.states.append(state)
    run.trajectory.given.append(given)


def step_batch(
    trajectories: Sequence[Trajectory],
    *,
    success_threshold: float,
    position_N: NDArray[np.int64] | None = None,
    measured: Mapping[str, NDArray[np.float32]] | None = None,
) -> StepBatch:
    """Rows of ``trajectories``, trajectory by trajectory in time order.

    Args:
        trajectories: Finished rollouts; row order follows theirs.
        success_threshold: tau_succ; a return above it is a success for the shaper.
        position_N: The trainer's processing order; None: the row order.
        measured: The optional columns that the estimator requires, by name (``entropy_N``,
            ``hindsight_logprob_N``), each (N,).

    Returns:
        A batch without copies: only trainers that must fill a last mini-batch make any.
    """
    # (trajectory, step) of each row.
    steps = [
        (index, t) for index, trajectory in enumerate(trajectories) for t in range(len(trajectory))
    ]
    owner = [trajectories[index] for index, _ in steps]
    results = [trajectories[index].results[t] for index, t in steps]
    length_K = [len(trajectory) for trajectory in trajectories]
    return_K = [trajectory.episode_return for trajectory in trajectories]
    return_N = np.repeat(np.array(return_K, dtype=np.float32), length_K)
    columns: dict[str, Any] = {
        **_states(trajectories),
        **_given(trajectories),
        **(measured or {}),
    }
    return StepBatch(
        group_N=np.array([trajectory.slot.group for trajectory in owner]),
        trajectory_N=np.array([index for index, _ in steps]),
        step_N=np.array([t for _, t in steps], dtype=np.int32),
        task_N=np.array([trajectory.slot.task.family for trajectory in owner], dtype=object),
        anchor_N=np.array([trajectories[index].anchors[t] for index, t in steps], dtype=object),
        action_N=np.array([result.action for result in results], dtype=object),
        next_observation_N=np.array([result.observation for result in results], dtype=object),
        reward_N=np.array([result.reward for result in results], dtype=np.float32),
        valid_N=np.array([result.valid for result in results]),
        episode_return_N=return_N,
        # Compared in float32, the type of the returns: in float64, 0.1 is another number.
        success_N=return_N > np.float32(success_threshold),
        won_N=np.repeat([trajectory.won for trajectory in trajectories], length_K),
        position_N=np.arange(len(steps)) if position_N is None else position_N,
        is_copy_N=np.zeros(len(steps), dtype=np.bool_),
        task_id_N=np.array([trajectory.slot.task.id for trajectory in owner], dtype=object),
        **columns,
    )


def _given(trajectories: Sequence[Trajectory]) -> dict[str, NDArray[Any]]:
    """Columns of the facts about states that the environment provides besides the state texts.

    A column is left out if one row lacks its value: estimators compare rows with one another, and
    a batch with rows of both kinds would mix two meanings of a state.
    """
    before = [given for trajectory in trajectories for given in trajectory.given]
    results = [result for trajectory in trajectories for result in trajectory.results]
    after = [result.given for result in results]
    columns: dict[str, NDArray[Any]] = {}
    # A trajectory that was built without these facts has fewer of them than steps.
    if len(before) < len(after):
        return columns
    for name in ("facts", "commands", "true_anchor", "true_state"):
        texts = [getattr(given, name, None) for given in before]
        next_texts = [getattr(given, name, None) for given in after]
        if None not in texts and None not in next_texts:
            columns[f"{name}_N"] = np.array(texts, dtype=object)
            columns[f"next_{name}_N"] = np.array(next_texts, dtype=object)

    no_ops = [result.no_op for result in results]
    if no_ops and None not in no_ops:
        columns["no_op_N"] = np.array(no_ops, dtype=np.bool_)
    return columns


def _states(trajectories: Sequence[Trajectory]) -> dict[str, StrArray]:
    """Columns of state texts; empty if the environment provides none."""
    before = [state for trajectory in trajectories for state in trajectory.states]
    after = [result.state for trajectory in trajectories for result in trajectory.results]
    if len(before) < len(after) or None in before or None in after:
        return {}
    return {
        "state_N": np.array(before, dtype=object),
        "next_state_N": np.array(after, dtype=object),
    }
