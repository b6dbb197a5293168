"""Configuration of the policy: a small model built from config, or any Hugging Face causal LM."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from scpo.schema.base import Strict


class WarmStart(Strict):
    """Supervised start of a small policy on demonstrations: walkthroughs with exploratory detours."""

    games: PositiveInt
    demonstrations_per_game: PositiveInt
    stop_detour: Annotated[float, Field(gt=0, le=1)]
    max_detours: NonNegativeInt
    steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    prompt_loss_weight: NonNegativeFloat
    seed: NonNegativeInt


class TinyModel(Strict):
    """A Qwen2-architecture causal LM built from config, its word-level tokenizer trained on the environment's text."""

    kind: Literal["tiny"]
    name: str
    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    intermediate_size: PositiveInt
    max_positions: PositiveInt
    initializer_range: PositiveFloat
    init_seed: NonNegativeInt
    warm_start: WarmStart


class HuggingFaceModel(Strict):
    """A causal LM from a local path or a hub name."""

    kind: Literal["huggingface"]
    name: str
    path: str
    dtype: Literal["float32", "bfloat16"]


ModelConfig = Annotated[TinyModel | HuggingFaceModel, Field(discriminator="kind")]
