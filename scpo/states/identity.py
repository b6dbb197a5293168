"""The interface of a state identity: it gets visits of states and returns a label for each visit.

Visits are the states before steps, and final states. After the interface come features of visits
that identities share (names, words, verbs) and the clustering of texts.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError, StepBatchError
from scpo.states.words import Names, names_in, verb_of
from scpo.steps import BoolArray, IntArray, StepBatch, StrArray

StateKey = Literal["anchor", "state"]
"""The text of a state: the raw observation, or all that the agent was shown of its state."""

GivenColumn = Literal["facts", "commands", "true_anchor", "true_state"]
"""Columns of ``StepBatch`` that an environment may provide; prefix ``next_``: after the step."""

# Only the most frequent words of a batch are counted, which keeps the matrices of visits x words
# small: 17 MB for 4,096 visits.
MOST_WORDS = 512

# Threshold for the largest z of some thousand correlations; by chance it is about 4.5.
LEAST_Z = 6.0

# A whole word that is not followed by a number. Without the letter in the lookahead the pattern
# would match "cabine" in "cabinet 1".
_WORD = re.compile(r"[a-z]+(?![a-z]| \d)")

START = "<start>"
"""The action before the first step of an episode."""


def key_ids(keys: Iterable[Hashable]) -> IntArray:
    """Number of each key, the index at which it first occurs: equal keys share a number.

    One hash per key, no sort.
    """
    first: dict[Hashable, int] = {}
    return np.fromiter(map(first.setdefault, keys, itertools.count()), dtype=np.int64)


def state_texts(batch: StepBatch, key: StateKey) -> StrArray:
    """The text of the state that each row's step starts from.

    ``state`` never falls back to the observation: on ALFWorld, equal observations hide what the
    agent holds, which changes what graph credit learns (REPRODUCTION.md, "Study scale").

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
    """The text of the state that each row's step leads to.

    Read only for last steps, and after ``state_texts``, which refuses a batch without states.
    """
    if key == "anchor" or batch.next_state_N is None:
        return batch.next_observation_N
    return batch.next_state_N


def _cut(text_N: StrArray, end_N: StrArray) -> StrArray:
    """The texts without the given suffixes; a text without its suffix stays as it is."""
    cut_N: StrArray = np.empty(len(text_N), dtype=object)
    cut_N[:] = [text.removesuffix(end) for text, end in zip(text_N, end_N, strict=True)]
    return cut_N


