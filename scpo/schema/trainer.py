"""Configuration of the trainers."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scpo.strict import Strict


class LossConfig(Strict):
    """Clipped PPO objective with a k3 KL term and an entropy bonus."""

    clip_low: PositiveFloat
    clip_high: PositiveFloat
    dual_clip: Annotated[float, Field(gt=1)]
    kl_coefficient: NonNegativeFloat
    entropy_coefficient: NonNegativeFloat


class OptimizerConfig(Strict):
    """AdamW, linear warm-up over ``warmup_steps`` training steps, then constant."""

    learning_rate: PositiveFloat
    warmup_steps: NonNegativeInt
    weight_decay: NonNegativeFloat
    gradient_clip: PositiveFloat


class ValidationConfig(Strict):
    every: PositiveInt
    temperature: NonNegativeFloat
    seed: NonNegativeInt


class TrainerSettings(Strict):
    """What all trainers share: the training protocol. ``rollout_batch`` rows are sampled at once in one process."""

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


class LocalTrainer(TrainerSettings):
    """The embedded trainer: one process, CPU or one GPU."""

    name: Literal["local"]


class VerlSettings(Strict):
    """How verl spreads the work over a machine. It is part of what a run is: verl's order of rows depends on it.

    ``gpus`` are those of a node, data-parallel ranks of the update; ``tensor_parallel`` of them share a rollout
    engine, which may fill ``engine_memory`` of each. ``engine`` hf is Hugging Face generate, on the CPU and for tests.
    ``agent_workers`` processes hold the environments. When nothing of a rollout arrives for ``stall_s`` seconds, the
    run stops. ``overrides`` are words of verl's own command line; they come last.
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
    agent_workers: PositiveInt
    stall_s: PositiveInt
    overrides: tuple[str, ...]


class VerlTrainer(TrainerSettings):
    """verl on a Ray cluster: the released one, or the paper's fork of it."""

    name: Literal["verl", "verl_agent"]
    verl: VerlSettings

    @model_validator(mode="after")
    def _probe_is_played_with_a_validation(self) -> Self:
        if self.probe_every % self.validation.every:
            raise ValueError(
                f"trainer.probe_every={self.probe_every} is no multiple of validation.every={self.validation.every}: "
                "verl plays the probe's game together with a validation"
            )
        return self


TrainerConfig = Annotated[LocalTrainer | VerlTrainer, Field(discriminator="name")]
