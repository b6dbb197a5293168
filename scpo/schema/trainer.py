"""Configuration of the trainers."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from scpo.schema.base import Strict


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


class LocalTrainer(Strict):
    """The embedded trainer: one process, CPU or one GPU."""

    name: Literal["local"]
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
    precision_every: PositiveInt
    precision_steps: PositiveInt


TrainerConfig = LocalTrainer
