"""Configuration of the policy: a small model, a causal LM, or a model behind an API."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from scpo.advantages.gae import CriticSettings
from scpo.strict import Seed, Strict


class Imitation(Strict):
    """Supervised start of a small policy on walkthroughs with exploratory detours.

    Attributes:
        games: Number of demonstrated training tasks, which are outside the training panel.
        demonstrations_per_game: Episodes of each; the first has no detour.
        stop_detour: Probability of making no further detour, drawn before each one.
        max_detours: Largest number of detours (places or products visited in vain) before an object
            is fetched or bought.
        steps: Number of updates.
        batch_size: Demonstrated steps of an update.
        learning_rate: Learning rate of AdamW.
        seed: Seed of the draw of games, the detours and the batches.
    """

    games: PositiveInt
    demonstrations_per_game: PositiveInt
    stop_detour: Annotated[float, Field(gt=0, le=1)]
    max_detours: NonNegativeInt
    steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    seed: Seed


class WarmStart(Imitation):
    """Warm start of a language model, which also learns its prompts' words.

    Attributes:
        prompt_loss_weight: Weight of a prompt token's cross-entropy; a response token has 1.
    """

    prompt_loss_weight: NonNegativeFloat


class TinyModel(Strict):
    """Small Qwen2-architecture causal LM, with a tokenizer for the environment's words."""

    kind: Literal["tiny"]
    name: str
    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    intermediate_size: PositiveInt
    max_positions: PositiveInt
    initializer_range: PositiveFloat
    init_seed: Seed
    warm_start: WarmStart


class ChoiceModel(Strict):
    """A policy that scores the commands a prompt lists, from hashed features of state and command.

    Attributes:
        table_rows: Rows of the table of feature embeddings; row 0 is padding.
        width: Length of an embedding.
        hidden_size: Units of the one hidden layer.
        init_scale: Standard deviation of the initial embeddings.
        init_seed: Seed of all initial weights.
        starts: Number of imitation starts that the runs of an experiment share: a run with seed s
            begins with start s mod ``starts``.
        imitation: The supervised start.
        value_model: The critic's settings, for PPO.
    """

    kind: Literal["choice"]
    name: str
    table_rows: Annotated[int, Field(ge=2)]
    width: PositiveInt
    hidden_size: PositiveInt
    init_scale: PositiveFloat
    init_seed: Seed
    starts: PositiveInt = Field(default=1, exclude_if=lambda starts: starts == 1)
    imitation: Imitation
    value_model: CriticSettings

    def started(self, seed: int) -> "ChoiceModel":
        """Model with the imitation start of a run with this seed.

        Each start has its own initial weights and demonstrations.
        """
        # Seeds take the starts in turn, so that an interval over seeds includes their differences.
        start = seed % self.starts
        imitation = self.imitation.model_copy(update={"seed": self.imitation.seed + start})
        return self.model_copy(
            update={"init_seed": self.init_seed + start, "starts": 1, "imitation": imitation}
        )


class HuggingFaceModel(Strict):
    """Causal LM from a local path or the hub.

    Attributes:
        path: Local folder or name on the hub.
        dtype: Type of the weights if the model is not trained. Trained weights are in float32, and
            the forward pass computes in this type.
        micro_batch_rows: Rows that fit on one of the paper's GPUs.
        engine_memory: Default of ``trainer.verl.engine_memory`` for this model. Not dumped here,
            because the trainer's setting records the value.
    """

    kind: Literal["huggingface"]
    name: str
    path: str
    dtype: Literal["float32", "bfloat16"]
    micro_batch_rows: PositiveInt
    engine_memory: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, exclude=True)


def is_folder_path(path: str) -> bool:
    """True if a model's path is a folder's; a name on the hub has the form ``owner/model``."""
    return path.startswith(("/", ".", "~")) or path.count("/") != 1


def _plain_url(url: str) -> str:
    """Refuse a base URL that may hold a secret: configurations are recorded and logged."""
    parts = urlsplit(url)
    # Not `parts.username`, which is empty for an address with a password and no name.
    private = "@" in parts.netloc or parts.query
    if parts.scheme not in ("http", "https") or not parts.hostname or private or parts.port == 0:
        raise ValueError(
            "a base URL is http(s)://host/path without user, password or query, such as "
            "https://api.openai.com/v1; a key belongs in the environment variable that "
            "key_variable names"
        )
    return url.rstrip("/")


class Prices(Strict):
    """US dollars for a million tokens. A reasoning model's hidden tokens count as output."""

    input_usd: NonNegativeFloat
    output_usd: NonNegativeFloat


class ApiModel(Strict):
    """Model behind an OpenAI-compatible chat completions endpoint; evaluated, not trained.

    Attributes:
        model: Name of the model at the endpoint.
        base_url: Address without ``/chat/completions``.
        key_variable: Environment variable that holds the key; None: the endpoint needs none. The
            key itself is never part of a configuration.
        reasoning_tokens: Number of tokens allowed besides the response, for hidden reasoning.
        send_seed: The endpoint accepts a sampling seed.
        prices: Prices for the estimate before an evaluation and for its record.
    """

    kind: Literal["api"]
    name: str
    model: str
    base_url: Annotated[str, AfterValidator(_plain_url)]
    key_variable: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] | None
    reasoning_tokens: NonNegativeInt
    send_seed: bool
    prices: Prices


ModelConfig = Annotated[
    TinyModel | ChoiceModel | HuggingFaceModel | ApiModel, Field(discriminator="kind")
]
