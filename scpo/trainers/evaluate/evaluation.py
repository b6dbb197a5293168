"""Evaluation without training: every validation panel is played once.

The metrics are logged twice, at step 0 and at the run's last step. The run thus counts as finished
like any other, and tables and curves show it as a constant next to the trained rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scpo.agents import make_agent
from scpo.agents.base import Agent, ReflectingAgent
from scpo.diagnostics.validation_episodes import Played, panel_records, save_validation
from scpo.envs import open_environment
from scpo.envs.base import Environment
from scpo.errors import ConfigError
from scpo.generation import Generation
from scpo.installed import install_command
from scpo.records.tracker import Tracker
from scpo.rollout import Policy, group_slots
from scpo.trainers.evaluate.episode_records import (
    EpisodeLog,
    EpisodeRecord,
    panel_metrics,
    usage_metrics,
)
from scpo.trainers.evaluate.play import BilledGeneration, play_all

if TYPE_CHECKING:
    from scpo.agents.chat import ChatClient
    from scpo.records import RunFolder
    from scpo.schema.run import RunConfig

logger = logging.getLogger(__name__)

REPORT_EVERY = 20  # episodes


@dataclass
class Session:
    """State of one evaluation.

    Attributes:
        config: The run's configuration, of a prompting method.
        folder: The run folder, for logs and transcripts.
        environment: Starts the episodes.
        policy: The model, local or called through an API.
        agent: Makes prompts from observations, thoughts and reflections.
        should_stop: Called before every turn; True ends the evaluation.
    """

    config: RunConfig
    folder: RunFolder
    environment: Environment
    policy: Policy
    agent: Agent
    should_stop: Callable[[], bool]


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """Play all unfinished episodes and log the metrics; see :func:`scpo.trainers.train`.

    ``should_stop`` is called before every turn.
    """
    assert config.method.kind == "prompted"  # noqa: S101 (no other method is sent here)
    environment = open_environment(config)
    with _policy(config, environment, should_stop) as policy, Tracker(folder, config) as tracker:
        folder.pin_panels(panel_records(environment, config))
        # There are no checkpoints: the episodes of earlier attempts are in the episode logs.
        tracker.resume_at(-1)
        started = time.perf_counter()
        agent = make_agent(config.method.agent)
        metrics = _measure(Session(config, folder, environment, policy, agent, should_stop))
        if metrics is not None:
            tracker.log(0, metrics, {"timing_s/validation": time.perf_counter() - started})
            # The same metrics again: see the module's docstring.
            tracker.log(config.trainer.steps, metrics, {})


def _measure(session: Session) -> dict[str, float] | None:
    """Play every validation panel in order of names; None if the run was asked to stop."""
    metrics: dict[str, float] = {}
    played: list[EpisodeRecord] = []
    panels: dict[str, list[Played]] = {}
    for panel in sorted(session.config.env.validation_panels):
        log = EpisodeLog(session.folder, panel)
        by_number = _play_panel(session, panel, log)
        if by_number is None:
            return None
        records = [by_number[number] for number in sorted(by_number)]
        values = panel_metrics(records, reflecting=isinstance(session.agent, ReflectingAgent))
        metrics |= {f"val/{panel}/{name}": value for name, value in values.items()}
        played += records
        panels[panel] = log.played(by_number)

    save_validation(session.folder, session.config.trainer.steps, panels)
    return metrics | usage_metrics(played, billed=session.config.model.kind == "api")


def _play_panel(session: Session, panel: str, log: EpisodeLog) -> dict[int, EpisodeRecord] | None:
    """Episodes of the panel by number, with those of earlier attempts; None if asked to stop.

    Finished episodes are read from the log and not played again.
    """
    config = session.config
    slots = group_slots(
        session.environment.panel(panel).tasks, config.env.validation_panels[panel].repeats
    )
    records = log.read(slots)
    if records:
        logger.info("%s: %d of %d episodes are finished already", panel, len(records), len(slots))
    left = {number: slot for number, slot in enumerate(slots) if number not in records}
    # A local model answers all prompts of a turn in one batch; an API limits concurrent requests.
    window = config.machine.api.concurrency if config.model.kind == "api" else max(1, len(left))
    try:
        for number, play in play_all(
            session.environment,
            session.policy,
            session.agent,
            left,
            temperature=config.trainer.validation.temperature,
            seed=config.trainer.validation.seed,
            retries=config.env.failure_retries,
            window=window,
            should_stop=session.should_stop,
        ):
            records[number] = play.record()
            log.add(number, records[number], play.transcript)
            if len(records) % REPORT_EVERY == 0 or len(records) == len(slots):
                _report(panel, records.values(), len(slots))
    finally:
        log.close()

    return records if len(records) == len(slots) else None


def _report(panel: str, records: Collection[EpisodeRecord], total: int) -> None:
    """Log the number of finished episodes, how many were won, and their cost."""
    won = sum(record.won for record in records)
    cost = sum(record.cost_usd for record in records)
    bill = f", {cost:.2f} USD" if cost else ""
    logger.info("%s: %d of %d episodes, %d won%s", panel, len(records), total, won, bill)


@contextmanager
def _policy(
    config: RunConfig, environment: Environment, should_stop: Callable[[], bool]
) -> Iterator[Policy]:
    """Policy of the configured model, local or called through an API.

    Raises:
        ConfigError: The model is called through an API, and the extra agents is not installed.
    """
    # Imported here, because an API is used without torch, and a local model without the packages of
    # an API.
    if config.model.kind != "api":
        import torch

        from scpo.policies.make_policy import make_policy

        torch.set_num_threads(config.machine.threads)
        yield make_policy(config, environment, should_stop)
        return

    try:
        from scpo.agents.chat import ChatClient
    except ImportError as error:
        raise ConfigError(
            f"model={config.model.name} needs the extra agents ({error}): "
            f"{install_command('agents')}"
        ) from None

    policy = ChatPolicy(
        ChatClient(config.model, config.machine.api), config.trainer.max_response_tokens
    )
    try:
        yield policy
    finally:
        policy.close()


class ChatPolicy:
    """A chat endpoint as a policy: all prompts of a turn are sent at once, in threads.

    See :class:`scpo.rollout.Policy`. The first uniform number of a row determines the sampling
    seed, for endpoints that accept one.

    Args:
        client: Sends the requests, repeats failed ones, and limits their rate.
        max_response_tokens: Longest answer.
    """

    def __init__(self, client: ChatClient, max_response_tokens: int) -> None:
        self.client = client
        self.max_response_tokens = max_response_tokens
        self._threads = ThreadPoolExecutor(client.limits.concurrency, thread_name_prefix="chat")

    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """Return one answer for each prompt; the first permanent failure ends the turn."""

        def ask(prompt: str, uniform: float) -> Generation:
            answer = self.client.complete(
                prompt,
                temperature=temperature,
                max_tokens=self.max_response_tokens,
                # From [0, 1) to the non-negative signed 32-bit integers.
                seed=int(uniform * 2**31),
            )
            return BilledGeneration(
                text=answer.text,
                prompt_ids=(),
                response_ids=(),
                logprobs=(),
                prompt_tokens=answer.prompt_tokens,
                response_tokens=answer.response_tokens,
                cost_usd=answer.cost_usd(self.client.model.prices),
            )

        # `map` keeps the order of the prompts.
        return list(self._threads.map(ask, prompts, uniforms_NL[:, 0].tolist()))

    def close(self) -> None:
        """Drop queued and running requests, without waiting for an endpoint that may hang."""
        self.client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
