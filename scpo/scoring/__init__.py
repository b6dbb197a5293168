"""Scorers: how similar two step texts are, in [0, 1]. Each is one file and one line in ``SCORERS``."""

from collections.abc import Callable
from typing import Any

from scpo.schema.scorer import ScorerConfig
from scpo.scoring.bi_encoder import BiEncoder
from scpo.scoring.exact import Exact
from scpo.shaping.drive import Scorer

SCORERS: dict[str, Callable[[Any, str], Scorer]] = {
    "exact": lambda config, device: Exact(config),
    "bi_encoder": BiEncoder,
}


def make_scorer(config: ScorerConfig, *, device: str = "cpu") -> Scorer:
    """Build the configured scorer; models are loaded here, on ``device``.

    Raises:
        ScorerError: The scorer's model or packages are missing; says what to install.
    """
    return SCORERS[config.kind](config, device)
