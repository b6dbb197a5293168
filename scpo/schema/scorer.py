"""Configuration of the scorer that says how similar two step texts are, in [0, 1]."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from scpo.schema.base import Strict


class ExactScorer(Strict):
    kind: Literal["exact"]
    name: str


class BiEncoderScorer(Strict):
    """max(0, (cosine - c) / (1 - c)) of two sentence embeddings, c = ``cosine_floor``."""

    kind: Literal["bi_encoder"]
    name: str
    path: str
    cosine_floor: Annotated[float, Field(ge=0, lt=1)]
    batch_size: PositiveInt
    max_tokens: PositiveInt


ScorerConfig = Annotated[ExactScorer | BiEncoderScorer, Field(discriminator="kind")]
