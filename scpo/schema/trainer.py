"""Configuration of the trainers."""

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scpo.strict import Seed, Strict


class LossConfig(Strict):
    """Clipped PPO objective with a k3 KL term and an entropy bonus.

    Attributes:
        clip_low: The probability ratio is clipped below 1 - ``clip_low``.
        clip_high: The probability ratio is clipped above 1 + ``clip_high``.
        dual_clip: Bound of the loss of a token with a negative advantage, as a multiple of the
            advantage's absolute value.
        kl_coefficient: Weight of the KL divergence from the reference; 0: no reference is kept.
        entropy_coefficient: Weight of the entropy bonus.
    """

    clip_low: PositiveFloat
    clip_high: PositiveFloat
    dual_clip: Annotated[float, Field(gt=1)]
    kl_coefficient: NonNegativeFloat
    entropy_coefficient: NonNegativeFloat


class OptimizerConfig(Strict):
    """AdamW, linear warm-up over ``warmup_steps`` training steps, then constant.

    Attributes:
        learning_rate: Rate after the warm-up.
        warmup_steps: Number of training steps; each may consist of many optimizer steps.
        weight_decay: Decoupled weight decay, applied to all weights.
        gradient_clip: Largest norm of a mini-batch's gradient.
    """

    learning_rate: PositiveFloat
    warmup_steps: NonNegativeInt
    weight_decay: NonNegativeFloat
    gradient_clip: PositiveFloat


class ValidationConfig(Strict):
    """Validation on the environment's panels.

    Attributes:
        every: Training steps between two validations.
        temperature: Sampling temperature.
        seed: Sampling seed, the same at every validation, so that curves change only with the
            policy. Only the local trainer uses it; verl's engines continue from the run's seed.
    """

    every: PositiveInt
    temperature: NonNegativeFloat
    seed: Seed


class TrainerSettings(Strict):
    """Training protocol, shared by all trainers.

    Attributes:
        steps: Number of training steps; each consists of rollout, advantages and update.
        groups: Tasks of a training step, each with a group of rollouts.
        group_size: Rollouts of a task (siblings).
        temperature: Temperature of the rollout and of all log-probabilities in the update.
        max_prompt_tokens: Longer prompts are cut off at their beginning.
        max_response_tokens: Largest number of sampled tokens of a response.
        epochs: Passes over the rows of a training step.
        mini_batch_rows: Environment steps of an optimizer step.
        micro_batch_rows: Environment steps of a forward and backward pass, on each GPU.
        rollout_batch: Number of rows that one process samples at once; does not change results.
        skip_updates_without_advantage: Skip the optimizer step, weight decay included, of a
            mini-batch whose advantages are all zero. If False, its step follows the gradient of the
            entropy bonus and the KL term, which Adam rescales to an update of nearly full size
            (ledger 55).
        checkpoint_every: Training steps between two checkpoints.
        keep_checkpoints: Number of latest checkpoints that are kept.
        probe_every: Training steps between two probes, for heatmaps of credit.
        probe_siblings: Episodes of a probe's task.
        sample_every: Training steps between two samples of whole groups.
        sample_groups: Largest number of groups in such a sample; each of them has both successes
            and failures.
        precision_every: Training steps between two measurements of credit's precision.
        precision_steps: Environment steps that each of these measurements examines.
        rollouts_every: Training steps between two batches that are saved as a whole; None: none.
    """

    steps: PositiveInt
    groups: PositiveInt
    group_size: Annotated[int, Field(ge=2)]
    temperature: PositiveFloat
    max_prompt_tokens: PositiveInt
    max_response_tokens: PositiveInt
    epochs: PositiveInt
    mini_batch_rows: PositiveInt
    micro_batch_rows: PositiveInt
    rollout_batch: PositiveInt
    loss: LossConfig
    # Left out of a run's id if off, so that the ids of earlier runs stay the same.
    skip_updates_without_advantage: bool = Field(default=False, exclude_if=lambda skips: not skips)
    optimizer: OptimizerConfig
    validation: ValidationConfig
    checkpoint_every: PositiveInt
    keep_checkpoints: PositiveInt
    probe_every: PositiveInt
    probe_siblings: PositiveInt
    sample_every: PositiveInt
    sample_groups: PositiveInt
    precision_every: PositiveInt
    precision_steps: PositiveInt
    rollouts_every: PositiveInt | None = Field(default=None, exclude_if=lambda every: every is None)

    @field_validator("precision_every", mode="before")
    @classmethod
    def _precision_is_switched_off_by_a_large_number(cls, every: object) -> object:
        # A run's id depends on this number: with null as a second way to switch measurements off,
        # the same run would have two ids.
        if every is None or every == 0:
            raise ValueError(
                f"got {every}; allowed: 1 or more. To switch it off, set a number above "
                "trainer.steps: trainer.precision_every=1000000"
            )
        return every


