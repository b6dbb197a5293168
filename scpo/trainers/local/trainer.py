"""The embedded trainer: rollout, credit, update, validation and records in one process, on a CPU or one GPU.

Every random generator is seeded by (run seed, step, purpose), so that a run resumed from a checkpoint continues bit for
bit without storing random state.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from scpo.credit import assign
from scpo.envs import make_environment
from scpo.envs.base import Environment, Task
from scpo.errors import ConfigError
from scpo.progress import progress
from scpo.rollout import Trajectory, group_slots, rollout, step_batch
from scpo.scoring import make_scorer
from scpo.shaping.drive import Scorer
from scpo.shaping.order import positions
from scpo.tracking import Tracker
from scpo.trainers.local.checkpoint import complete_checkpoints, load_checkpoint, save_checkpoint
from scpo.trainers.local.model import load_huggingface, pick_device
from scpo.trainers.local.policy import LocalPolicy
from scpo.trainers.local.update import UpdateBatch, update
from scpo.trainers.local.validation import episode_metrics, validate
from scpo.trainers.local.warm_start import warm_started

if TYPE_CHECKING:
    from scpo.schema import RunConfig
    from scpo.tracking import RunFolder

logger = logging.getLogger(__name__)

ROLLOUT, SHUFFLE, TASKS, PROBE = range(4)  # purposes of a seed


@dataclass
class Clock:
    """Seconds spent in each named part of a step."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[f"timing_s/{name}"] += time.perf_counter() - started


@dataclass
class Session:
    """What one run holds in memory."""

    config: RunConfig
    environment: Environment
    policy: LocalPolicy
    reference: LocalPolicy | None
    optimizer: torch.optim.Optimizer
    scorer: Scorer


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """See :func:`scpo.trainers.train`."""
    torch.set_num_threads(config.machine.threads)
    session = _open(config)
    record_panels(session, folder)
    with Tracker(folder, config) as tracker:
        done = _resume(session, folder, tracker)
        if done is None:
            metrics, timing = _measure(session, 0)
            tracker.log(0, metrics, timing)
            done = 0
        for step in progress(range(done + 1, config.trainer.steps + 1), "training"):
            metrics, timing = _training_step(session, step, folder)
            if step % config.trainer.validation.every == 0 or step == config.trainer.steps:
                validation, seconds = _measure(session, step)
                metrics, timing = metrics | validation, timing | seconds
            tracker.log(step, metrics, timing)
            stop = should_stop()
            if stop or step % config.trainer.checkpoint_every == 0 or step == config.trainer.steps:
                _save(session, folder, step)
            if stop:
                return


def _open(config: RunConfig) -> Session:
    environment = make_environment(
        config.env, cache_dir=Path(config.machine.cache_dir), alfworld_data=config.machine.alfworld_data
    )
    policy = _policy(config, environment)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(),
        lr=config.trainer.optimizer.learning_rate,
        weight_decay=config.trainer.optimizer.weight_decay,
    )
    reference = None
    if config.trainer.loss.kl_coefficient > 0:
        reference = copy.copy(policy)
        reference.model = copy.deepcopy(policy.model).requires_grad_(False)
    scorer = make_scorer(config.scorer, device=str(policy.device))
    return Session(config, environment, policy, reference, optimizer, scorer)


def _policy(config: RunConfig, environment: Environment) -> LocalPolicy:
    if config.model.kind == "tiny":
        if config.env.prompt != "compact":
            raise ConfigError(
                f"model={config.model.name} reads only env.prompt=compact, got env.prompt={config.env.prompt}: "
                "its tokenizer and warm start are made for that prompt"
            )
        model, tokenizer = warm_started(config.model, config.env, environment, Path(config.machine.cache_dir))
    else:
        model, tokenizer = load_huggingface(config.model)
    return LocalPolicy(
        model.to(pick_device(config.machine.device)),
        tokenizer,
        max_prompt_tokens=config.trainer.max_prompt_tokens,
        max_response_tokens=config.trainer.max_response_tokens,
        batch_rows=config.trainer.rollout_batch,
    )


def _resume(session: Session, folder: RunFolder, tracker: Tracker) -> int | None:
    """Load the newest complete checkpoint and cut the logs behind it; None: the run starts at the beginning."""
    checkpoints = complete_checkpoints(folder.checkpoints)
    if not checkpoints:
        tracker.resume_at(-1)
        return None
    load_checkpoint(checkpoints[-1], session.policy.model, session.optimizer)
    tracker.resume_at(checkpoints[-1].step)
    logger.info("resumed from %s", checkpoints[-1].folder)
    return checkpoints[-1].step


def _save(session: Session, folder: RunFolder, step: int) -> None:
    save_checkpoint(
        folder.checkpoints,
        step,
        session.policy.model,
        session.policy.tokenizer,
        session.optimizer,
        keep=session.config.trainer.keep_checkpoints,
    )


def _measure(session: Session, step: int) -> tuple[dict[str, float], dict[str, float]]:
    """Every validation panel, in the order of their names."""
    config, clock = session.config, Clock()
    last = step == config.trainer.steps
    repeats = config.trainer.validation.final_repeats if last else config.trainer.validation.repeats
    metrics: dict[str, float] = {}
    with clock("validation"):
        for panel in sorted(config.env.validation_panels):
            metrics |= validate(
                session.environment,
                session.policy,
                panel,
                config.trainer.validation,
                repeats=repeats,
                retries=config.env.failure_retries,
            )
    return metrics, dict(clock.seconds)


def _training_step(session: Session, step: int, folder: RunFolder) -> tuple[dict[str, float], dict[str, float]]:
    config, clock = session.config, Clock()
    with clock("step"):
        with clock("rollout"):
            trajectories = _roll_out(session, step)
        with clock("credit"):
            batch = step_batch(
                trajectories,
                success_threshold=config.env.success_threshold,
                position_N=_positions(config, trajectories),
            )
            result = assign(batch, session.scorer, config.method, seed=(config.seed, step))
        with clock("update"):
            _set_learning_rate(session.optimizer, config, step)
            generations = [generation for trajectory in trajectories for generation in trajectory.generations]
            actor = update(
                session.policy,
                session.optimizer,
                UpdateBatch(generations, result.advantage_N),
                config.trainer,
                rng=np.random.default_rng((config.seed, step, SHUFFLE)),
                reference=session.reference,
            )
    return metrics, timing
