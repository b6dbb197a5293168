"""Embedded trainer: rollout, credit, update, validation and records in one process (CPU or GPU).

Checkpoints store neither random states nor the scorer's cache: every random generator is seeded by
(run seed, step, purpose), and the cache is cleared before each step. On a CPU, a resumed run thus
continues bit for bit.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.credit.assign import assign, assign_tokens, resolve
from scpo.credit.metrics import CreditDiagnostics
from scpo.credit.states import make_memory
from scpo.diagnostics.record import Diagnostics
from scpo.diagnostics.validation_episodes import episode_metrics, panel_records, validation_metrics
from scpo.envs import open_environment
from scpo.envs.base import CachingEnvironment, Environment, OpenableEnvironment, Task
from scpo.errors import ScorerError
from scpo.generation import Generation
from scpo.policies.base import TrainedPolicy
from scpo.policies.batches import response_mask
from scpo.policies.critic import Targets, make_critic, update_critic, values
from scpo.policies.make_policy import make_policy
from scpo.records.memory import NodeMemory
from scpo.records.tracker import Tracker
from scpo.rollout import (
    AGAIN,
    CRITIC,
    PROBE,
    ROLLOUT,
    SHUFFLE,
    Slot,
    Trajectory,
    group_slots,
    rollout,
    step_batch,
    training_tasks,
)
from scpo.schema.method import required
from scpo.scoring import PairCache, open_scorer
from scpo.shaping.order import UNSHAPED_ORDER, UNSHAPED_RANKS, positions
from scpo.steps import FloatArray, StepBatch
from scpo.trainers.local.checkpoint import Learned, load_checkpoint, newest_usable, save_checkpoint
from scpo.trainers.local.measurements import measure
from scpo.trainers.local.sampling import Draw, Sampled, sample
from scpo.trainers.local.update import UpdateBatch, update

if TYPE_CHECKING:
    from scpo.records import RunFolder
    from scpo.schema.run import RunConfig

logger = logging.getLogger(__name__)

# Environments that `open_ahead` opened before a fork, by `_environment_key`.
_opened: dict[tuple[str, str, str | None], Environment] = {}

# Thresholds of the garbage collector. GC_YOUNG: allocations before the youngest objects are
# examined (Python's default: 700). GC_OLD: collections of younger objects before the oldest are
# examined, so high that this happens only at checkpoints.
GC_YOUNG = 100_000
GC_OLD = 1_000_000


@dataclass
class Clock:
    """Seconds spent in each named part of a step."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[f"timing_s/{name}"] += time.perf_counter() - started

    def move(self, seconds: float, to: str, *, out_of: Sequence[str]) -> None:
        """Count seconds that were measured within the parts ``out_of`` as the part ``to``."""
        self.seconds[f"timing_s/{to}"] += seconds
        for name in out_of:
            self.seconds[f"timing_s/{name}"] -= seconds


@dataclass
class Session(Learned):
    """Objects that one run holds in memory; those of ``Learned`` are in its checkpoints.

    Attributes:
        config: The run's configuration.
        environment: Panels, games and episodes.
        reference: The initial policy, for the KL term; None without one.
        scorer: Scorer with a cache of the pairs of one training step.
        diagnostics: Records samples for analysis, and measures the precision of credit.
    """

    config: RunConfig
    environment: Environment
    reference: TrainedPolicy | None
    scorer: PairCache
    diagnostics: Diagnostics


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """See :func:`scpo.trainers.train`."""
    # Several runs may share a machine, so one must not take all of its cores.
    torch.set_num_threads(config.machine.threads)
    session = _open(config, folder, should_stop)

    # Checked before the first line is logged: a run must not continue on other games.
    folder.pin_panels(panel_records(session.environment, config))

    # GPUs whose memory is measured: those of CUDA_VISIBLE_DEVICES, or the first, torch's default.
    gpus = None
    if session.policy.device.type == "cuda":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    with (
        Tracker(folder, config) as tracker,
        _collected_at_checkpoints() as collect,
        NodeMemory(gpus=gpus) as memory,
    ):
        last_step = _resume(session, tracker)
        if last_step is None:
            # Step 0 is the policy before training.
            metrics, timing = _measure(session, 0)
            _probe(session, 0)
            tracker.log(0, metrics, timing | memory.take())
            last_step = 0

        for step in range(last_step + 1, config.trainer.steps + 1):
            metrics, timing = _training_step(session, step, tracker)
            if step % config.trainer.validation.every == 0 or step == config.trainer.steps:
                # Also at the last step, so that every run ends with a measured policy.
                validation, seconds = _measure(session, step)
                metrics, timing = metrics | validation, timing | seconds
            _probe(session, step)
            tracker.log(step, metrics, timing | memory.take())
            stop = should_stop()
            if stop or step % config.trainer.checkpoint_every == 0 or step == config.trainer.steps:
                # Saved after the line is logged, because the checkpoint holds the checksums of the
                # logs at its step.
                _save(session, tracker, step)
                collect()
            if stop:
                return