class LocalTrainer(TrainerSettings):
    """The embedded trainer: one process, CPU or one GPU."""

    name: Literal["local"]


class VerlSettings(Strict):
    """Distribution of verl's work over a machine.

    It is part of a run's identity, because verl's order of rows depends on it.

    Attributes:
        gpus: GPUs per node; each is a data-parallel rank of the update.
        nodes: Number of nodes.
        engine: Rollout engine; hf is generate() of Hugging Face, for tests and for CPUs.
        tensor_parallel: GPUs that share a rollout engine.
        engine_memory: Share of each GPU that the engine may fill.
        chunked_prefill: vLLM cuts long prompts into pieces, and processes them together with
            decoding.
        free_cache: The engine releases its memory during the update.
        offload_reference: Keep the reference policy in the host's memory while it is not needed.
        gradient_checkpointing: Compute activations again in the backward pass, to save memory.
        attention: Attention kernel of the update: flash needs the package flash-attn; sdpa does
            not, and computes the logits in pieces (verl's fused kernels); auto: flash if installed.
        offload_training: Keep weights and optimizer in the host's memory while they are not needed.
        agent_workers: Processes that hold the environments.
        stall_s: Seconds after which the run stops, if no part of a rollout arrives or the engine
            does not accept new weights.
        overrides: Appended to verl's own command line.
    """

    gpus: PositiveInt
    nodes: PositiveInt
    engine: Literal["vllm", "hf"]
    tensor_parallel: PositiveInt
    engine_memory: Annotated[float, Field(gt=0, lt=1)]
    chunked_prefill: bool
    free_cache: bool
    offload_reference: bool
    gradient_checkpointing: bool
    attention: Literal["auto", "flash", "sdpa"] = Field(
        default="auto", exclude_if=lambda name: name == "auto"
    )
    offload_training: bool = Field(default=False, exclude_if=lambda offloads: not offloads)
    agent_workers: PositiveInt
    stall_s: PositiveInt
    overrides: tuple[str, ...]

    @model_validator(mode="after")
    def _engines_share_the_gpus_evenly(self) -> Self:
        # A rollout engine cannot span nodes.
        if self.gpus % self.tensor_parallel:
            allowed = [count for count in range(1, self.gpus + 1) if self.gpus % count == 0]
            raise ValueError(
                f"trainer.verl.tensor_parallel={self.tensor_parallel} does not divide {self.gpus}, "
                "the number of GPUs per node (trainer.verl.gpus); allowed: "
                f"{', '.join(map(str, allowed))}. For one GPU: trainer=verl_1gpu"
            )
        return self


class VerlTrainer(TrainerSettings):
    """Training on a Ray cluster with released verl, or with verl-agent, the paper's fork of it."""

    name: Literal["verl", "verl_agent"]
    verl: VerlSettings

    @model_validator(mode="after")
    def _probe_is_played_with_a_validation(self) -> Self:
        # verl validates on one set of prompts, and the probe's prompts are part of it.
        if self.probe_every % self.validation.every:
            raise ValueError(
                f"trainer.probe_every={self.probe_every} is no multiple of "
                f"validation.every={self.validation.every}: verl plays the probe's game together "
                "with a validation"
            )
        return self

    @model_validator(mode="after")
    def _ranks_share_mini_batches_evenly(self) -> Self:
        ranks = self.verl.gpus * self.verl.nodes
        if self.mini_batch_rows % ranks:
            raise ValueError(
                f"trainer.mini_batch_rows={self.mini_batch_rows} cannot be shared by {ranks} GPUs "
                f"(trainer.verl.gpus x nodes) evenly; {self._fitting_gpus()}"
            )
        return self

    def _fitting_gpus(self) -> str:
        """The numbers of GPUs per node whose ranks share a mini-batch evenly, for a message."""
        verl = self.verl
        # Nodes have up to 8 GPUs, or as many as were asked for.
        numbers = range(1, max(8, verl.gpus) + 1)
        shared = [count for count in numbers if self.mini_batch_rows % (count * verl.nodes) == 0]
        fitting = [count for count in shared if count % verl.tensor_parallel == 0]
        if not shared:
            return f"allowed for trainer.mini_batch_rows: multiples of {verl.gpus * verl.nodes}"
        counts = ", ".join(map(str, fitting or shared))
        divisor = "" if fitting else ", with a trainer.verl.tensor_parallel that divides it"
        return f"allowed for trainer.verl.gpus: {counts}{divisor}"


TrainerConfig = Annotated[LocalTrainer | VerlTrainer, Field(discriminator="name")]
