"""Episodes played by an agent.

Each episode is a coroutine that yields prompts and receives responses; many are played in lockstep.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scpo.agents.base import Agent, ReflectingAgent, Turn, without_thoughts
from scpo.envs.base import Environment, Episode
from scpo.errors import EnvironmentFailure, refuse_without_space
from scpo.generation import Generation
from scpo.rollout import Policy, Slot, Trajectory
from scpo.trainers.evaluate.episode_records import EpisodeRecord

logger = logging.getLogger(__name__)

PromptCoroutine = Generator[str, Generation, None]
"""Yields a prompt and receives the response."""


@dataclass(frozen=True, kw_only=True)
class BilledGeneration(Generation):
    """Response of an API, which reports the number of tokens but not the tokens.

    Attributes:
        prompt_tokens: Number of billed tokens.
        response_tokens: Number of billed tokens, including hidden reasoning if the API counts it.
        cost_usd: Cost at the prices of the model's configuration.
    """

    prompt_tokens: int
    response_tokens: int
    cost_usd: float

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens


@dataclass
class Play(Trajectory):
    """Episode in progress: steps of the last attempt, transcript, and bill of all attempts.

    Attributes:
        attempts: Number of attempts, including the present one.
        turns: Turns of the present attempt, which the agent's prompt shows.
        reflections: Notes on the failed attempts, oldest first.
        transcript: A record for each request of all attempts, reflections included.
        prompt_tokens: Sum over all requests.
        response_tokens: Sum over all requests.
        cost_usd: Sum over all requests.
    """

    attempts: int = 0
    turns: list[Turn] = field(default_factory=list)
    reflections: list[str] = field(default_factory=list)
    transcript: list[dict[str, Any]] = field(default_factory=list)
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost_usd: float = 0.0

    def record(self) -> EpisodeRecord:
        """Record of the finished episode."""
        return EpisodeRecord.of(
            self,
            attempts=self.attempts,
            prompt_tokens=self.prompt_tokens,
            response_tokens=self.response_tokens,
            cost_usd=self.cost_usd,
        )

    def note(self, kind: str, prompt: str, generation: Generation, **more: Any) -> None:
        """Add a request to the transcript, and its tokens and cost to the sums."""
        prompt_tokens, response_tokens, cost_usd = _usage(generation)
        self.prompt_tokens += prompt_tokens
        self.response_tokens += response_tokens
        self.cost_usd += cost_usd
        self.transcript.append(
            {
                "step": len(self.results),
                "attempt": self.attempts,
                "kind": kind,
                "prompt": prompt,
                "response": generation.text,
                "prompt_tokens": prompt_tokens,
                "response_tokens": response_tokens,
                "cost_usd": cost_usd,
                **more,
            }
        )


def _usage(generation: Generation) -> tuple[int, int, float]:
    """Prompt tokens, response tokens and cost; a local model costs nothing."""
    if isinstance(generation, BilledGeneration):
        return generation.prompt_tokens, generation.response_tokens, generation.cost_usd
    return len(generation.prompt_ids), len(generation.response_ids), 0.0


def play_all(
    environment: Environment,
    policy: Policy,
    agent: Agent,
    slots: Mapping[int, Slot],
    *,
    temperature: float,
    seed: int,
    retries: int,
    window: int,
    should_stop: Callable[[], bool],
) -> Iterator[tuple[int, Play]]:
    """Play an episode for each slot, ``window`` at a time, and yield each with its number.

    Episode ``n`` draws from the stream (``seed``, n), as in ``scpo.rollout``: its samples depend
    neither on other episodes in the window nor on which episodes were finished earlier. Ends early
    when ``should_stop()`` returns True.

    Args:
        environment: Starts the episodes.
        policy: Answers all prompts of a turn at once.
        agent: Makes the prompts.
        slots: Tasks to play, by episode number.
        temperature: Sampling temperature.
        seed: Sampling seed.
        retries: How often an attempt may start again after its environment failed.
        window: Number of episodes that are played at the same time.
        should_stop: Called before every turn; if True, episodes in progress are lost.

    Yields:
        Number and play of each episode as it ends, in no fixed order.

    Raises:
        EnvironmentFailure: An environment failed more often than ``retries`` allows.
    """
    waiting = deque(sorted(slots.items()))
    running = list[_Running]()
    while (waiting or running) and not should_stop():
        # Fill the window.
        while waiting and len(running) < window:
            number, slot = waiting.popleft()
            play = Play(slot)
            running.append(_Running(number, play, episode(environment, agent, play, retries), seed))

        # Each episode draws from its own stream, independent of the others.
        uniforms_NL = np.stack([each.rng.random(policy.max_response_tokens) for each in running])
        generations = policy.generate([each.prompt for each in running], temperature, uniforms_NL)
        for episode_run, generation in zip(running, generations, strict=True):
            episode_run.send(generation)
            if episode_run.done:
                yield episode_run.number, episode_run.play
        # The next turn fills the places of finished episodes: slow ones must not delay others.
        running = [each for each in running if not each.done]


class _Running:
    """One episode's coroutine with its number and its random stream."""

    def __init__(self, number: int, play: Play, coroutine: PromptCoroutine, seed: int) -> None:
        self.number = number
        self.play = play
        self.rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
        self.done = False
        self._coroutine = coroutine
        # Run the coroutine to its first prompt.
        self.prompt = next(self._coroutine)

    def send(self, generation: Generation) -> None:
        """Send a response to the coroutine and run it to its next prompt or its end."""
        try:
            self.prompt = self._coroutine.send(generation)
        except StopIteration:
            self.done = True


