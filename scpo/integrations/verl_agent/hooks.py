"""Hooks around functions of the fork, by which SCPO reads and adds data; no file is edited."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scpo.advantages.anchors import StateSettings
from scpo.credit.assign import assign
from scpo.credit.metrics import CreditDiagnostics
from scpo.diagnostics.record import Diagnostics
from scpo.integrations.verl_agent.fork_rows import step_batch
from scpo.integrations.verl_agent.recording import Recorder
from scpo.records import JsonLines, RunFolder
from scpo.schema.method import required
from scpo.schema.run import RunConfig
from scpo.scoring import PairCache
from scpo.shaping.shaper import ShaperConfig
from scpo.steps import FloatArray, IntArray, StepBatch

logger = logging.getLogger(__name__)

OF_THE_FORK = ("gae", "grpo", "rloo", "gigpo")
"""Estimators that the fork computes itself; scpo computes all others in its place."""


@dataclass
class Hooks:
    """SCPO inside one process of the fork.

    Attributes:
        config: The run.
        folder: The run folder, in which credit is recorded.
        scorer: Scorer of the shaper and the state identity; None if the method needs none.
        trainer: The fork's trainer, which knows the step; None before it trains.
        entropy_N: Mean token entropy of each row of the present batch; None if not required.
    """

    config: RunConfig
    folder: RunFolder
    scorer: PairCache | None
    trainer: Any = None
    entropy_N: FloatArray | None = None
    _logs: dict[str, JsonLines] = field(default_factory=dict)

    def fit(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        """Wrap ``RayPPOTrainer.fit`` to keep the trainer, which knows the step."""

        def wrapped(trainer: Any) -> None:
            self.trainer = trainer
            original(trainer)

        return wrapped

    def agg_loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the trainer's ``agg_loss`` to keep the mean entropy of each row.

        The trainer passes the tokens' entropies to this function and then drops them.
        """

        def wrapped(loss_mat: Any, loss_mask: Any, loss_agg_mode: str) -> Any:
            if "entropy" in required(self.config.method):
                mean_N = (loss_mat * loss_mask).sum(-1) / loss_mask.sum(-1)
                self.entropy_N = mean_N.detach().float().cpu().numpy()
            return original(loss_mat=loss_mat, loss_mask=loss_mask, loss_agg_mode=loss_agg_mode)

        return wrapped

    def compute_advantage(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the trainer's ``compute_advantage``.

        For an estimator of the fork, SCPO's credit is added to ``step_rewards``. For any other, and
        for a state identity that the fork lacks, the advantages are computed here.
        """

        def wrapped(data: Any, adv_estimator: Any, **options: Any) -> Any:
            estimator = self.config.trained.estimator
            # PPO has neither a shaper nor step terms, so the fork computes it by itself.
            if estimator.name == "gae":
                return original(data, adv_estimator=adv_estimator, **options)

            # The batch is read at the last point before the fork estimates: by now rows are copied
            # and balanced, and the penalty of invalid actions is subtracted.
            batch = step_batch(
                data.non_tensor_batch,
                success_threshold=self.config.env.success_threshold,
                entropy_N=self.entropy_N,
                length_N=_lengths(data, self.config.trained.shaper),
            )
            if self.scorer is not None:
                self.scorer.begin_step()
            advantage_N, diagnostics = assign(
                batch,
                self.scorer,
                self.config.trained,
                seed=(self.config.seed, self.step),
                speculate=self.config.machine.scorer.speculate,
            )
            self._record(batch, diagnostics)

            # The fork compares states only by their exact text.
            compares_otherwise = (
                isinstance(estimator, StateSettings) and estimator.states != "exact"
            )
            if estimator.name not in OF_THE_FORK or compares_otherwise:
                return _with_advantages(data, advantage_N)
            # The fork's own estimator, with credit added to its step returns.
            shaper = self.config.trained.shaper
            if diagnostics.shaped is not None and shaper is not None:
                _add(data, np.float32(shaper.alpha) * diagnostics.shaped.credit_N)
            return original(data, adv_estimator=adv_estimator, **options)

        return wrapped

    @property
    def step(self) -> int:
        """The training step under way."""
        if self.trainer is None:
            return 0
        return int(self.trainer.global_steps)

    def _record(self, batch: StepBatch, diagnostics: CreditDiagnostics) -> None:
        """Record the credit of this step.

        The first call drops the lines that an earlier attempt wrote from this step on.
        """
        Diagnostics(self.config, self.folder, self.scorer).record(self.step, batch, diagnostics)
        for path, values in (
            (self.folder.metrics, diagnostics.metrics),
            (self.folder.timing, diagnostics.timings),
        ):
            if path.name not in self._logs:
                log = JsonLines(path)
                log.replace(log.up_to(self.step - 1))
                self._logs[path.name] = log
            self._logs[path.name].append({"step": self.step, **values})


def _lengths(data: Any, shaper: ShaperConfig | None) -> IntArray | None:
    """Number of tokens of each row's prompt and response, by which the fork balances rows.

    Padding is not counted. None if the processing order does not depend on the lengths.
    """
    if shaper is None or shaper.order != "length":
        return None
    length_N: IntArray = data.batch["attention_mask"].sum(-1).cpu().numpy()
    return length_N


def _add(data: Any, bonus_N: FloatArray) -> None:
    """Add credit to the step returns, from which the fork's GiGPO computes its step term.

    The fork has already subtracted the penalty of invalid actions, and normalises afterwards: the
    paper adds credit at the same point (ledger 56).
    """
    import torch

    rewards = data.batch["step_rewards"]
    data.batch["step_rewards"] = rewards + torch.from_numpy(bonus_N).to(rewards)


def _with_advantages(data: Any, advantage_N: FloatArray) -> Any:
    """The fork's batch with each row's advantage on its response tokens, 0 elsewhere."""
    import torch

    mask = data.batch["response_mask"]
    advantage_NL = torch.from_numpy(advantage_N).to(mask.device)[:, None] * mask.float()
    # The fork's critic-free estimators return the same tensor for both.
    data.batch["advantages"] = data.batch["returns"] = advantage_NL
    return data


def install(hooks: Hooks) -> None:
    """Install the hooks into the fork's modules, which look the functions up at call time."""
    from agent_system.multi_turn_rollout import TrajectoryCollector
    from verl.trainer.ppo import ray_trainer

    recorder = Recorder(states=bool(hooks.config.trained.reads_states))
    for owner, name, wrap in (
        (TrajectoryCollector, "multi_turn_loop", recorder.multi_turn_loop),
        (TrajectoryCollector, "vanilla_multi_turn_loop", recorder.vanilla_multi_turn_loop),
        (ray_trainer, "compute_advantage", hooks.compute_advantage),
        (ray_trainer, "agg_loss", hooks.agg_loss),
        (ray_trainer.RayPPOTrainer, "fit", hooks.fit),
    ):
        setattr(owner, name, wrap(getattr(owner, name)))
    logger.info("SCPO is hooked into verl-agent: method %s", hooks.config.method.name)
