"""Anchor groups: steps of a rollout group from the same state (GiGPO, arXiv 2505.10978, eq. 6)."""

from typing import Annotated, Any, Self

from numpy.typing import NDArray
from pydantic import Field, model_validator

from scpo.advantages.estimator import GroupSettings
from scpo.advantages.groups import Float64Array, Normalisation, group_ids, moments, normalise
from scpo.errors import ConfigError
from scpo.states.identity import Identity, StateIds, StateKey, key_ids, state_texts
from scpo.states.registry import find_identity, identify
from scpo.steps import IntArray, StepBatch


class StateSettings(GroupSettings):
    """Settings of estimators that compare steps from the same state.

    ``state_key``: the text of a state; ``anchor``, the raw observation, is what GiGPO groups by.
    ``states``: the identity, of ``scpo.states``, by which two texts are one state;
    ``states_threshold`` None: the identity's own. Settings at their defaults are left out of a
    run's identity.
    """

    state_key: StateKey = Field(default="anchor", exclude_if=lambda key: key == "anchor")
    states: str = Field(default="exact", exclude_if=lambda name: name == "exact")
    states_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, exclude_if=lambda threshold: threshold is None
    )
    normalisation: Normalisation

    @model_validator(mode="after")
    def _states_are_known(self) -> Self:
        try:
            find_identity(self.states, self.states_threshold)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def identity(self) -> Identity:
        """The identity of states."""
        return find_identity(self.states, self.states_threshold)

    def normalised(self, value_N: NDArray[Any], id_N: IntArray) -> Float64Array:
        """Normalise each value within its group; see ``scpo.advantages.groups.normalise``."""
        return normalise(value_N, id_N, moments(value_N, id_N), self.normalisation, self.std_floor)


def anchor_groups(
    batch: StepBatch, similarity: float | None = None, key: StateKey = "anchor"
) -> IntArray:
    """Dense id of every row's anchor group.

    Args:
        batch: The steps.
        similarity: None groups equal anchor observations. A ratio in (0, 1] groups observations
            whose difflib ratio with the group's first member reaches it: greedily, in the order of
            ``position_N``, first fit.
        key: Which text of a state is compared, its anchor observation or its state.

    Returns:
        ``anchor_group_N`` in ``0..A-1``.
    """
    if similarity is None:
        return group_ids(batch.group_N, key_ids(state_texts(batch, key)))
    ids = identify(batch, key, find_identity("difflib", similarity))
    return group_ids(batch.group_N, ids.source_N)


def state_groups(batch: StepBatch, config: StateSettings) -> IntArray:
    """Dense id of each row's state within its group, under the estimator's state identity."""
    ids = state_ids(batch, config)
    if ids is None:
        return anchor_groups(batch, key=config.state_key)
    return group_ids(batch.group_N, ids.source_N)


def state_ids(batch: StepBatch, config: StateSettings) -> StateIds | None:
    """The states of every row as the estimator's settings compare them; None: by equality of texts.

    Those that the batch brings (``scpo.credit.assign``, which has the scorer) are taken as they
    are.

    Raises:
        ConfigError: The identity needs a scorer, and the batch does not bring its states.
        StepBatchError: The batch lacks what the identity reads.
    """
    identity = config.identity
    if identity.name == "exact":
        return None
    if batch.state_id_N is not None and batch.next_state_id_N is not None:
        return StateIds(batch.state_id_N, batch.next_state_id_N)
    return identify(batch, config.state_key, identity)
