"""The interface of a state identity: visits of states in, a label for each of them out.

Visits are the items that an identity labels: the states before steps, and final states.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError, StepBatchError
from scpo.steps import BoolArray, IntArray, StepBatch, StrArray

StateKey = Literal["anchor", "state"]
"""The text of a state: the raw observation, or all that the agent was shown of its state."""

GivenColumn = Literal["facts", "commands", "true_anchor", "true_state"]
"""Columns of ``StepBatch`` that an environment may provide; prefix ``next_``: after the step."""

START = "<start>"
"""The action before the first step of an episode."""


def key_ids(keys: Iterable[Hashable]) -> IntArray:
    """Number keys such that exactly the equal keys share a number (one hash per key, no sort)."""
    first: dict[Hashable, int] = {}
    return np.fromiter(map(first.setdefault, keys, count()), dtype=np.int64)


def state_texts(batch: StepBatch, key: StateKey) -> StrArray:
    """The text of the state that each row's step starts from.

    Raises:
        StepBatchError: ``state`` is asked for and the environment gave none.
    """
    if key == "anchor":
        return batch.anchor_N
    if batch.state_N is None:
        raise StepBatchError(
            "state_key=state needs state_N, which this batch lacks: its environment gives no "
            "states; use state_key=anchor, or see StatefulEpisode in scpo/envs/base.py"
        )
    return batch.state_N


def next_state_texts(batch: StepBatch, key: StateKey) -> StrArray:
    """The text of the state that each row's step leads to."""
    if key == "anchor" or batch.next_state_N is None:
        return batch.next_observation_N
    return batch.next_state_N


@dataclass(frozen=True)
class Visits:
    """Visits of states, ``_M``: every row's state before its step, then all final states.

    Attributes:
        batch: The steps.
        key: The text of a state to read.
        row_M: The row whose step starts from the state or, for a last state, leads to it.
        final_M: True for last states.
    """

    batch: StepBatch
    key: StateKey
    row_M: IntArray
    final_M: BoolArray

    @classmethod
    def of(cls, batch: StepBatch, key: StateKey) -> Visits:
        """All visits of a batch."""
        line = batch.timeline
        last_K = line.row_KT[np.arange(len(line.length_K)), line.length_K - 1]
        row_M = np.concatenate([np.arange(len(batch)), last_K])
        return cls(batch, key, row_M, np.arange(len(row_M)) >= len(batch))

    def __len__(self) -> int:
        return len(self.row_M)

    def column(self, before_N: StrArray, after_N: StrArray) -> StrArray:
        """A text of each visit from the columns that hold it before and after a step."""
        text_M: StrArray = np.where(self.final_M, after_N[self.row_M], before_N[self.row_M])
        return text_M

    @cached_property
    def text_M(self) -> StrArray:
        """The state's text, as ``key`` selects it.

        Raises:
            StepBatchError: The environment gave no states and ``key`` asks for them.
        """
        return self.column(
            state_texts(self.batch, self.key), next_state_texts(self.batch, self.key)
        )

    @cached_property
    def observation_M(self) -> StrArray:
        """The raw observation."""
        return self.column(self.batch.anchor_N, self.batch.next_observation_N)

    @cached_property
    def last_action_M(self) -> StrArray:
        """The action that led to the state, ``START`` at the start of an episode."""
        before_N = self.batch.timeline.neighbours(-1)
        previous_N = np.where(before_N >= 0, self.batch.action_N[before_N], START)
        return self.column(previous_N, self.batch.action_N)

    @property
    def group_M(self) -> IntArray:
        """The rollout group."""
        return self.batch.group_N[self.row_M]

    @property
    def order_M(self) -> IntArray:
        """Visits in the trainer's processing order, last states after all others.

        A step and its copies have one place, so that a trainer's copies change no cluster.
        """
        return np.lexsort((self.batch.timeline.position_N[self.row_M], self.final_M))

    def given(self, name: GivenColumn) -> StrArray | None:
        """Further facts that the environment provides on the state; None if there are none."""
        before_N: StrArray | None = getattr(self.batch, f"{name}_N")
        after_N: StrArray | None = getattr(self.batch, f"next_{name}_N")
        if before_N is None or after_N is None:
            return None
        return self.column(before_N, after_N)

    def needed(self, name: GivenColumn, identity: str) -> StrArray:
        """The same for an identity that cannot do without it.

        Raises:
            StepBatchError: The environment does not give it; names the field and other identities.
        """
        column_M = self.given(name)
        if column_M is None:
            raise StepBatchError(
                f"states={identity} needs {name}_N and next_{name}_N, which this batch lacks: its "
                "environment or trainer does not give them; use states=history or states=entities, "
                "which read texts and actions"
            )
        return column_M

    def split(self, label_M: IntArray) -> StateIds:
        """Labels of all visits by row."""
        line = self.batch.timeline
        source_N = label_M[: len(self.batch)]
        last_K = label_M[len(self.batch) :]
        next_N = line.neighbours(1)
        return StateIds(source_N, np.where(next_N >= 0, source_N[next_N], last_K[line.slot_N]))


@dataclass(frozen=True)
class StateIds:
    """The states of every row by number: rows of one group with equal numbers share a state.

    Attributes:
        source_N: The state that the step starts from.
        target_N: The state that it leads to.
    """

    source_N: IntArray
    target_N: IntArray


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