@dataclass(frozen=True)
class Visits:
    """Visits of states, ``_M``: every row's state before its step, then all final states.

    Attributes:
        batch: The steps.
        key: The text of a state to read.
        row_M: The row whose step starts from the state or, for a final state, leads to it.
        final_M: True for final states.
    """

    batch: StepBatch
    key: StateKey
    row_M: IntArray
    final_M: BoolArray

    @classmethod
    def of(cls, batch: StepBatch, key: StateKey) -> Visits:
        """All visits of a batch."""
        line = batch.timeline
        # No step starts from a final state, so final states are added as visits of their own.
        last_K = line.row_KT[np.arange(len(line.length_K)), line.length_K - 1]
        row_M = np.concatenate([np.arange(len(batch)), last_K])
        return cls(batch, key, row_M, np.arange(len(row_M)) >= len(batch))

    def __len__(self) -> int:
        return len(self.row_M)

    def column(self, before_N: StrArray, after_N: StrArray) -> StrArray:
        """A value per visit, from a column before the step and the same column after it."""
        text_M: StrArray = np.where(self.final_M, after_N[self.row_M], before_N[self.row_M])
        return text_M

    @functools.cached_property
    def text_M(self) -> StrArray:
        """The state's text, as ``key`` selects it.

        Raises:
            StepBatchError: ``key`` is ``state``, and the batch has no states.
        """
        return self.column(
            state_texts(self.batch, self.key), next_state_texts(self.batch, self.key)
        )

    def without_commands(self) -> Visits:
        """The same visits, with state texts that do not end with the list of admissible commands.

        ALFWorld's state text ends with that list, and its commands name things that the rest of the
        text may not name. If the texts are observations, or the batch lacks states or commands, the
        visits are returned as they are.
        """
        batch = self.batch
        if (
            self.key == "anchor"
            or batch.state_N is None
            or batch.next_state_N is None
            or batch.commands_N is None
            or batch.next_commands_N is None
        ):
            return self
        state_N = _cut(batch.state_N, batch.commands_N)
        next_state_N = _cut(batch.next_state_N, batch.next_commands_N)
        return replace(self, batch=replace(batch, state_N=state_N, next_state_N=next_state_N))

    @functools.cached_property
    def observation_M(self) -> StrArray:
        """The raw observation."""
        return self.column(self.batch.anchor_N, self.batch.next_observation_N)

    @functools.cached_property
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
        """Indices of the visits in the trainer's processing order, final states last.

        Leader clusters depend on the order; verl-agent's code reads the rows in this order. A step
        and its copies have the same position, so copies change no cluster.
        """
        return np.lexsort((self.batch.timeline.position_N[self.row_M], self.final_M))

    def given(self, name: GivenColumn) -> StrArray | None:
        """An optional column by visit; None if the environment does not provide it.

        Args:
            name: The column; final states read it after the step, all others before the step.
        """
        before_N: StrArray | None = getattr(self.batch, f"{name}_N")
        after_N: StrArray | None = getattr(self.batch, f"next_{name}_N")
        if before_N is None or after_N is None:
            return None
        return self.column(before_N, after_N)

    def needed(self, name: GivenColumn, identity: str) -> StrArray:
        """An optional column that an identity requires.

        Args:
            name: As in :meth:`given`.
            identity: Name of the identity, for the message.

        Raises:
            StepBatchError: The environment does not provide the column; names it and identities
                that do not need it.
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
        """Arrange the labels of all visits by row.

        Args:
            label_M: Label of each visit, as an identity returns them.

        Returns:
            The labels before and after each row's step.
        """
        line = self.batch.timeline
        source_N = label_M[: len(self.batch)]
        last_K = label_M[len(self.batch) :]
        # A step leads to the state from which the next step starts; the last one leads to a final
        # state.
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
"""Input of an identity beyond texts and actions; see ``Identity.requires``."""


class Similarity(Protocol):
    """Similarity of text pairs in [0, 1]; SCPO's scorers implement it."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]: ...


class Memory(Protocol):
    """Memory of an identity between training steps, which checkpoints hold.

    ``dump`` gives the same bytes for the same content, so that a resumed run writes the same
    checkpoints as an uninterrupted one. ``load`` replaces the content by that of a ``dump``.
    """

    def dump(self) -> bytes: ...

    def load(self, content: bytes) -> None: ...


MEMORY_FILE = "states.json"
"""File of the memory in a checkpoint."""


@dataclass(frozen=True)
class Comparison:
    """Inputs of an identity besides the visits.

    Attributes:
        threshold: The similarity from which two texts are one state; None for identities without
            one.
        scorer: For an identity that requires one.
        memory: What the identity learned in earlier training steps, to which it adds what it
            learns from this batch. None: it reads only this batch.
    """

    threshold: float | None = None
    scorer: Similarity | None = None
    memory: Memory | None = None

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
    """Registry entry of an identity, defined at the end of the identity's file.

    Attributes:
        name: Its name in ``method.estimator.states``.
        label: Its name in tables and figures.
        function: ``f(visits, comparison) -> label_M``. Equal labels inside a rollout group are one
            state; labels of different groups are never compared.
        threshold: The default of ``states_threshold``; None: the identity reads no similarity.
        requires: What it reads beyond texts and actions. ``facts``: structured facts of the
            environment; ``scorer``: the run's scorer; ``truth``: the simulator's state, which no
            user has, so that it is for studies only.
        memory: Creates the empty memory of a run; None: the identity keeps nothing.
    """

    name: str
    label: str
    function: Callable[[Visits, Comparison], IntArray]
    threshold: float | None = None
    requires: frozenset[IdentityRequirement] = frozenset()
    memory: Callable[[], Memory] | None = None


# Names, verbs and words of visits: features that identities share.


def acted_names(visits: Visits, *, commands: bool = True) -> list[Names]:
    """The names in each visit's text that the actions or commands of its group use.

    Names that no action uses, such as a time stamp or the price in an advertisement, are not part
    of the state.

    Args:
        visits: The visits.
        commands: Admissible commands count as well as actions, if the environment gives them.

    Returns:
        The names of each visit's text, with their counts, sorted.
    """
    known = _names_acted_on(visits, commands=commands)
    acted = []
    for group, text in zip(visits.group_M.tolist(), visits.text_M, strict=True):
        acted.append(tuple(pair for pair in names_in(text) if pair[0] in known[group]))
    return acted


