"""A policy of a few thousand parameters, for tests that need a real model."""

from scpo.policies.language_policy import LocalPolicy
from scpo.policies.model import build_tiny
from scpo.policies.warm_start import train_tokenizer
from scpo.schema.model import TinyModel, WarmStart

WORDS = ["go to desk 1 | take mug 2 from shelf 3 > nothing happens : ; <action> </action>"]


def tiny_config(**changes) -> TinyModel:
    warm_start = WarmStart(
        games=6, demonstrations_per_game=2, stop_detour=0.5, max_detours=2, steps=30, batch_size=16,
        learning_rate=2e-3, prompt_loss_weight=0.2, seed=0,
    )  # fmt: skip
    values = dict(
        kind="tiny", name="tiny", hidden_size=16, layers=2, heads=2, intermediate_size=32, max_positions=256,
        initializer_range=0.2, init_seed=0, warm_start=warm_start,
    )  # fmt: skip
    return TinyModel(**(values | changes))


def tiny_policy(max_response_tokens: int = 6, batch_rows: int = 64) -> LocalPolicy:
    tokenizer = train_tokenizer(WORDS)
    return LocalPolicy(
        build_tiny(tiny_config(), tokenizer),
        tokenizer,
        max_prompt_tokens=64,
        max_response_tokens=max_response_tokens,
        batch_rows=batch_rows,
    )
