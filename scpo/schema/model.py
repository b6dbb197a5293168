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
from scpo.strict import Strict


class Imitation(Strict):
    """Supervised start of a small policy on walkthroughs with exploratory detours."""

    games: PositiveInt
    demonstrations_per_game: PositiveInt
    stop_detour: Annotated[float, Field(gt=0, le=1)]
    max_detours: NonNegativeInt
    steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    seed: NonNegativeInt


class WarmStart(Imitation):
    """Warm start of a language model, which also learns its prompts' words."""

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
    init_seed: NonNegativeInt
    warm_start: WarmStart


class ChoiceModel(Strict):
    """A policy that scores the commands a prompt lists, from hashed features of state and command.

    A ``table_rows`` x ``width`` table of feature embeddings, drawn with standard deviation
    ``init_scale``, and one hidden layer. ``value_model`` is the critic's, for PPO. ``starts`` is
    the number of imitation starts that the runs of an experiment share: a run with seed s begins
    with start s mod ``starts``.
    """

    kind: Literal["choice"]
    name: str
    table_rows: Annotated[int, Field(ge=2)]
    width: PositiveInt
    hidden_size: PositiveInt
    init_scale: PositiveFloat
    init_seed: NonNegativeInt
    starts: PositiveInt = Field(default=1, exclude_if=lambda starts: starts == 1)
    imitation: Imitation
    value_model: CriticSettings

    def started(self, seed: int) -> "ChoiceModel":
        """Model with the imitation start of a run with this seed.

        Each start has its own first weights and demonstrations.
        """
        # In turn, so that an interval over seeds includes the differences between starts.
        start = seed % self.starts
        imitation = self.imitation.model_copy(update={"seed": self.imitation.seed + start})
        return self.model_copy(
            update={"init_seed": self.init_seed + start, "starts": 1, "imitation": imitation}
        )


class HuggingFaceModel(Strict):
    """Causal LM from a local path or the hub.

    ``micro_batch_rows`` of it fit on one of the paper's GPUs. ``engine_memory`` is the default of
    ``trainer.verl.engine_memory`` for this model, which records the value: it is not dumped here.
    """

    kind: Literal["huggingface"]
    name: str
    path: str
    dtype: Literal["float32", "bfloat16"]
    micro_batch_rows: PositiveInt
    engine_memory: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, exclude=True)


def _plain_url(url: str) -> str:
    parts = urlsplit(url)
    # "@" and not parts.username, which is empty for an address with a password and no name.
    private = "@" in parts.netloc or parts.query
    if parts.scheme not in ("http", "https") or not parts.hostname or private or parts.port == 0:
        raise ValueError(
            "a base URL is http(s)://host/path without user, password or query, such as "
            "https://api.openai.com/v1; a key belongs into the environment variable that "
            "key_variable names"
        )
    return url.rstrip("/")


class Prices(Strict):
    """US dollars for a million tokens. A reasoning model's hidden tokens count as output."""

    input_usd: NonNegativeFloat
    output_usd: NonNegativeFloat


class ApiModel(Strict):
    """Model behind an OpenAI-compatible chat completions endpoint; evaluated, not trained.

    ``model`` is the endpoint's name of it. ``key_variable`` names the environment variable that
    holds the key (None: the endpoint needs none); the key itself is never part of a configuration.
    ``reasoning_tokens`` are allowed on top of the response, for models with hidden reasoning.
    ``send_seed``: the endpoint accepts a sampling seed.
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