def _names_acted_on(visits: Visits, *, commands: bool) -> dict[int, set[str]]:
    """Names in the actions, and in the admissible commands if wanted, of each group."""
    known: dict[int, set[str]] = {}
    texts = [visits.batch.action_N[visits.row_M]]
    commands_M = visits.given("commands") if commands else None
    if commands_M is not None:
        texts.append(commands_M)
    for column in texts:
        # A set: a group repeats most of its texts, and each costs a search.
        for group, text in set(zip(visits.group_M.tolist(), column, strict=True)):
            known.setdefault(group, set()).update(name for name, _ in names_in(text))
    return known


def verbs_used(visits: Visits) -> tuple[BoolArray, list[str]]:
    """The verbs used before each visit, and the list of verbs.

    A verb is the first word of an action.

    Returns:
        ``used_MV``, True where verb V was used before visit M, and the verbs in sorted order.
    """
    batch = visits.batch
    line = visits.batch.timeline
    verb_N = [verb_of(action) for action in batch.action_N]
    verbs = sorted(set(verb_N))
    place = {verb: index for index, verb in enumerate(verbs)}
    code_N = np.array([place[verb] for verb in verb_N], dtype=np.int64)

    # By trajectory and time (KTV): used at a step, up to it, and before it. Copies, which are not
    # in the timeline, read the cell of their original.
    used_KTV = np.zeros((*line.row_KT.shape, len(verbs)), dtype=bool)
    k, t = np.nonzero(line.row_KT >= 0)
    used_KTV[k, t, code_N[line.row_KT[k, t]]] = True
    after_KTV = np.logical_or.accumulate(used_KTV, axis=1)
    before_KTV = np.zeros_like(after_KTV)
    # Used before a step means used up to the previous step; no verb was used before the first step.
    before_KTV[:, 1:] = after_KTV[:, :-1]

    # For a final state, the verbs used up to the last step count.
    slot_M = line.slot_N[visits.row_M]
    step_M = line.step_N[visits.row_M]
    after_MV = after_KTV[slot_M, step_M]
    before_MV = before_KTV[slot_M, step_M]
    return np.where(visits.final_M[:, None], after_MV, before_MV), verbs


def lasting_verbs(visits: Visits, used_MV: BoolArray, name_id_M: IntArray) -> BoolArray:
    """Find the verbs whose use shows in the words of later texts, without labels.

    Visits of a group with the same last action and names are compared: a verb lasts if the presence
    of some word correlates with whether the verb was used (z of at least ``LEAST_Z``). Forward
    selection: verbs are chosen one by one, the strongest first, and each further comparison is made
    among visits that agree in all chosen verbs, so that a verb which only accompanies a lasting one
    is left out.

    Args:
        visits: The visits.
        used_MV: True where a verb was used before a visit.
        name_id_M: Number of the names in each visit's text; equal names have equal numbers.

    Returns:
        ``lasts_V``, True for lasting verbs.
    """
    lasts_V = np.zeros(used_MV.shape[1], dtype=bool)
    has_MW = word_counts(visits) > 0
    class_M = key_ids(
        zip(visits.group_M.tolist(), visits.last_action_M, name_id_M.tolist(), strict=True)
    )
    for _ in range(used_MV.shape[1]):
        z_V = np.where(lasts_V, 0.0, _strongest(used_MV, has_MW, class_M))
        best = int(np.argmax(z_V))
        if z_V[best] < LEAST_Z:
            break

        lasts_V[best] = True
        # The next verbs are compared among visits that agree in this one.
        class_M = key_ids(zip(class_M.tolist(), used_MV[:, best].tolist(), strict=True))
    return lasts_V


