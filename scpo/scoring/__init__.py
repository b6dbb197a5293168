"""Scorers: similarity of two step texts in [0, 1], selected by the configuration."""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from scpo.schema.scorer import (
    INSTALLED,
    OWN,
    BiEncoderScorer,
    CrossEncoderScorer,
    ScorerConfig,
    ScorerRuntime,
)
from scpo.scoring.bi_encoder import BiEncoder
from scpo.scoring.cache import PairCache
from scpo.scoring.cross_encoder import load_cross_encoder
from scpo.scoring.lexical import Exact, Lexical
from scpo.scoring.pretrained import load_part
from scpo.scoring.process import ScorerProcess
from scpo.shaping.drive import Scorer

__all__ = ["SCORERS", "PairCache", "find_scorer", "make_scorer", "open_scorer"]

# Constructor of each kind of scorer, called with configuration, device and cache folder. Modules of
# neural scorers import torch only when they load a model.
SCORERS: dict[str, Callable[[Any, str, Path | None], Scorer]] = {
    "exact": lambda config, device, cache_dir: Exact(config),
    "lexical": lambda config, device, cache_dir: Lexical(config),
    "bi_encoder": BiEncoder,
    "cross_encoder": lambda config, device, cache_dir: load_cross_encoder(config, device),
}

# Users' scorers, in files of their own, enter ``SCORERS`` when they are imported.
for _kind in OWN:
    importlib.import_module(f"{__name__}.{_kind}")

SCORERS.update({part.name: part.value.function for part in INSTALLED})


def make_scorer(
    config: ScorerConfig, *, device: str = "cpu", cache_dir: Path | None = None
) -> Scorer:
    """Build the configured scorer; models are loaded here, on ``device``.

    ``cache_dir``: folder in which a scorer may store what it computes for a text, for other runs.

    Raises:
        ScorerError: The scorer's model or packages are missing; the message names them.
    """
    return SCORERS[config.kind](config, device, cache_dir)


def find_scorer(config: ScorerConfig) -> None:
    """Check that the configured scorer's model exists, without loading it.

    Raises:
        ScorerError: The model does not exist; the message names the remedy.
    """
    # The configuration is the smallest file of a model, and every model has one.
    if isinstance(config, BiEncoderScorer | CrossEncoderScorer):
        load_part(config.path, "AutoConfig")


def open_scorer(
    config: ScorerConfig,
    runtime: ScorerRuntime,
    *,
    device: str = "cpu",
    cache_dir: Path | None = None,
) -> PairCache:
    """Build a trainer's scorer, in a process of its own if ``runtime`` asks for it, and its cache.

    A process is started on first use and then loads the model.

    Args:
        config: The scorer.
        runtime: Process or not, deadlines, and what a failure means.
        device: Where a model runs, as torch names it.
        cache_dir: As in ``make_scorer``.

    Raises:
        ScorerError: As ``make_scorer``, here or, in a process, on first use.
    """
    make = partial(make_scorer, config, device=device, cache_dir=cache_dir)
    if runtime.needs_process(config):
        return PairCache(ScorerProcess(config, runtime, make))
    return PairCache(make())
