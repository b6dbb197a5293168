"""States are equal if last action, names and the lasting effects on the named things are equal.

Only texts and the episodes' own actions are read, not admissible commands, facts or labels.

An act is the verb of an action, done to the first thing that the action names. Acts are compared
because texts may describe the same state in different words: "mug 1 (washed)" and "mug 1 (rinsed)"
are the same mug that ``clean`` was used on. Only acts with a lasting effect count, because others
would split equal states. An act lasts if later texts predict that it was done, in any wording.
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

# An act lasts if the words of texts predict whether it was done, in episodes other than those from
# which the words' weights are estimated. The correlation of prediction and truth, which is about 0
# by chance, must be at least LEAST_R and at least LEAST_Z times its standard error. About 12 verbs
# are tested in each training step: by chance, one verb passes in 60 runs of 40 steps.
LEAST_R = 0.4
LEAST_Z = 4.0
# Words whose correlation with the act is smaller, in standard errors, are not used to predict it.
LEAST_WORD_Z = 2.0

Things = tuple[str, ...]
"""Names that a text is about, sorted."""

Acts = tuple[tuple[str, str], ...]
"""Pairs of a name and a verb that was used on it."""

Float64Array = NDArray[np.float64]


class ActMemory:
    """The verbs that were found to last, kept from one training step to the next.

    Verbs are kept because a batch is evidence only of acts in which its episodes differ: once a
    policy always cleans the mug, no later batch shows that cleaning has a lasting effect.
    """

    def __init__(self) -> None:
        self.verbs: set[str] = set()

    def dump(self) -> bytes:
        """The memory as JSON for the checkpoint; equal memories give equal bytes."""
        return json.dumps(sorted(self.verbs)).encode()

    def load(self, content: bytes) -> None:
        """Replace the memory with one that :meth:`dump` returned.

        Raises:
            RecordError: It is not a JSON list of verbs.
        """
        try:
            found = json.loads(content)
        except ValueError as error:
            raise RecordError(f"the memory of states=effects is not JSON ({error})") from error
        if not isinstance(found, list) or not all(isinstance(verb, str) for verb in found):
            raise RecordError(
                f"the memory of states=effects is {found!r}, expected a list of verbs"
            )
        self.verbs = set(found)


def effects(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination of last action, names and lasting acts on the named things.

    Only names that the group's actions use count. The number of times that a text has a name is not
    compared, because a text may use a pronoun for a repeated name or for a name in the last action.
    The order of acts and the number of times that one was done are not compared either: a box that
    is opened, closed and opened again equals one that was opened and closed.

    Args:
        visits: The visits.
        comparison: The verbs found here are added to its memory; without a memory, only the verbs
            of this batch count.

    Returns:
        ``label_M``.
    """
    # The list of commands names every thing within reach, even if the rest of the text does not.
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
        mentioned = (*names, *names_in(action))
        things.append(tuple(sorted({name for name, _ in mentioned})))
    return things


def _acts_on_named(visits: Visits, named: Sequence[Things]) -> list[Acts]:
    """The acts before each visit on the things that its text is about, sorted.

    Acts on other things are left out: what was done to the mug does not distinguish two fridges.
    """
    acts = []
    for names, done in zip(named, _verbs_before(visits), strict=True):
        on_named: list[tuple[str, str]] = []
        for name in names:
            on_named += [(name, verb) for verb in sorted(done.get(name, ()))]
        acts.append(tuple(on_named))
    return acts


def _verbs_before(visits: Visits) -> list[dict[str, set[str]]]:
    """For each visit: name of a thing -> the verbs used on it earlier in the trajectory."""
    batch, line = visits.batch, visits.batch.timeline
    before: list[dict[str, set[str]]] = [{} for _ in range(len(visits))]
    for slot, length in enumerate(line.length_K):
        done: dict[str, set[str]] = {}
        for row in line.row_KT[slot, :length].tolist():
            before[row] = {name: set(verbs) for name, verbs in done.items()}
            # An action acts on the thing that it names first: "move mug 1 to desk 2" moves the mug.
            name = first_name(batch.action_N[row])
            if name is not None:
                done.setdefault(name, set()).add(verb_of(batch.action_N[row]))
        # Visits of final states follow those of the batch's rows, one for each trajectory.
        before[len(batch) + slot] = done

    # The timeline leaves out copies of rows; a copy has the history of its original.
    source_N = line.row_KT[line.slot_N, line.step_N]
    for row in np.flatnonzero(source_N != np.arange(len(batch))).tolist():
        before[row] = before[source_N[row]]
    return before


