"""States are equal if last action, names and the lasting effects on the named things are equal.

Reads texts and the episodes' own actions only: neither admissible commands nor facts nor labels.

An act is an action's verb, done to the first thing that the action names. What wording hides, the
acts done to a thing tell: "mug 1 (washed)" and "mug 1 (rinsed)" are one mug that ``clean`` was used
on. Only acts whose effect lasts may count, for others would split equal states; an act lasts if
later texts show that it was done, however they are worded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import RecordError
from scpo.states.identity import (
    Comparison,
    Identity,
    Visits,
    acted_names,
    centred,
    key_ids,
    word_counts,
)
from scpo.states.words import first_name, names_in, verb_of
from scpo.steps import BoolArray, IntArray

# An act lasts if the words of texts predict in episodes that were left out whether it was done: a
# correlation of LEAST_R, because chance gives none, and LEAST_Z times its standard error. About 12
# verbs are tested in each training step: chance promotes one in 60 runs of 40 steps.
LEAST_R = 0.4
LEAST_Z = 4.0
# Words whose correlation is smaller, in standard errors, do not take part in the prediction.
LEAST_WORD_Z = 2.0

Things = tuple[str, ...]
"""Names that a text is about, sorted."""

Acts = tuple[tuple[str, str], ...]
"""Pairs of a name and a verb that was used on it."""

FloatMatrix = NDArray[np.float64]


class ActMemory:
    """The verbs that were found to last, kept from one training step to the next.

    A batch shows only what its episodes differ in: once a policy always cleans the mug, nothing
    shows any longer that cleaning matters.
    """

    def __init__(self) -> None:
        self.verbs: set[str] = set()

    def dump(self) -> bytes:
        """For the checkpoint: JSON, the same bytes for the same content."""
        return json.dumps(sorted(self.verbs)).encode()

    def load(self, content: bytes) -> None:
        """Take over what :meth:`dump` gave.

        Raises:
            RecordError: It is not a JSON list of verbs.
        """
        try:
            found = json.loads(content)
        except ValueError as error:
            raise RecordError(f"the memory of states=effects is no JSON ({error})") from error
        if not isinstance(found, list) or not all(isinstance(verb, str) for verb in found):
            raise RecordError(
                f"the memory of states=effects is {found!r}, expected a list of verbs"
            )
        self.verbs = set(found)


def effects(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination of last action, names and lasting acts on the named things.

    Names count if the group's actions use them. How often a text has a name is not compared: a
    pronoun may stand for the second mention, or in a text for what the last action named. The order
    of acts and how often one was done are not represented either: a box that is opened, closed and
    opened again is as one that was opened and closed.

    Args:
        visits: The visits.
        comparison: Its memory gets the verbs found here; without one, the batch is the only one.

    Returns:
        ``label_M``.
    """
    # With the list of commands in the text, every thing that can be reached would be spoken of.
    visits = visits.without_commands()
    named = _things(visits)
    acts = _acts_on_named(visits, named)
    memory = comparison.memory if isinstance(comparison.memory, ActMemory) else ActMemory()
    memory.verbs |= lasting_acts(visits, named, acts, memory.verbs)
    lasting = []
    for done in acts:
        lasting.append(tuple((name, verb) for name, verb in done if verb in memory.verbs))
    return key_ids(zip(named, visits.last_action_M, lasting, strict=True))


def _things(visits: Visits) -> list[Things]:
    """The names in each text that the group's actions use, and those of the last action, sorted."""
    named = acted_names(visits, commands=False)
    things = []
    for names, action in zip(named, visits.last_action_M, strict=True):
        spoken_of = (*names, *names_in(action))
        things.append(tuple(sorted({name for name, _ in spoken_of})))
    return things


def _acts_on_named(visits: Visits, named: Sequence[Things]) -> list[Acts]:
    """The acts before each visit that were done to things which its text names, sorted.

    Acts on other things are left out: what was done to the mug does not tell two fridges apart.
    """
    batch, line = visits.batch, visits.batch.timeline
    before: list[dict[str, set[str]]] = [{} for _ in range(len(visits))]

    # Along each trajectory, the verbs used so far on each thing.
    for slot, length in enumerate(line.length_K):
        done: dict[str, set[str]] = {}
        for row in line.row_KT[slot, :length].tolist():
            before[row] = {name: set(verbs) for name, verbs in done.items()}
            # The first name is what is acted on: "move mug 1 to desk 2" changes the mug.
            name = first_name(batch.action_N[row])
            if name is not None:
                done.setdefault(name, set()).add(verb_of(batch.action_N[row]))
        before[len(batch) + slot] = done
    # Copies of a row are in no timeline; they have the history of their original.
    original_N = line.row_KT[line.slot_N, line.step_N]
    for row in np.flatnonzero(original_N != np.arange(len(batch))).tolist():
        before[row] = before[original_N[row]]

    acts = []
    for names, done in zip(named, before, strict=True):
        on_named: list[tuple[str, str]] = []
        for name in names:
            on_named += [(name, verb) for verb in sorted(done.get(name, ()))]
        acts.append(tuple(on_named))
    return acts