def _open(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> Session:
    """Open environment, models and scorer, including the warm start of a policy that has one."""
    environment = _environment_of(config)
    policy = make_policy(config, environment, should_stop)

    # fused: one kernel for all parameters; on a CPU a step then takes less than 1 ms, not 65 ms.
    optimizer = torch.optim.AdamW(
        policy.model.parameters(),
        lr=config.trainer.optimizer.learning_rate,
        weight_decay=config.trainer.optimizer.weight_decay,
        fused=True,
    )
    # Only the KL term needs the initial policy, a second copy of the weights.
    reference = None
    if config.trainer.loss.kl_coefficient > 0:
        # Only the weights are copied: tokenizer and settings are shared.
        reference = copy.copy(policy)
        reference.model = copy.deepcopy(policy.model).requires_grad_(False)

    critic = None
    if "value" in required(config.method):
        # Every estimator that requires values has settings of a critic.
        critic_settings = config.trained.estimator.critic  # type: ignore[attr-defined]
        critic = make_critic(policy, critic_settings, config.trainer.optimizer.weight_decay)

    cache_dir = Path(config.machine.cache_dir)
    scorer = open_scorer(
        config.scorer, config.machine.scorer, device=str(policy.device), cache_dir=cache_dir
    )
    shaper = config.trained.shaper
    buffer = shaper.make_buffer() if shaper else None
    diagnostics = Diagnostics(config, folder, scorer, lambda: environment)
    return Session(
        policy,
        optimizer,
        config,
        environment,
        reference,
        scorer,
        diagnostics,
        critic=critic,
        buffer=buffer,
        memory=make_memory(config.trained),
    )


def _resume(session: Session, tracker: Tracker) -> int | None:
    """Load the newest intact checkpoint and truncate the logs to it; None: start from step 0."""
    # `resume_at` truncates the logs; a checkpoint whose logs are damaged is skipped.
    checkpoint = newest_usable(
        tracker.folder, lambda found: tracker.resume_at(found.step, found.logs)
    )
    if checkpoint is None:
        tracker.resume_at(-1)
        return None
    load_checkpoint(checkpoint, session)
    logger.info("resumed from %s", checkpoint.folder)
    return checkpoint.step


def _save(session: Session, tracker: Tracker, step: int) -> None:
    """Write a checkpoint of the present state as that of ``step``."""
    keep = session.config.trainer.keep_checkpoints
    save_checkpoint(tracker.folder.checkpoints, step, session, keep=keep, logs=tracker.sums)


def _measure(session: Session, step: int) -> tuple[dict[str, float], dict[str, float]]:
    """Validate on every panel, in the order of the names, with equal draws at every validation."""
    validation = session.config.trainer.validation
    clock = Clock()
    panels = {}
    with clock("validation"):
        for panel in sorted(session.config.env.validation_panels):
            logger.info("validation: panel %s", panel)
            repeats = session.config.env.validation_panels[panel].repeats
            slots = group_slots(session.environment.panel(panel).tasks, repeats)
            # The seed contains neither run nor step, so that curves differ only by the policy.
            panels[panel] = _play(session, slots, (validation.seed,), validation.temperature)
        session.diagnostics.record_validation(step, panels)
    return validation_metrics(panels), dict(clock.seconds)


def _play(
    session: Session, slots: Sequence[Slot], seed: tuple[int, ...], temperature: float | None = None
) -> list[Trajectory]:
    """Play an episode in each slot; ``temperature`` None: that of training."""
    return rollout(
        session.environment,
        session.policy,
        slots,
        temperature=session.config.trainer.temperature if temperature is None else temperature,
        seed=seed,
        retries=session.config.env.failure_retries,
    )


def _training_step(
    session: Session, step: int, tracker: Tracker
) -> tuple[dict[str, float], dict[str, float]]:
    """One training step: rollout, measurements, credit, critic, update, diagnostics.

    Returns:
        Metrics, which are equal in a repeated run on a CPU bit for bit, and timings, which are not.
    """
    config = session.config
    clock = Clock()
    with clock("step"):
        uncached_s = _uncached_s(session.environment)
        with clock("rollout"):
            sampled = _roll_out(session, step)
        uncached_s = _uncached_s(session.environment) - uncached_s
        generations = _generations(sampled.kept)
        # Before the update: entropies and hindsight must be those of the policy that sampled.
        with clock("measure"):
            measured = measure(session.policy, sampled.kept, config)
        # Rows of the batch, scores of step texts, and advantages.
        with clock("credit"):
            batch = step_batch(
                sampled.kept,
                success_threshold=config.env.success_threshold,
                position_N=_positions(config, sampled.kept),
                measured=measured,
            )
            # Clears the cached pairs of earlier steps, which a resumed run would not have either.
            session.scorer.begin_step()
            advantage, credit, targets = _estimate(session, step, tracker, batch, generations)
            scored = session.scorer.report()
        with clock("critic"):
            critic = _update_critic(session, generations, targets, step)
        with clock("update"):
            _set_learning_rate(session.optimizer, config, step)
            actor = update(
                session.policy,
                session.optimizer,
                UpdateBatch(generations, advantage),
                config.trainer,
                rng=np.random.default_rng((config.seed, step, SHUFFLE)),
                reference=session.reference,
            )

    # The first run on a machine fills the environment's caches for all others. These seconds are
    # moved out, because they depend on the order of the runs and not on the method.
    clock.move(uncached_s, to="uncached", out_of=("rollout", "step"))

    # Not part of the step's seconds, which are compared with the paper's (ledger 54).
    with clock("diagnostics"):
        precision = session.diagnostics.record(step, batch, credit, sampled.kept)
    metrics = _rollout_metrics(sampled) | critic | actor | credit.metrics | precision
    return metrics, dict(clock.seconds) | credit.timings | scored


def _uncached_s(environment: Environment) -> float:
    """Seconds spent so far on cache misses; 0 without caches that outlive a run."""
    return environment.uncached_s if isinstance(environment, CachingEnvironment) else 0.0


def _estimate(
    session: Session,
    step: int,
    tracker: Tracker,
    batch: StepBatch,
    generations: Sequence[Generation],
) -> tuple[FloatArray, CreditDiagnostics, Targets | None]:
    """Compute advantages of rows (N,), or of tokens (N, L) with the critic's value targets.

    If the scorer fails permanently, the state before this step is saved as a checkpoint.
    """
    config = session.config
    critic = session.critic
    seed = (session.config.seed, step)
    if critic is not None and resolve(config.trained).level == "token":
        value_NL = values(critic, generations, config.trainer.micro_batch_rows)
        mask_NL = response_mask(generations)
        advantage_NL, return_NL, credit = assign_tokens(
            batch, value_NL, mask_NL, config.trained, seed=seed
        )
        return advantage_NL, credit, Targets(value_NL, return_NL)

    try:
        advantage_N, credit = assign(
            batch,
            session.scorer,
            config.trained,
            seed=seed,
            speculate=config.machine.scorer.speculate,
            buffer=session.buffer,
            memory=session.memory,
        )
    except ScorerError:
        # This step has not changed the learned state, so that a resumed run can repeat it.
        _save(session, tracker, step - 1)
        raise

    return advantage_N, credit, None


def _update_critic(
    session: Session, generations: Sequence[Generation], targets: Targets | None, step: int
) -> dict[str, float]:
    """Update the critic, before the policy as in verl; returns its metrics, empty without one."""
    if session.critic is None or targets is None:
        return {}
    rng = np.random.default_rng((session.config.seed, step, CRITIC))
    return update_critic(session.critic, generations, targets, session.config.trainer, rng=rng)


def _rollout_metrics(sampled: Sampled) -> dict[str, float]:
    """Metrics of a rollout: of episodes over all that were played, of rows over the kept ones."""
    episodes = episode_metrics(sampled.played, by_family=False)
    metrics = {f"train/{name}": value for name, value in episodes.items()}
    metrics["train/sampling_rounds"] = float(sampled.rounds)
    metrics["train/rows"] = float(sum(map(len, sampled.kept)))
    # Share of prompts that lost their beginning because they were too long.
    truncated = [generation.truncated for generation in _generations(sampled.kept)]
    metrics["train/prompt_truncated"] = float(np.mean(truncated))
    return metrics


def _roll_out(session: Session, step: int) -> Sampled:
    """Roll out a step by the method's sampling rule, seeded by (run seed, step)."""
    config = session.config
    panel = session.environment.panel("train").tasks

    def tasks(count: int, turn: int) -> list[Task]:
        return training_tasks(panel, groups=count, seed=config.seed, step=step, turn=turn)

    def play(slots: Sequence[Slot], turn: int) -> list[Trajectory]:
        # Each round of sampling has a seed of its own.
        seed = (config.seed, step, AGAIN, turn) if turn else (config.seed, step, ROLLOUT)
        return _play(session, slots, seed)

    draw = Draw(config.trainer.groups, config.trainer.group_size, tasks, play)
    return sample(draw, config.trained.sampling)


def _positions(config: RunConfig, trajectories: Sequence[Trajectory]) -> NDArray[np.int64]:
    """Processing order of the rows on the paper's four GPUs, computed in this one process.

    The order decides which steps the matcher credits (section 3.4), so it must not depend on the
    machine (ledger 9).

    Returns:
        ``position_N``, with rows trajectory by trajectory in time order.
    """
    lengths = np.array([generation.tokens for generation in _generations(trajectories)])
    shaper = config.trained.shaper
    if shaper is None:
        return positions(lengths, UNSHAPED_ORDER, UNSHAPED_RANKS)
    return positions(lengths, shaper.order, shaper.order_ranks)


def _generations(trajectories: Sequence[Trajectory]) -> list[Generation]:
    """Responses of all steps, in the order of the rows of a ``StepBatch``."""
    return [generation for trajectory in trajectories for generation in trajectory.generations]


def _set_learning_rate(optimizer: torch.optim.Optimizer, config: RunConfig, step: int) -> None:
    """Linear warm-up, then constant; computed from the step, so that no checkpoint stores it."""
    settings = config.trainer.optimizer
    # Steps count from 1, so that the rate of the first one is not 0.
    warmup = min(1.0, step / max(1, settings.warmup_steps))
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * warmup


def _probe(session: Session, step: int) -> None:
    """If it is due, play the probe game and record its similarity matrix (credit heatmap)."""
    config = session.config
    if not session.diagnostics.probe_due(step):
        return
    slots = group_slots(session.environment.panel("probe").tasks, config.trainer.probe_siblings)
    # Each probe has a random stream of its own.
    trajectories = _play(session, slots, (config.seed, step, PROBE))
    batch = step_batch(
        trajectories,
        success_threshold=config.env.success_threshold,
        position_N=_positions(config, trajectories),
    )
    session.diagnostics.record_probe(step, batch)


def open_ahead(config: RunConfig) -> None:
    """Open the run's environment and panels in the process from which workers are forked.

    An environment's caches do not affect results, so workers may inherit them.
    """
    # The first optimizer of a process imports modules for a second; forked workers inherit them.
    torch.optim.AdamW([torch.zeros(1)])
    environment = open_environment(config)
    if isinstance(environment, OpenableEnvironment):
        environment.open_panels()
    _opened[_environment_key(config)] = environment


def _environment_of(config: RunConfig) -> Environment:
    """The environment that was opened before the fork, or a new one."""
    return _opened.get(_environment_key(config)) or open_environment(config)


def _environment_key(config: RunConfig) -> tuple[str, str, str | None]:
    """All settings that determine an environment."""
    return config.env.model_dump_json(), config.machine.cache_dir, config.data_folder


@contextmanager
def _collected_at_checkpoints() -> Iterator[Callable[[], None]]:
    """Collect garbage only at checkpoints; yields the function to call there.

    Python's collector examines all live objects whenever their number has grown by a quarter. A run
    keeps millions of prompts, games and states, hardly any in reference cycles: collections took 12
    of the 55 s of a run of the study. Objects that survive a collection are frozen, which excludes
    them from later ones.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_YOUNG, 10, GC_OLD)

    def collect() -> None:
        gc.collect()
        gc.freeze()

    try:
        collect()
        yield collect
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
