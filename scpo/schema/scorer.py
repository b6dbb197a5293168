"""Configuration of the scorer: similarity of two step texts in [0, 1]."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scpo.strict import Strict


class ScorerSettings(Strict):
    """Settings of all scorers.

    ``identity`` names the scorer with all settings that change its scores.
    """

    kind: str
    name: str

    @property
    def identity(self) -> str:
        return self.name


class ExactScorer(ScorerSettings):
    kind: Literal["exact"]


class LexicalScorer(ScorerSettings):
    """Share of characters that two step texts have in common, in order."""

    kind: Literal["lexical"]


class BiEncoderScorer(ScorerSettings):
    """max(0, (cosine - c) / (1 - c)) of two sentence embeddings, c = ``cosine_floor``."""

    kind: Literal["bi_encoder"]
    path: str
    cosine_floor: Annotated[float, Field(ge=0, lt=1)]
    max_tokens: PositiveInt

    @property
    def identity(self) -> str:
        return f"{self.name}(path={self.path}, c={self.cosine_floor}, max_tokens={self.max_tokens})"


class CrossEncoderScorer(ScorerSettings):
    """Sigmoid of a reranker's logit for two step texts read together.

    ``dtype`` auto is float16 on a GPU and float32 on a CPU. ``max_tokens`` of a pair, special
    tokens included; ``batch_tokens`` of a forward pass on a GPU, padding included: 16 pairs of up
    to 32 tokens, 8 of 64, at least one; on a CPU every pair is a pass.
    """

    kind: Literal["cross_encoder"]
    path: str
    dtype: Literal["auto", "float16", "bfloat16", "float32"]
    batch_tokens: PositiveInt
    max_tokens: Annotated[int, Field(ge=16)]

    @property
    def identity(self) -> str:
        settings = (
            f"dtype={self.dtype}, max_tokens={self.max_tokens}, batch_tokens={self.batch_tokens}"
        )
        return f"{self.name}(path={self.path}, {settings})"


ScorerConfig = Annotated[
    ExactScorer | LexicalScorer | BiEncoderScorer | CrossEncoderScorer, Field(discriminator="kind")
]


class ScorerRuntime(Strict):
    """Process of the scorer, and handling of its failures; the scores are the same either way.

    ``process``: run it in a process of its own; auto: cross-encoders only. Its start and each
    answer have a deadline. When a request ends the process ``crashes`` times in a row, training
    stops, or with ``skip_shaping`` continues without credit in this step, which is logged and
    counted in ``scpo/shaping_skipped``. ``speculate``: score some pairs before a walk asks for
    them, for fewer and larger batches.
    """

    process: Literal["auto", "always", "never"]
    start_deadline_s: PositiveFloat
    deadline_s: PositiveFloat
    crashes: PositiveInt
    on_scorer_failure: Literal["stop", "skip_shaping"]
    speculate: bool

    def apart(self, scorer: ScorerConfig) -> bool:
        """Return True if this scorer runs in a process of its own."""
        return self.process == "always" or (
            self.process == "auto" and scorer.kind == "cross_encoder"
        )
