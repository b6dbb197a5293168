"""verl's synchronous trainer with this project's credit, validation, records and checkpoints.

It is registered as ``scpo`` in the process that imports this module, that of the task runner.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from scpo.credit.states import make_memory
from scpo.diagnostics.record import Diagnostics
from scpo.diagnostics.validation_episodes import validation_metrics
from scpo.errors import RolloutError
from scpo.records.files import write_bytes
from scpo.records.memory import NodeMemory
from scpo.records.tracker import Tracker
from scpo.rollout import step_batch
from scpo.schema.method import required
from scpo.scoring.ray_scorer import BEFORE_RAY, open_ray_scorer
from scpo.shaping.reference_buffer import FILE as REFERENCES
from scpo.states.identity import MEMORY_FILE
from scpo.trainers.verl import update_guard
from scpo.trainers.verl.checkpoints import Sealing, logs_at
from scpo.trainers.verl.data import PROBE
from scpo.trainers.verl.deadline import WithDeadline
from scpo.trainers.verl.estimates import Columns, Estimate, estimate
from scpo.trainers.verl.hindsight_pass import hindsight_logprob
from scpo.trainers.verl.replay import rollout_actors
from scpo.trainers.verl.step_times import CHECKSUMS_WAIT, SAVE_CHECKPOINT, compared
from scpo.trainers.verl.verl_metrics import (
    DIAGNOSTICS,
    of_panel,
    record_what_is_logged,
    rollout_metrics,
    split_metrics,
    without_samples,
)
from scpo.trainers.verl.verl_rows import Rows, read_rows, real_rows, spread_padding
from scpo.trainers.verl.verl_settings import MODE
from scpo.trainers.verl.versions import check_signatures
from scpo.trainers.verl.workplace import workplace_of

TOKEN_COLUMNS = {"entropy": "entropy", "value": "values"}
"""Column of tokens that a method may require -> its name in verl."""


@register_trainer(MODE)
class ScpoTrainer(PPOTrainerSync):  # type: ignore[misc]  # verl is untyped
    """Trainer of one run; overrides the methods in which it differs from verl.

    Attributes:
        place: Configuration, run folder and environment.
        buffer: Successes of earlier steps; None without a reference buffer.
        state_memory: Findings of the state identity; None if it keeps none.
        tracker: Writes the run's logs.
        scorer: The scorer; None for methods that need none.
        memory: Measures the memory in use on the node.
        sealing: Computes checksums of checkpoints in a thread.
    """

    def __init__(self, config: Any) -> None:
        check_signatures()
        self.place = workplace_of(config)
        run = self.place.config
        self.buffer = run.trained.shaper.make_buffer() if run.trained.shaper else None
        self.state_memory = make_memory(run.trained)
        self.tracker = Tracker(self.place.folder, run)
        on_gpu = config.trainer.device != "cpu"
        # On a GPU, a neural scorer runs in a process of its own.
        self.scorer = open_ray_scorer(run, on_gpu=on_gpu) if run.trained.needs_scorer else None
        # Ray's processes on this node descend from the parent of this process.
        self.memory = NodeMemory(os.getppid(), os.environ.get(BEFORE_RAY, "") if on_gpu else None)
        self.sealing = Sealing(self.place.folder, keep=run.trainer.keep_checkpoints)
        self._saved_step: int | None = None
        self._checksums_wait = 0.0
        self._save_s = 0.0
        # Number of mini-batches in the update of the present step.
        self._mini_batches = 0
        self._validation: dict[str, float] = {}
        super().__init__(config)

    # Overridden methods

    def _build_replay_buffer(self) -> Any:
        # verl compares the mode with "sync" wherever its trainers differ, and first in this method;
        # this trainer's algorithm is that of the mode "sync".
        self.trainer_mode = "sync"
        buffer = super()._build_replay_buffer()
        # verl constructs the buffer, so its settings can only be set afterwards.
        buffer.stall_s = self.place.stall_s
        buffer.failures = self.place.failures
        return buffer

    def _load_checkpoint(self) -> None:
        # verl restores weights, optimizer and dataloader, and takes `global_steps` from the name of
        # the folder.
        super()._load_checkpoint()
        folder = self.place.folder
        step = self.global_steps
        if not step:
            # The run starts from the beginning: buffer and memory stay empty, and -1 drops the
            # records of an earlier attempt.
            self.tracker.resume_at(-1, None)
            return
        if self.buffer is not None:
            self.buffer.load((folder.checkpoint(step) / REFERENCES).read_bytes())
        if self.state_memory is not None:
            self.state_memory.load((folder.checkpoint(step) / MEMORY_FILE).read_bytes())
        self.tracker.resume_at(step, logs_at(folder, step))

    def fit(self, agent_loop_manager: Any) -> None:
        """Train; close the records even after an error."""
        # From here on, the rollout's processes run and can be checked.
        servers = self.llm_server_manager.server_handles
        self.replay_buffer.actors = rollout_actors(agent_loop_manager.agent_loop_workers, servers)
        failed = True
        try:
            with self.memory:
                try:
                    super().fit(agent_loop_manager)
                finally:
                    # The last checkpoint is completed even after an error.
                    self.sealing.wait()
            failed = False
        finally:
            self.tracker.close(failed=failed)

    def on_train_begin(self) -> None:
        """Record the validation before training, and every step from here on."""
        if self.config.trainer.val_before_train:
            self.tracker.log(0, self._validation, {})
        record_what_is_logged(self.logger, self._finished)
        super().on_train_begin()

    def _setup(self) -> None:
        super()._setup()
        # verl has created the manager; wrap it with the time limit.
        self.checkpoint_manager: Any = WithDeadline(self.checkpoint_manager, self.place.stall_s)

    def _balance_batch(
        self,
        batch: Any,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> Any:
        """Balance as verl does, then spread the padding over the mini-batches.

        Real rows keep their order, which is the order in which SCPO's matcher processes them
        (ledger 9).
        """
        batch = super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        shape = {"ranks": self._ranks, "mini_batch": self._mini_batch}
        # verl leaves the padding at the end of each rank's part, all in the last mini-batch.
        batch.reorder(spread_padding(_padding_of(batch), **shape))
        self._mini_batches = len(batch) // self._mini_batch * self.place.config.trainer.epochs
        metrics["train/smallest_mini_batch"] = float(min(real_rows(_padding_of(batch), **shape)))
        return batch

    @property
    def _ranks(self) -> int:
        """Number of data-parallel ranks of the update, known once verl has balanced a batch."""
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1

    @property
    def _mini_batch(self) -> int:
        """Rows of a mini-batch over all ranks, as in verl's ``_update_actor``."""
        return int(
            self.config.actor_rollout_ref.actor.ppo_mini_batch_size
            * self.config.actor_rollout_ref.rollout.n
        )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Advantages of all response tokens, in place of verl's estimator.

        A function registered as an estimator in verl would not suffice, because it gets neither
        trajectories nor observations.

        Args:
            batch: Keys and tags of verl's rows, balanced and padded.
            metrics: Metrics of the step, to which those of rollout and credit are added.

        Returns:
            The batch with the columns ``advantages`` and ``returns``.
        """
        extra_fields, columns = self._fetch_columns(batch, metrics)

        # Credit and advantages of the environment steps.
        episodes = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        rows = read_rows(extra_fields, _padding_of(batch), episodes=episodes)
        if self.scorer is not None:
            # Clears the cached pairs of earlier steps, which a resumed run would not have either.
            self.scorer.begin_step()
        estimated = estimate(
            rows,
            columns,
            self.place.config,
            self.global_steps,
            scorer=self.scorer,
            ranks=self._ranks,
            buffer=self.buffer,
            memory=self.state_memory,
        )
        metrics.update(self.scorer.report() if self.scorer is not None else {})
        metrics.update(self._recorded(rows, estimated))

        # Return the columns to verl, in the order of its rows.
        estimates = {
            "advantages": _jagged(estimated.advantage),
            "returns": _jagged(estimated.target),
        }
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(estimates, batch_size=len(batch)),
        )

    def _save_checkpoint(self) -> None:
        started = time.monotonic()
        # Wait before anything is written: a folder must not change while it is hashed.
        self._checksums_wait = self.sealing.wait()
        # Each checkpoint has a folder of its own, so that it is either complete or absent.
        checkpoint = self.place.folder.checkpoint(self.global_steps)
        with open_dict(self.config):
            self.config.trainer.default_local_dir = str(checkpoint)
        super()._save_checkpoint()
        if self.buffer is not None:
            write_bytes(checkpoint / REFERENCES, self.buffer.dump())
        if self.state_memory is not None:
            write_bytes(checkpoint / MEMORY_FILE, self.state_memory.dump())
        # `_finished` computes the checksums, after this step has been logged.
        self._saved_step = self.global_steps
        self._save_s = time.monotonic() - started

    def on_step_end(self) -> None:
        """Save a checkpoint if asked to stop; the rollout engine sleeps here, so memory is free."""
        if self.place.stop_file.exists() and self._saved_step != self.global_steps:
            self._save_checkpoint()
        super().on_step_end()

    def _validate(self) -> dict[str, float]:
        """Play all panels; returns the metrics, which verl logs with the step."""
        rows = self._play_validation()
        run = self.place.config
        # Sorted by name as in the local trainer, so that the records of both are equal.
        panels = {}
        for name in sorted(run.env.validation_panels):
            panels[name] = of_panel(rows, name).trajectories
            if not panels[name]:
                played = sorted({step.panel for step in rows.steps if step.panel})
                raise RolloutError(
                    f"validation has no episode of the panel {name!r}; the rows name "
                    f"{', '.join(played) or 'none'}: StepRow.panel must be one of the run folder's "
                    "env.validation_panels"
                )
        # The probe is played with the validation but does not enter its metrics.
        self._validation = validation_metrics(panels)
        self._diagnostics.record_validation(self.global_steps, panels)
        if self._diagnostics.probe_due(self.global_steps):
            probed = of_panel(rows, PROBE).trajectories
            batch = step_batch(probed, success_threshold=run.env.success_threshold)
            self._diagnostics.record_probe(self.global_steps, batch)
        return self._validation

    # Parts of the overridden methods

    def _fetch_columns(self, batch: Any, metrics: dict[str, Any]) -> tuple[list[Any], Columns]:
        """Fetch the ``extra_fields`` of all rows, and the columns that the method requires."""
        # Other columns are left in TransferQueue: each is a tensor over all tokens.
        wanted = required(self.place.config.method) & TOKEN_COLUMNS.keys()
        names = {name: TOKEN_COLUMNS[name] for name in wanted}
        fields = ["response_mask", "extra_fields", "responses", *names.values()]
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        by_token = {}
        for name, column in names.items():
            # Converted to float32, because an engine may give bfloat16, which NumPy lacks.
            by_token[name] = [row.float().numpy() for row in data[column].unbind()]
        columns = Columns(
            np.array([tag["seq_len"] for tag in batch.tags]),
            np.array([len(row) for row in data["response_mask"].unbind()]),
            **by_token,
            hindsight=self._hindsight(batch, data, metrics),
        )
        return list(data["extra_fields"]), columns

    def _hindsight(self, batch: Any, data: Any, metrics: dict[str, Any]) -> Any:
        """Log-probabilities of all responses after their hindsight prompts; None if not required.

        Called before the update, while the policy is still the one that sampled.
        """
        if "hindsight_logprob" not in required(self.place.config.method):
            return None
        # All ranks must get the same number of full micro-batches.
        micro = self.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu or 1
        started = time.perf_counter()
        found = hindsight_logprob(
            self.actor_rollout_wg,
            list(data["extra_fields"]),
            list(data["responses"].unbind()),
            _padding_of(batch),
            multiple=self._ranks * micro,
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        metrics["timing_s/hindsight"] = time.perf_counter() - started
        return found

    @functools.cached_property
    def _diagnostics(self) -> Diagnostics:
        """Samples of this run."""
        return Diagnostics(
            self.place.config, self.place.folder, self.scorer, lambda: self.place.environment
        )

    def _recorded(self, rows: Rows, estimated: Estimate) -> dict[str, float]:
        """Record the step's samples; return all metrics and timings of rollout and credit."""
        credit = estimated.diagnostics
        trajectories = estimated.trajectories
        started = time.perf_counter()
        precision = self._diagnostics.record(
            self.global_steps, estimated.batch, credit, trajectories
        )
        took = {DIAGNOSTICS: time.perf_counter() - started}
        return (
            rollout_metrics(rows, trajectories) | credit.metrics | precision | credit.timings | took
        )

    def _update_counts(self, share_blind: float | None) -> dict[str, float]:
        """Counts of updates, from the share of mini-batches without an advantage."""
        # Without a share, there was no update of the policy: the critic is warming up.
        if share_blind is None:
            return {}
        skip = self.place.config.trainer.skip_updates_without_advantage
        return update_guard.update_counts(share_blind, self._mini_batches, skip=skip)

    def _play_validation(self) -> Rows:
        """Play all rows of the validation file, batch by batch, through verl's rollout.

        verl's own validation reads only the score in the last output of an episode.
        """
        fields: list[Any] = []
        for entries in self.val_dataloader:
            # Each episode is a group of its own, because validation compares no siblings.
            ids = [str(uuid.uuid4()) for _ in entries["raw_prompt"]]
            entries["uid"] = np.array(ids, dtype=object)
            prompts = tu.get_tensordict(entries)
            tu.assign_non_tensor_data(prompts, "global_steps", self.global_steps)
            tu.assign_non_tensor_data(prompts, "validate", True)
            tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
            tq.kv_batch_put(keys=ids, partition_id="val", tags=[dict(tag) for _ in ids])
            self.agent_loop_manager.generate_sequences(prompts)
            batch, _ = self.replay_buffer.sample(self.global_steps, "val", len(prompts))
            data = tq.kv_batch_get(
                keys=batch.keys, partition_id="val", select_fields=["extra_fields"]
            )
            fields += list(data["extra_fields"])
            # Cleared for each batch, because panels may be large.
            tq.kv_clear(keys=batch.keys, partition_id="val")
        return read_rows(fields, [False] * len(fields), episodes=len(self.val_dataset))

    def _finished(self, metrics: dict[str, Any], step: int) -> None:
        """Record a finished step, start the checksums of its checkpoint, and stop if asked to."""
        learned, took = split_metrics(metrics)
        # verl reports a share of the mini-batches, which is converted to counts.
        learned |= self._update_counts(learned.pop(f"actor/{update_guard.BLIND}", None))
        if self._saved_step == step:
            took[CHECKSUMS_WAIT] = self._checksums_wait
            # verl times only scheduled saves, not that of a run that is asked to stop.
            took.setdefault(SAVE_CHECKPOINT, self._save_s)
        parts = compared(self.place.config, took)
        self.tracker.log(step, learned, without_samples(took) | parts | self.memory.take())
        if self._saved_step != step:
            # Never stop without a checkpoint of this step: a request to stop that came during the
            # validation, after `on_step_end`, is heeded after the next step.
            return
        self.sealing.start(step, self.tracker.sums)
        if self.place.stop_file.exists():
            # verl's loop ends at this step.
            self.total_training_steps = step


def _padding_of(batch: Any) -> list[bool]:
    """True for padding rows of verl, whose ``extra_fields`` are copies of another row's."""
    return [bool(tag.get("is_padding", False)) for tag in batch.tags]


def _jagged(rows: list[Any]) -> torch.Tensor:
    """A nested tensor of rows of different lengths, as verl stores token columns."""
    return torch.nested.as_nested_tensor(
        [torch.from_numpy(np.ascontiguousarray(row)) for row in rows], layout=torch.jagged
    )
