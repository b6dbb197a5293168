"""Scorers: how similar two step texts are, in [0, 1]. Each is one file and one line in ``SCORERS``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from scpo.schema.scorer import BiEncoderScorer, CrossEncoderScorer, ScorerConfig, ScorerRuntime
from scpo.scoring.bi_encoder import BiEncoder
from scpo.scoring.cache import PairCache
from scpo.scoring.cross_encoder import load_cross_encoder
from scpo.scoring.lexical import Exact, Lexical
from scpo.scoring.pretrained import load_part
from scpo.scoring.process import ScorerProcess
from scpo.shaping.drive import Scorer

__all__ = ["SCORERS", "PairCache", "find_scorer", "make_scorer", "open_scorer"]

SCORERS: dict[str, Callable[[Any, str, Path | None], Scorer]] = {
    "exact": lambda config, device, cache_dir: Exact(config),
    "lexical": lambda config, device, cache_dir: Lexical(config),
    "bi_encoder": BiEncoder,
    "cross_encoder": lambda config, device, cache_dir: load_cross_encoder(config, device),
}


def make_scorer(config: ScorerConfig, *, device: str = "cpu", cache_dir: Path | None = None) -> Scorer:
    """Build the configured scorer; models are loaded here, on ``device``.

    ``cache_dir``: where a scorer may keep what is a function of a text alone, for other runs.

    Raises:
        ScorerError: The scorer's model or packages are missing; says what to install.
    """
    return SCORERS[config.kind](config, device, cache_dir)


def find_scorer(config: ScorerConfig) -> None:
    """Make sure that the configured scorer's model is there, without loading it.

    Raises:
        ScorerError: It is not; says what to do.
    """
    if isinstance(config, BiEncoderScorer | CrossEncoderScorer):
        load_part(config.path, "AutoConfig")


def open_scorer(
    config: ScorerConfig, runtime: ScorerRuntime, *, device: str = "cpu", cache_dir: Path | None = None
) -> PairCache:
    """The configured scorer as a trainer uses it: where ``runtime`` says, and with a memory of the step's pairs.

    A process starts, and loads the model, on first use.

    Raises:
        ScorerError: As ``make_scorer``, here or, in a process, on first use.
    """
    make = partial(make_scorer, config, device=device, cache_dir=cache_dir)
    return PairCache(ScorerProcess(config, runtime, make) if runtime.apart(config) else make())
