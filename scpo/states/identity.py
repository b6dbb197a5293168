"""The interface of a state identity: visits of states in, a label for each of them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError
from scpo.states.visits import Visits
from scpo.steps import IntArray

IdentityRequirement = Literal["facts", "truth", "scorer"]


class Similarity(Protocol):
    """Similarity of text pairs in [0, 1]; SCPO's scorers are of this kind."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Comparison:
    """Inputs of an identity besides the visits.

    Attributes:
        threshold: The similarity from which two texts are one state; None for identities without
            one.
        scorer: For an identity that requires one.
    """

    threshold: float | None = None
    scorer: Similarity | None = None

    def needed_scorer(self) -> Similarity:
        """Return the scorer.

        Raises:
            ConfigError: No scorer was passed.
        """
        if self.scorer is None:
            raise ConfigError(
                "states=scorer compares states with the run's scorer: got None, pass one to "
                "scpo.assign, such as scpo.load_scorer('minilm'), or use states=tfidf, which needs "
                "none"
            )
        return self.scorer

    def needed_threshold(self) -> float:
        """Return the threshold.

        Raises:
            ConfigError: No threshold was passed.
        """
        if self.threshold is None:
            raise ConfigError(
                "this identity compares similarities: states_threshold must be a number in (0, 1]"
            )
        return self.threshold


@dataclass(frozen=True)
class Identity:
    """An entry of the registry, the last line of each identity's file.

    Attributes:
        name: Its name in ``method.estimator.states``.
        label: Its name in tables and figures.
        function: ``f(visits, comparison) -> label_M``. Equal labels inside a rollout group are one
            state; labels of different groups are never compared.
        threshold: The default of ``states_threshold``; None: the identity reads no similarity.
        requires: What it reads beyond texts and actions. ``facts``: structured facts of the
            environment; ``scorer``: the run's scorer; ``truth``: the simulator's state, which no
            user has, so that it is for studies only.
    """

    name: str
    label: str
    function: Callable[[Visits, Comparison], IntArray]
    threshold: float | None = None
    requires: frozenset[IdentityRequirement] = frozenset()
