"""States of a batch by the method's identity, and their agreement with the simulator's states."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator, EstimatorSettings
from scpo.advantages.groups import Float64Array, group_ids
from scpo.errors import ScorerUnavailable
from scpo.schema.method import TrainedMethod
from scpo.shaping.shaper import ShaperConfig
from scpo.states.identity import Memory, Similarity, StateKey
from scpo.states.registry import find_identity, identify
from scpo.steps import FloatArray, IntArray, StepBatch, StrArray

_log = logging.getLogger(__name__)


def identified(
    batch: StepBatch,
    host: EstimatorSettings,
    scorer: Similarity | None,
    memory: Memory | None = None,
) -> tuple[StepBatch, bool]:
    """Find the states of a batch with the host's identity.

    Args:
        batch: The steps.
        host: Settings of the estimator.
        scorer: For ``states=scorer``.
        memory: As in ``scpo.states.registry.identify``, which adds this step to it.

    Returns:
        The batch with ``state_id_N`` and ``next_state_id_N``, or unchanged if the host compares
        equal texts or no states; and True if the scorer was unavailable, so that states were
        compared by equal texts in this step.

    Raises:
        ConfigError: The identity needs a scorer and got None.
        StepBatchError: The batch lacks what the identity reads.
    """
    # Equal texts are compared by the estimators themselves.
    if not isinstance(host, StateSettings) or host.identity.name == "exact":
        return batch, False
    try:
        ids = identify(batch, host.state_key, host.identity, scorer, memory)
        fell_back = False
    except ScorerUnavailable as error:
        _log.error("STATES BY EQUAL TEXTS in this step (states/fell_back = 1): %s", error)
        ids = identify(batch, host.state_key, find_identity("exact"))
        fell_back = True
    return replace(batch, state_id_N=ids.source_N, next_state_id_N=ids.target_N), fell_back


def make_memory(config: TrainedMethod) -> Memory | None:
    """Empty memory of a run; None if neither host nor matcher uses an identity that keeps one.

    Both share one memory, because ``effects`` is the only identity that keeps one.
    """
    host, shaper = config.estimator, config.shaper
    identities = [host.identity] if isinstance(host, StateSettings) else []
    if shaper is not None and shaper.states is not None:
        identities.append(find_identity(shaper.states))
    for identity in identities:
        if identity.memory is not None:
            return identity.memory()
    return None


def named_states(
    batch: StepBatch, shaper: ShaperConfig, memory: Memory | None = None
) -> tuple[StepBatch, ShaperConfig]:
    """Replace the state texts by state numbers, and let the shaper compare actions and numbers.

    Equal states then have equal texts, so the exact scorer gives 1 to steps whose actions are equal
    and lead to equal states, and 0 to all others. No-ops are still found by their observations,
    which do not change.

    Returns:
        The batch and the shaper's settings; both unchanged if the matcher has no state identity.
    """
    if shaper.states is None:
        return batch, shaper
    # The state's text contains more than the observation, if the environment provides it.
    key: StateKey = "anchor" if batch.state_N is None else "state"
    identity = find_identity(shaper.states, shaper.states_threshold)
    ids = identify(batch, key, identity, memory=memory)
    named = replace(batch, state_N=_names(ids.source_N), next_state_N=_names(ids.target_N))
    return named, shaper.model_copy(update={"step_text": "action_next_state"})


def _names(number_N: IntArray) -> StrArray:
    """A text for each state number."""
    return np.array([f"state {number}" for number in number_N], dtype=object)


def state_metrics(
    batch: StepBatch, host: EstimatorSettings, *, fell_back: bool
) -> dict[str, float]:
    """Agreement of the host's states with the simulator's, over rows without copies.

    - ``states/precision``: of the pairs of rows in one found state, the share in one true state.
    - ``states/recall``: of the pairs of rows in one true state, the share in one found state.
    - ``states/purity``: share of rows whose true state is the most frequent one among the rows of
      their found state.
    - ``states/fell_back``: 1 if the scorer was unavailable and equal texts were compared instead.

    True states are known only where an environment rewords its observations; elsewhere only
    ``states/fell_back`` is reported.
    """
    if not isinstance(host, StateSettings):
        return {}
    metrics = {"states/fell_back": 1.0} if fell_back else {}
    truth = _by_oracle(batch, host)
    rows = np.flatnonzero(batch.original_N)
    if truth is None or not len(rows):
        return metrics
    true_M = state_groups(*truth)[rows]
    found_M = state_groups(batch, host)[rows]
    both_M = group_ids(found_M, true_M)

    # Pairs are counted from the sizes of the states, without a loop over pairs.
    joined = _pairs(found_M)
    same = _pairs(true_M)
    agreed = _pairs(both_M)
    # For each found state, the number of its rows in its most frequent true state.
    largest = np.zeros(int(found_M.max()) + 1)
    np.maximum.at(largest, found_M, np.bincount(both_M)[both_M])
    metrics["states/purity"] = float(largest.sum() / len(rows))
    if joined:
        metrics["states/precision"] = agreed / joined
    if same:
        metrics["states/recall"] = agreed / same
    return metrics


def oracle_cosine(
    batch: StepBatch,
    estimator: Estimator,
    host: EstimatorSettings,
    returns: tuple[FloatArray, FloatArray],
    step_N: Float64Array,
) -> dict[str, float]:
    """Cosine between the host's step term and the step term by the simulator's states.

    0 if only the host's step term is 0. Precision and recall weigh all pairs of rows equally; the
    cosine weighs rows by their credit. It does not rank identities by their gain in training
    (docs/meaning.md).

    Args:
        batch: The steps.
        estimator: The host.
        host: Its settings.
        returns: Step returns and bonus, as the host reads them.
        step_N: The host's step term.

    Returns:
        ``states/cosine``; empty without true states, and if the step term by them is 0.
    """
    truth = _by_oracle(batch, host) if isinstance(host, StateSettings) else None
    if truth is None or estimator.step_term is None:
        return {}
    rows = batch.original_N
    reference_N: Any = estimator.step_term(truth[0], *returns, truth[1])[rows]
    reference_norm = float(np.linalg.norm(reference_N))
    step_norm = float(np.linalg.norm(step_N[rows]))
    if not reference_norm:
        return {}
    if not step_norm:
        return {"states/cosine": 0.0}
    product = float(reference_N @ step_N[rows])
    return {"states/cosine": product / (reference_norm * step_norm)}


def _by_oracle(batch: StepBatch, host: StateSettings) -> tuple[StepBatch, StateSettings] | None:
    """Batch and host settings with the simulator's states; None if the batch does not have them."""
    known = batch.true_anchor_N if host.state_key == "anchor" else batch.true_state_N
    if known is None:
        return None
    changes: dict[str, object] = {"states": "oracle", "states_threshold": None}
    # GiGPO's `anchors: similar` would otherwise take precedence over `states`.
    if "anchors" in type(host).model_fields:
        changes["anchors"] = "exact"
    return replace(batch, state_id_N=None, next_state_id_N=None), host.model_copy(update=changes)


def _pairs(id_M: IntArray) -> int:
    """Number of pairs of rows with equal ids."""
    count = np.bincount(id_M)
    return int((count * (count - 1) // 2).sum())