def episode(environment: Environment, agent: Agent, play: Play, retries: int) -> PromptCoroutine:
    """Coroutine of an episode: prompts out, responses in.

    A reflecting agent makes further attempts until it wins or has used all trials.
    """
    while True:
        play.attempts += 1
        yield from _attempt(environment, agent, play, retries)
        if play.won or not isinstance(agent, ReflectingAgent) or play.attempts == agent.trials:
            return

        # A note on the failure, for the next attempt; an empty note is left out.
        prompt = agent.reflection_prompt(play.turns, play.reflections)
        generation = yield prompt
        play.note("reflect", prompt, generation)
        if reflection := without_thoughts(generation.text):
            play.reflections.append(reflection)


def _attempt(environment: Environment, agent: Agent, play: Play, retries: int) -> PromptCoroutine:
    """Coroutine of one attempt; if the environment fails, it starts again from the first step."""
    failures = 0
    running = _begin(environment, play)
    while not running.done:
        current = running.prompt()
        prompt = agent.prompt(current, play.turns, play.reflections)
        generation = yield prompt
        try:
            result = running.step(generation.text)
        except EnvironmentFailure as failure:
            # The request was billed, although the attempt starts again.
            play.note("lost", prompt, generation)
            failures += 1
            play.restarts += 1
            _check_failures(play.slot, failures, retries, failure)
            running = _begin(environment, play)
            continue
        play.note(
            "act",
            prompt,
            generation,
            action=result.action,
            valid=result.valid,
            observation=result.observation,
            reward=result.reward,
            won=result.won,
        )
        play.turns.append(Turn(current, generation.text, result.action, result.observation))
        play.results.append(result)


def _begin(environment: Environment, play: Play) -> Episode:
    """Start the episode's task from its beginning, without the steps made so far."""
    play.turns = []
    play.results = []
    try:
        return environment.start(play.slot.task, play.slot.sibling)
    except EnvironmentFailure as failure:
        refuse_without_space(failure, f"episode of task {play.slot.task.id} cannot be played")
        raise


def _check_failures(slot: Slot, failures: int, retries: int, failure: EnvironmentFailure) -> None:
    """Warn of a failure, or raise it once there were more than ``retries``."""
    refuse_without_space(failure, f"episode of task {slot.task.id} cannot be played")
    if failures > retries:
        raise EnvironmentFailure(
            f"episode of task {slot.task.id} (repeat {slot.sibling}) failed {failures} times, "
            f"{retries} retries are allowed (env.failure_retries): {failure}"
        ) from failure
    logger.warning("%s; the attempt starts again (%d of %d retries)", failure, failures, retries)
