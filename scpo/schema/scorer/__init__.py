"""Configuration of the scorer: similarity of two step texts in [0, 1]."""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field, PositiveFloat, PositiveInt

from scpo.extensions import load_parts
from scpo.schema.scorer_entry import ScorerEntry, ScorerSettings, kind_of
from scpo.strict import Strict


class ExactScorer(ScorerSettings):
    """Similarity 1 of equal step texts, and 0 of all others."""

    kind: Literal["exact"]


class LexicalScorer(ScorerSettings):
    """Share of characters that two step texts have in common, in order."""

    kind: Literal["lexical"]


class BiEncoderScorer(ScorerSettings):
    """max(0, (cosine - c) / (1 - c)) of two sentence embeddings, c = ``cosine_floor``.

    Attributes:
        path: ``package:<name>``, a local folder or a name on the hub.
        cosine_floor: Cosine that counts as no similarity. Step texts of one template are alike in
            most words; c is chosen so that the share of exact matches among credited steps is near
            the paper's (REPRODUCTION.md, "The scorer at mini scale").
        max_tokens: Longer texts lose their end.
    """

    kind: Literal["bi_encoder"]
    path: str
    cosine_floor: Annotated[float, Field(ge=0, lt=1)]
    max_tokens: PositiveInt

    @property
    def identity(self) -> str:
        return f"{self.name}(path={self.path}, c={self.cosine_floor}, max_tokens={self.max_tokens})"


class CrossEncoderScorer(ScorerSettings):
    """Sigmoid of a reranker's logit for two step texts read together.

    Attributes:
        path: Local folder or a name on the hub.
        dtype: Type of the weights; auto is float16 on a GPU and float32 on a CPU.
        batch_tokens: Tokens of a forward pass on a GPU, padding included: with 512, a pass has 16
            pairs of up to 32 tokens, or 8 of up to 64; always at least one. On a CPU every pair is
            a pass.
        max_tokens: Largest number of tokens of a pair, special ones included; each text gets half
            (ledger 12).
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


# Users' own scorers: kind -> ``SETTINGS`` of the file <kind>.py in this folder. They are found by
# their file names: a line for each here, in a file that all runs use, would change the code record
# of every run (scpo/records/code_files.py).
OWN: dict[str, type[ScorerSettings]] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}").SETTINGS
    for module in pkgutil.iter_modules(__path__)
}

INSTALLED = load_parts(
    "scpo.scorers",
    "a scpo.schema.scorer_entry.ScorerEntry",
    lambda value: isinstance(value, ScorerEntry),
    ("exact", "lexical", "bi_encoder", "cross_encoder", *OWN),
)
"""Scorers of other packages, of the entry points ``<name> = "<module>:<ENTRY>"``."""

_CLASSES = (
    ExactScorer,
    LexicalScorer,
    BiEncoderScorer,
    CrossEncoderScorer,
    *OWN.values(),
    *(part.value.settings for part in INSTALLED),
)

SCORER_KINDS = tuple(map(kind_of, _CLASSES))
"""Allowed values of ``scorer.kind``."""

if TYPE_CHECKING:
    ScorerConfig = ScorerSettings
else:
    ScorerConfig = Annotated[
        # Built from a list, so it cannot be written with |.
        Union[_CLASSES],  # noqa: UP007
        Field(discriminator="kind"),
    ]


class ScorerRuntime(Strict):
    """Process of the scorer, and handling of its failures; no setting changes a score.

    Attributes:
        process: Run the scorer in a process of its own; auto: only cross-encoders.
        start_deadline_s: Limit of the process's start, including loading the model and a first
            pass.
        deadline_s: Limit of the answer to one request, of at most 128 pairs.
        crashes: Number of crashes in a row on one request after which scoring has failed.
        on_scorer_failure: After such a failure, stop training, or with ``skip_shaping`` continue
            without credit in this step, which is logged and counted in ``scpo/shaping_skipped``.
        speculate: Score some pairs before a walk asks for them, for fewer and larger batches.
    """

    process: Literal["auto", "always", "never"]
    start_deadline_s: PositiveFloat
    deadline_s: PositiveFloat
    crashes: PositiveInt
    on_scorer_failure: Literal["stop", "skip_shaping"]
    speculate: bool

    def needs_process(self, scorer: ScorerConfig) -> bool:
        """Return True if this scorer runs in a process of its own."""
        return self.process == "always" or (
            self.process == "auto" and scorer.kind == "cross_encoder"
        )
