"""Registry of state identities, and the function that numbers the states of a batch."""

from __future__ import annotations

import difflib
import functools
from dataclasses import replace

import numpy as np

from scpo.errors import ConfigError, StepBatchError
from scpo.extensions import Part, load_parts
from scpo.states.closure import CLOSURE
from scpo.states.edit_ratio import DIFFLIB
from scpo.states.effects import EFFECTS
from scpo.states.entities import ENTITIES
from scpo.states.exact import EXACT
from scpo.states.facts import FACTS
from scpo.states.history import HISTORY
from scpo.states.identity import (
    Comparison,
    Identity,
    Memory,
    Similarity,
    StateIds,
    StateKey,
    Visits,
)
from scpo.states.learned import LEARNED
from scpo.states.oracle import ORACLE
from scpo.states.scored import SCORER
from scpo.states.tfidf import TFIDF
from scpo.steps import IntArray, StepBatch

# In the order in which tables show them.
OURS = (
    EXACT,
    DIFFLIB,
    TFIDF,
    SCORER,
    ENTITIES,
    CLOSURE,
    HISTORY,
    LEARNED,
    EFFECTS,
    FACTS,
    ORACLE,
)

IDENTITIES: dict[str, Identity] = {entry.name: entry for entry in OURS}
"""Name -> identity; those of installed packages enter with ``load_installed``."""

ENTRY_POINTS = "scpo.identities"
"""Entry-point group of other packages' identities: ``<name> = "<module>:<IDENTITY>"``."""


# Not at import: estimators import this file, and a package may have an estimator and an identity.
@functools.cache
def load_installed() -> tuple[Part, ...]:
    """Load the identities of installed packages into ``IDENTITIES``, in the first call.

    Raises:
        ConfigError: An entry point cannot be used; names the package.
    """
    parts = load_parts(
        ENTRY_POINTS,
        "a scpo.states.identity.Identity",
        lambda value: isinstance(value, Identity),
        IDENTITIES,
    )
    IDENTITIES.update({part.name: part.value for part in parts})
    return parts


def find_identity(name: str, threshold: float | None = None) -> Identity:
    """Look up an identity by name, with its default threshold or the given one.

    Args:
        name: Its name in ``method.estimator.states``.
        threshold: Replaces its default threshold; None: the default.

    Raises:
        ConfigError: Unknown identity, or a threshold for an identity without similarities.
    """
    load_installed()
    if name not in IDENTITIES:
        near = difflib.get_close_matches(name, IDENTITIES, n=1)
        meant = f"; did you mean {near[0]}? Allowed" if near else "; allowed"
        raise ConfigError(
            f"states={name!r} is no identity of states{meant}: {', '.join(IDENTITIES)}, or one of "
            "your own in OURS of scpo.states.registry: `python -m scpo.new identity NAME` writes "
            f"and registers it; of an installed package: entry point {ENTRY_POINTS}"
        )

    entry = IDENTITIES[name]
    if threshold is None:
        return entry
    if entry.threshold is None:
        with_one = ", ".join(
            other.name for other in IDENTITIES.values() if other.threshold is not None
        )
        raise ConfigError(
            f"states_threshold={threshold:g} is not read by states={name}, which compares no "
            f"similarities; allowed: null, or one of states={with_one}"
        )

    return replace(entry, threshold=threshold)


def identify(
    batch: StepBatch,
    key: StateKey,
    identity: Identity,
    scorer: Similarity | None = None,
    memory: Memory | None = None,
) -> StateIds:
    """Number the states before and after every row's step.

    Args:
        batch: The steps; a copy has its original's states.
        key: The text of a state that is compared.
        identity: The rule by which states are equal.
        scorer: For identities that require one.
        memory: What the identity learned in earlier training steps, to which it adds what it
            learns here; None: it reads only this batch.

    Returns:
        The states by row. The numbers are compared inside a rollout group only.

    Raises:
        ConfigError: The identity needs a scorer, and none was passed.
        StepBatchError: The batch lacks a field that the identity reads (the message names it and
            the alternatives), or the identity does not return one integer for each visit.
    """
    visits = Visits.of(batch, key)
    given = identity.function(visits, Comparison(identity.threshold, scorer, memory))
    return visits.split(_one_each(given, visits, identity.name))


def _one_each(given: object, visits: Visits, name: str) -> IntArray:
    """Check that an identity returned one label for each visit: others could not be assigned."""
    array = np.asarray(given)
    visited = len(visits.row_M)
    if array.shape != (visited,) or array.dtype.kind not in "iu":
        shape = f"an array of {array.dtype} with shape {array.shape}"
        raise StepBatchError(
            f"identity of states {name!r} returned {'None' if given is None else shape}, expected "
            f"one label for each of the {visited} visits: integers of shape ({visited},), as "
            "scpo.states.identity.key_ids gives for the keys of all visits"
        )
    return array