def lasting_acts(
    visits: Visits, named: Sequence[Things], acts: Sequence[Acts], known: set[str]
) -> set[str]:
    """Verbs of this batch that have a lasting effect.

    Visits of a group with the same last action and names form a class, and visits of a class are
    compared. Verbs are selected one by one: the verb with the most evidence splits the classes for
    the next ones, so that a verb which only accompanies a lasting one is not selected.

    Args:
        visits: The visits.
        named: The things that each visit's text is about.
        acts: The acts on these things before each visit.
        known: Verbs that were found to last in earlier training steps; they split the classes from
            the start.

    Returns:
        The verbs of this batch that last, including known ones.
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
    """Sums over visits from which correlations of verbs (V) and words (W) are computed.

    The summands are a visit's indicators of verbs and words, centred within its class. An episode
    is left out by subtracting its sums.

    Attributes:
        product_VW: Verb times word.
        square_V: Square of the verb.
        square_VW: Square of the word, over the visits whose class varies in the verb.
        visits_V: Number of visits whose class varies in the verb.
    """

    product_VW: Float64Array
    square_V: Float64Array
    square_VW: Float64Array
    visits_V: Float64Array

    def without(self, other: _Moments) -> _Moments:
        """The sums without the visits of ``other``, which must be among the visits of ``self``."""
        return _Moments(
            product_VW=self.product_VW - other.product_VW,
            square_V=self.square_V - other.square_V,
            square_VW=self.square_VW - other.square_VW,
            visits_V=self.visits_V - other.visits_V,
        )


def _moments(done_MV: Float64Array, has_MW: Float64Array) -> _Moments:
    """The sums of some visits; both arguments are centred within their classes."""
    # A centred indicator is 0 exactly if the class does not vary in the verb.
    varies_MV = (done_MV != 0).astype(np.float64)
    return _Moments(
        product_VW=done_MV.T @ has_MW,
        square_V=(done_MV**2).sum(axis=0),
        square_VW=varies_MV.T @ has_MW**2,
        visits_V=varies_MV.sum(axis=0),
    )


def _weights(moments: _Moments) -> Float64Array:
    """Weight of each word (W) in the prediction of a verb (V): its correlation, if large enough."""
    scale_VW = np.sqrt(np.maximum(moments.square_V[:, None] * moments.square_VW, 0.0))
    # After a subtraction, rounding errors can remain where the true scale is 0.
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
) -> Float64Array:
    """For each verb (V): r sqrt(n), or 0 if r < ``LEAST_R``.

    r is the correlation, within classes, of the use of the verb with a prediction from the words,
    and n the number of visits in classes that vary in the verb. The prediction for an episode uses
    weights from all other episodes, because with hundreds of words and few visits, some word always
    fits by chance.

    Args:
        done_MV: True where the verb was used on a thing that the visit's text names.
        has_MW: True where the text has the word.
        class_M: Class of each visit; visits of the same class are compared.
        episode_M: Episode of each visit.
    """
    used_MV = centred(done_MV, class_M)
    informative = np.flatnonzero((used_MV != 0).any(axis=1))
    used_MV = used_MV[informative]
    has_centred_MW = centred(has_MW, class_M)[informative]
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

    # Correlation of prediction and use, over all visits whose class varies in the verb.
    scale_V = np.sqrt((used_MV**2).sum(axis=0) * (predicted_MV**2).sum(axis=0))
    product_V = (used_MV * predicted_MV).sum(axis=0)
    r_V = np.divide(product_V, scale_V, out=np.zeros_like(product_V), where=scale_V > 0)
    # One-sided: a negative correlation is not evidence.
    return np.where(r_V >= LEAST_R, r_V * np.sqrt(total.visits_V), 0.0)


EFFECTS = Identity("effects", "names and lasting effects", effects, memory=ActMemory)
