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

    Fields with ``exclude_if`` are left out of a run's identity while they have their default, so
    that runs from before the field existed keep their ids.

    Attributes:
        state_key: The text of a state: ``anchor``, the raw observation, as in GiGPO, or ``state``,
            which adds what the agent holds and did (ledger 43).
        states: The identity of ``scpo.states`` that decides whether two texts are one state. All
            papers compare texts for equality (``exact``), except BiPACE, which clusters hidden
            states.
        states_threshold: Similarity from which two texts are one state, in (0, 1]; None: the
            identity's default. Refused for identities that compare no similarities.
        normalisation: ``mean_std_norm`` or ``mean_norm``, of the outcome term and, in most
            estimators, of the step term.
    """

    state_key: StateKey = Field(default="anchor", exclude_if=lambda key: key == "anchor")
    states: str = Field(default="exact", exclude_if=lambda name: name == "exact")
    states_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, exclude_if=lambda threshold: threshold is None
    )
    normalisation: Normalisation

    @model_validator(mode="after")
    def _states_are_known(self) -> Self:
        """Refuse an unknown identity, or a threshold that it does not read."""
        try:
            find_identity(self.states, self.states_threshold)
        except ConfigError as error:
            # A plain ValueError: pydantic reports the message together with the field's location.
            raise ValueError(str(error)) from error
        return self

    @property
    def identity(self) -> Identity:
        """The identity of states, with the threshold of the settings or its own."""
        return find_identity(self.states, self.states_threshold)

    def normalised(self, value_N: NDArray[Any], id_N: IntArray) -> Float64Array:
        """Normalise each value within its group by the statistics of its rows.

        ``statistics: trajectories`` does not apply here: a state's visits are rows, and one
        trajectory may visit it several times. See ``scpo.advantages.groups.normalise``.

        Args:
            value_N: The values, in the unit of the rewards.
            id_N: Dense group ids, of states or of rollout groups.

        Returns:
            float64, one for each row; exactly 0 in groups of one row and in flat groups.
        """
        return normalise(value_N, id_N, moments(value_N, id_N), self.normalisation, self.std_floor)


def anchor_groups(batch: StepBatch, key: StateKey = "anchor") -> IntArray:
    """Dense id of every row's anchor group, its group's rows with an equal state text.

    GiGPO's G_S(s~), ``build_step_group`` in verl-agent.

    Args:
        batch: The steps.
        key: The text that is compared, the anchor observation or the state.

    Returns:
        ``anchor_group_N`` in ``0..A-1``.
    """
    return group_ids(batch.group_N, key_ids(state_texts(batch, key)))


def state_groups(batch: StepBatch, config: StateSettings) -> IntArray:
    """Dense id of each row's state within its group, under the estimator's state identity.

    Args:
        batch: The steps.
        config: The estimator's settings: key, identity, threshold.

    Returns:
        ``state_N`` in ``0..S-1``; rows of different rollout groups never share a state.
    """
    ids = state_ids(batch, config)
    if ids is None:
        return anchor_groups(batch, key=config.state_key)
    return group_ids(batch.group_N, ids.source_N)


def state_ids(batch: StepBatch, config: StateSettings) -> StateIds | None:
    """The states before and after every row's step, as the estimator's settings compare them.

    State numbers in the batch are used as they are: ``scpo.credit.assign`` computes them, because
    an identity may need a scorer or a memory, which an estimator does not have.

    Returns:
        The states; None for ``exact``, because the callers compare equal texts themselves.

    Raises:
        ConfigError: The identity needs a scorer, and the batch holds no states.
        StepBatchError: The batch lacks what the identity reads.
    """
    identity = config.identity
    if identity.name == "exact":
        return None
    if batch.state_id_N is not None and batch.next_state_id_N is not None:
        return StateIds(batch.state_id_N, batch.next_state_id_N)
    return identify(batch, config.state_key, identity)