def lasting_acts(
    visits: Visits, named: Sequence[Things], acts: Sequence[Acts], known: set[str]
) -> set[str]:
    """Verbs that lasting effects are found of, beyond those that are known.

    Visits of a group with the same last action and names are compared. Forward selection: the
    verb with the most evidence joins what the next ones are compared within, so that a verb which
    only accompanies a lasting one is left out.

    Args:
        visits: The visits.
        named: The things that each visit's text is about.
        acts: The acts on these before each visit.
        known: Verbs of earlier training steps.

    Returns:
        The verbs of this batch that last, known ones among them.
    """
    # One column for each verb: was it used on anything that the text is about?
    verbs = sorted({verb for done in acts for _, verb in done})
    place = {verb: index for index, verb in enumerate(verbs)}
    done_MV = np.zeros((len(visits), len(verbs)), dtype=bool)
    for visit, done in enumerate(acts):
        done_MV[visit, [place[verb] for _, verb in done]] = True

    # A trainer's copies add no evidence.
    rows = np.flatnonzero(visits.batch.original_N[visits.row_M])
    has_MW = (word_counts(visits) > 0)[rows]
    episode_M = visits.batch.timeline.slot_N[visits.row_M][rows]
    lasts_V = np.array([verb in known for verb in verbs], dtype=bool)
    keys = zip(visits.group_M.tolist(), visits.last_action_M, named, strict=True)
    class_M = key_ids(keys)[rows]
    done_MV = done_MV[rows]

    # At most one verb a round; the classes are split by all verbs that last so far.
    for _ in verbs:
        split_M = key_ids(zip(class_M.tolist(), map(bytes, done_MV[:, lasts_V]), strict=True))
        z_V = np.where(lasts_V, 0.0, _evidence(done_MV, has_MW, split_M, episode_M))
        if not z_V.size or z_V.max() < LEAST_Z:
            break
        lasts_V[int(np.argmax(z_V))] = True
    return {verb for verb, lasts in zip(verbs, lasts_V, strict=True) if lasts}


class _Moments(NamedTuple):
    """Sums over visits of what a verb (V) and a word (W) do within their class.

    Sums, so that an episode can be left out by subtraction instead of summing up the others anew.

    Attributes:
        product_VW: Verb times word, both centred within the class.
        square_V: Square of the verb.
        square_VW: Square of the word over the visits whose class varies in the verb.
        visits_V: Number of such visits.
    """

    product_VW: FloatMatrix
    square_V: FloatMatrix
    square_VW: FloatMatrix
    visits_V: FloatMatrix

    def without(self, other: _Moments) -> _Moments:
        """The sums over the visits that are not among the other's."""
        return _Moments(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


def _moments(done_MV: FloatMatrix, has_MW: FloatMatrix) -> _Moments:
    """The sums of some visits; both arguments are centred within their classes."""
    # Only visits whose class varies in the verb are informative.
    varies_MV = (done_MV != 0).astype(np.float64)
    return _Moments(
        done_MV.T @ has_MW, (done_MV**2).sum(axis=0), varies_MV.T @ has_MW**2, varies_MV.sum(axis=0)
    )


def _weights(moments: _Moments) -> FloatMatrix:
    """Weight of each word (W) in the prediction of a verb (V): its correlation, if large enough."""
    scale_VW = np.sqrt(np.maximum(moments.square_V[:, None] * moments.square_VW, 0.0))
    # Differences of equal sums leave a rest of rounding.
    r_VW = np.divide(
        moments.product_VW,
        scale_VW,
        out=np.zeros_like(moments.product_VW),
        where=scale_VW > 1e-9,
    )
    z_VW = np.abs(r_VW) * np.sqrt(np.maximum(moments.visits_V, 0.0))[:, None]
    return np.where(z_VW >= LEAST_WORD_Z, r_VW, 0.0)


def _evidence(
    done_MV: BoolArray, has_MW: BoolArray, class_M: IntArray, episode_M: IntArray
) -> FloatMatrix:
    """For each verb (V) r sqrt(n), 0 if r < ``LEAST_R``.

    r is the correlation within classes between whether the verb was used and a prediction from the
    words, whose weights are those of all other episodes: of some hundred words and a few visits one
    always fits by chance. n counts the visits in classes that vary in the verb.

    Args:
        done_MV: True where the verb was used on a thing of the visit.
        has_MW: True where the text has the word.
        class_M: Visits of one class are compared.
        episode_M: Episode of each visit.
    """
    used_MV, has_centred_MW = centred(done_MV, class_M), centred(has_MW, class_M)
    informative = np.flatnonzero((used_MV != 0).any(axis=1))
    used_MV, has_centred_MW = used_MV[informative], has_centred_MW[informative]
    episode_M = episode_M[informative]

    # Prediction of each episode from the weights of all others.
    total = _moments(used_MV, has_centred_MW)
    predicted_MV = np.zeros_like(used_MV)
    for episode in np.unique(episode_M):
        rows = np.flatnonzero(episode_M == episode)
        others = total.without(_moments(used_MV[rows], has_centred_MW[rows]))
        predicted_MV[rows] = has_centred_MW[rows] @ _weights(others).T
    # Visits whose class does not vary in the verb are not informative.
    predicted_MV[used_MV == 0] = 0.0

    # Correlation of prediction and use over all visits.
    scale_V = np.sqrt((used_MV**2).sum(axis=0) * (predicted_MV**2).sum(axis=0))
    product_V = (used_MV * predicted_MV).sum(axis=0)
    r_V = np.divide(product_V, scale_V, out=np.zeros_like(product_V), where=scale_V > 0)
    # One-sided: a prediction that is wrong more often than right is not evidence.
    return np.where(r_V >= LEAST_R, r_V * np.sqrt(total.visits_V), 0.0)


EFFECTS = Identity("effects", "names and lasting effects", effects, memory=ActMemory)
