"""The interface of a state identity: visits of states in, a label for each of them out.

Visits are the items that an identity labels: the states before steps, and final states. Below the
interface is what identities read of them: names, words and verbs, and clusters of texts.
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

# Only the most frequent words of a batch are counted: matrices of visits x words stay small, 17 MB
# for 4,096 visits.
MOST_WORDS = 512

# Threshold for the strongest of some thousand correlations, of which chance gives 4.5.
LEAST_Z = 6.0
# A whole word that no number follows. Without the letter in the lookahead the pattern would take
# "cabine" of "cabinet 1".
_WORD = re.compile(r"[a-z]+(?![a-z]| \d)")

START = "<start>"
"""The action before the first step of an episode."""


def key_ids(keys: Iterable[Hashable]) -> IntArray:
    """Number keys such that exactly the equal keys share a number (one hash per key, no sort)."""
    first: dict[Hashable, int] = {}
    return np.fromiter(map(first.setdefault, keys, itertools.count()), dtype=np.int64)


def state_texts(batch: StepBatch, key: StateKey) -> StrArray:
    """The text of the state that each row's step starts from.

    Never falls back to the observation: on ALFWorld it joins states that differ in what is held,
    which changes what graph credit learns (REPRODUCTION.md, "Study scale").

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

    Only read of last steps; ``state_texts`` has refused a batch without states before.
    """
    if key == "anchor" or batch.next_state_N is None:
        return batch.next_observation_N
    return batch.next_state_N


def _cut(text_N: StrArray, end_N: StrArray) -> StrArray:
    """The texts without the given ends; a text that ends otherwise stays whole."""
    cut_N: StrArray = np.empty(len(text_N), dtype=object)
    cut_N[:] = [text.removesuffix(end) for text, end in zip(text_N, end_N, strict=True)]
    return cut_N


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
        # Final states are seen by no step, so that they are added as visits of their own.
        last_K = line.row_KT[np.arange(len(line.length_K)), line.length_K - 1]
        row_M = np.concatenate([np.arange(len(batch)), last_K])
        return cls(batch, key, row_M, np.arange(len(row_M)) >= len(batch))

    def __len__(self) -> int:
        return len(self.row_M)

    def column(self, before_N: StrArray, after_N: StrArray) -> StrArray:
        """A text of each visit from the columns that hold it before and after a step."""
        text_M: StrArray = np.where(self.final_M, after_N[self.row_M], before_N[self.row_M])
        return text_M

    @functools.cached_property
    def text_M(self) -> StrArray:
        """The state's text, as ``key`` selects it.

        Raises:
            StepBatchError: The environment gave no states and ``key`` asks for them.
        """
        return self.column(
            state_texts(self.batch, self.key), next_state_texts(self.batch, self.key)
        )

    def without_commands(self) -> Visits:
        """The same visits, with states that do not end with the list of admissible commands.

        ALFWorld's state text has that list. A command names things of which the text tells nothing.
        Batches without states or without commands are returned as they are.
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
        """Visits in the trainer's processing order, last states after all others.

        A step and its copies have one place, so that a trainer's copies change no cluster. Leader
        clusters depend on the order; this is the one in which verl-agent's code meets the rows.
        """
        return np.lexsort((self.batch.timeline.position_N[self.row_M], self.final_M))

    def given(self, name: GivenColumn) -> StrArray | None:
        """Further facts that the environment provides on the state; None if there are none.

        Args:
            name: The column, read before the step for all visits but the last ones.
        """
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
        """Labels of all visits by row.

        Args:
            label_M: The answer of an identity.

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
    """Similarity of text pairs in [0, 1]; SCPO's scorers are of this kind."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]: ...


class Memory(Protocol):
    """Memory of an identity between training steps; checkpoints hold it.

    ``dump`` gives the same bytes for the same content, so that a resumed run writes the checkpoints
    of an undisturbed one; ``load`` takes over what ``dump`` gave.
    """

    def dump(self) -> bytes: ...

    def load(self, content: bytes) -> None: ...


MEMORY_FILE = "states.json"
"""Name of a memory in a checkpoint."""


@dataclass(frozen=True)
class Comparison:
    """Inputs of an identity besides the visits.

    Attributes:
        threshold: The similarity from which two texts are one state; None for identities without
            one.
        scorer: For an identity that requires one.
        memory: Of earlier training steps, for an identity that has one, which adds this step's;
            None: the batch is the only one.
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
        memory: Creates the empty memory of a run; None: the identity keeps nothing.
    """

    name: str
    label: str
    function: Callable[[Visits, Comparison], IntArray]
    threshold: float | None = None
    requires: frozenset[IdentityRequirement] = frozenset()
    memory: Callable[[], Memory] | None = None


# Names, verbs and words of visits: features that identities share