def _strongest(used_MV: BoolArray, has_MW: BoolArray, class_M: IntArray) -> NDArray[np.float64]:
    """Strongest correlation of each verb with a word: the largest |r| sqrt(n), within classes.

    If verb and word are independent, r sqrt(n) is nearly standard normal; ``LEAST_Z`` allows for
    taking the largest of many.

    Args:
        used_MV: True where a verb was used before a visit.
        has_MW: True where a text contains a word.
        class_M: Class of each visit; visits are compared within their class.

    Returns:
        ``z_V``, not negative.
    """
    # Numbered without gaps, so that `centred` sums over no empty classes.
    _, class_id_M = np.unique(class_M, return_inverse=True)
    used = centred(used_MV, class_id_M)
    has = centred(has_MW, class_id_M)
    # Only visits of classes in which the verb was used by some and not by others are informative.
    varies_MV = used != 0
    # The centred values of a class sum to 0, so sums of products are n times the covariance.
    covariance_VW = used.T @ has
    variance_V = (used**2).sum(axis=0)
    variance_VW = varies_MV.T.astype(np.float64) @ has**2
    count_V = varies_MV.sum(axis=0)
    scale_VW = np.sqrt(variance_V[:, None] * variance_VW)
    r_VW = np.divide(covariance_VW, scale_VW, out=np.zeros_like(covariance_VW), where=scale_VW > 0)
    z_V: NDArray[np.float64] = np.abs(r_VW).max(axis=1, initial=0.0) * np.sqrt(count_V)
    return z_V


def centred(value_MF: BoolArray, class_id_M: IntArray) -> NDArray[np.float64]:
    """The values minus their mean over the visits of the same class, ``(visits, features)``.

    Args:
        value_MF: The values.
        class_id_M: Number of each visit's class, from 0 on; numbers may be unused.
    """
    count_C = np.bincount(class_id_M)
    sums = np.zeros((len(count_C), value_MF.shape[1]))
    np.add.at(sums, class_id_M, value_MF.astype(np.float64))
    return value_MF - (sums / np.maximum(count_C, 1)[:, None])[class_id_M]


def word_counts(visits: Visits) -> NDArray[np.int64]:
    """Count the batch's most frequent words in each visit's text, shape ``(visits, words)``.

    A word that a number follows is part of a name and not counted.
    """
    # Each distinct text is searched once.
    words = {text: Counter(_WORD.findall(text.lower())) for text in set(visits.text_M)}
    totals: Counter[str] = Counter()
    for counted in words.values():
        totals.update(counted)
    # Ties by word, so that the columns do not depend on the order of the texts.
    most = sorted(totals, key=lambda word: (-totals[word], word))[:MOST_WORDS]
    column = {word: index for index, word in enumerate(most)}
    counts: dict[str, NDArray[np.int64]] = {}
    for text, counted in words.items():
        counts[text] = np.zeros(len(column), dtype=np.int64)
        for word, count in counted.items():
            if word in column:
                counts[text][column[word]] = count

    rows: list[Any] = [counts[text] for text in visits.text_M]
    if rows:
        return np.stack(rows)
    return np.zeros((0, len(column)), dtype=np.int64)


# Leader clustering: each text joins the first similar leader, or becomes a new leader. The result
# depends on the order of the texts, which is the trainer's processing order, as in GiGPO's difflib
# option.


def leader_labels(visits: Visits, leaders_of: Callable[[list[str]], Sequence[int]]) -> IntArray:
    """Labels of visits whose texts are clustered inside their group.

    Args:
        visits: The visits.
        leaders_of: Function from a group's distinct texts, in processing order, to the index of
            each text's leader.

    Returns:
        ``label_M``. Different groups use the same labels, since labels are compared only inside a
        group.
    """
    text_id_M = key_ids(visits.text_M)
    order = visits.order_M
    label_M = np.zeros(len(visits), dtype=np.int64)
    for group in np.unique(visits.group_M):
        members = order[visits.group_M[order] == group]
        # Equal texts are compared once: a group repeats most of them.
        _, first, place = np.unique(text_id_M[members], return_index=True, return_inverse=True)
        # `unique` sorts by id; `in_order` brings the texts back into the order of the visits.
        in_order = np.argsort(first)
        texts = [visits.text_M[members[first[distinct]]] for distinct in in_order]
        # The inverse permutation: the place of each distinct text among `texts`.
        rank = np.argsort(in_order)
        label_M[members] = np.asarray(leaders_of(texts), dtype=np.int64)[rank[place]]
    return label_M


def leaders_in(similarity: NDArray[np.floating], threshold: float) -> list[int]:
    """The leader of each text from the similarities of all pairs, ``(texts, texts)``."""
    near = similarity >= threshold
    is_leader = np.zeros(len(near), dtype=bool)
    chosen = []
    for index, row in enumerate(near):
        # Only earlier leaders count, so that the first similar one is joined.
        candidates = np.flatnonzero(row[:index] & is_leader[:index])
        is_leader[index] = not len(candidates)
        chosen.append(int(candidates[0]) if len(candidates) else index)
    return chosen