def acted_names(visits: Visits, *, commands: bool = True) -> list[Names]:
    """The names in each text that the group's actions or commands use, and how often each.

    Names that no action uses, such as a time stamp or the price in an advertisement, are not a part
    of the state.

    Args:
        visits: The visits.
        commands: Whether to read the admissible commands, if the environment gives them.

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
    """The verbs used before each visit, ``(visits, verbs)``, and the list of verbs.

    A verb is the first word of an action. By trajectory and time (``KTV``), so that copies, which
    are in no timeline, read their original's cell.
    """
    batch = visits.batch
    line = visits.batch.timeline
    verb_N = [verb_of(action) for action in batch.action_N]
    verbs = sorted(set(verb_N))
    place = {verb: index for index, verb in enumerate(verbs)}
    code_N = np.array([place[verb] for verb in verb_N], dtype=np.int64)

    # Used at a step, up to it, and before it.
    used_KTV = np.zeros((*line.row_KT.shape, len(verbs)), dtype=bool)
    k, t = np.nonzero(line.row_KT >= 0)
    used_KTV[k, t, code_N[line.row_KT[k, t]]] = True
    after_KTV = np.logical_or.accumulate(used_KTV, axis=1)
    before_KTV = np.zeros_like(after_KTV)
    # What was used before a step was used up to the step before it; before the first, nothing was.
    before_KTV[:, 1:] = after_KTV[:, :-1]

    # A final state has what was used up to the last step.
    slot_M = line.slot_N[visits.row_M]
    step_M = line.step_N[visits.row_M]
    after_MV = after_KTV[slot_M, step_M]
    before_MV = before_KTV[slot_M, step_M]
    return np.where(visits.final_M[:, None], after_MV, before_MV), verbs


def lasting_verbs(visits: Visits, used_MV: BoolArray, name_id_M: IntArray) -> BoolArray:
    """The verbs that leave a trace: after them, the words differ from what they are without.

    Needs no label. Visits of a group with the same last action and names are compared: if the
    presence of some word correlates with whether a verb was used (z of at least ``LEAST_Z``), the
    verb lasts. Forward selection: the strongest verb joins what the next ones are compared within,
    so that a verb which only accompanies a lasting one is left out.

    Args:
        visits: The visits.
        used_MV: Which verbs were used before each visit.
        name_id_M: The names of each visit's text, by number.

    Returns:
        ``lasts_V``.
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
    """For each verb the largest |r| sqrt(n) with a word's presence, within classes.

    Under independence |r| sqrt(n) of one word is nearly standard normal; ``LEAST_Z`` allows for
    the largest of many.

    Args:
        used_MV: Which verbs were used before each visit.
        has_MW: Which words each text has.
        class_M: Visits of one class are compared.

    Returns:
        ``z_V``, not negative.
    """
    # Dense, as `centred` counts with them.
    _, class_id_M = np.unique(class_M, return_inverse=True)
    used = centred(used_MV, class_id_M)
    has = centred(has_MW, class_id_M)
    # Only visits whose class varies in the verb are informative.
    varies_MV = used != 0
    covariance_VW = used.T @ has
    # The centred values of a class sum to 0, so that sums of products are covariances within
    # classes.
    variance_V = (used**2).sum(axis=0)
    variance_VW = varies_MV.T.astype(np.float64) @ has**2
    count_V = varies_MV.sum(axis=0)
    scale_VW = np.sqrt(variance_V[:, None] * variance_VW)
    r_VW = np.divide(covariance_VW, scale_VW, out=np.zeros_like(covariance_VW), where=scale_VW > 0)
    z_V: NDArray[np.float64] = np.abs(r_VW).max(axis=1, initial=0.0) * np.sqrt(count_V)
    return z_V


def centred(value_MF: BoolArray, class_id_M: IntArray) -> NDArray[np.float64]:
    """The values minus their mean over the visits of the same class, ``(visits, features)``."""
    count_C = np.bincount(class_id_M)
    sums = np.zeros((len(count_C), value_MF.shape[1]))
    np.add.at(sums, class_id_M, value_MF.astype(np.float64))
    return value_MF - (sums / np.maximum(count_C, 1)[:, None])[class_id_M]


def word_counts(visits: Visits) -> NDArray[np.int64]:
    """Count the batch's most frequent words in each text, shape ``(visits, words)``.

    A word before a number is a part of a name and not counted.

    Args:
        visits: The visits; each distinct text is read once.
    """
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
# depends on the order, as in GiGPO's difflib option: texts are visited in the trainer's processing
# order.


def leader_labels(visits: Visits, leaders_of: Callable[[list[str]], Sequence[int]]) -> IntArray:
    """Labels of visits whose texts are clustered inside their group.

    Args:
        visits: The visits.
        leaders_of: For each of a group's distinct texts, in order, the index of its leader.

    Returns:
        ``label_M``; labels of different groups coincide, which nobody compares.
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
