"""PPO's advantage: GAE inside each response, from a critic's values (arXiv 1506.02438, eq. 16)."""

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from scpo.advantages.estimator import Estimator, EstimatorSettings
from scpo.advantages.groups import Float64Array, moments
from scpo.errors import StepBatchError
from scpo.steps import BoolArray, FloatArray
from scpo.strict import Strict

VARIANCE_EPSILON = 1e-8
"""Added to the variance before whitening divides by its root, as in verl."""


class CriticSettings(Strict):
    """The value model, read by the trainer; the estimator itself only sees its values.

    Attributes:
        learning_rate: The critic's, 1e-5 in verl-agent's script, where the policy's is 1e-6.
        value_clip: Distance from the values before the update, in the unit of the rewards, beyond
            which the loss no longer moves a value.
        epochs: Passes over a batch; None: as many as the policy's, as in verl.
    """

    learning_rate: PositiveFloat
    value_clip: PositiveFloat
    # Left out of a run's identity while it is None, so that runs from before the field existed keep
    # their ids.
    epochs: PositiveInt | None = Field(default=None, exclude_if=lambda epochs: epochs is None)


class GaeSettings(EstimatorSettings):
    """Settings of PPO's estimator.

    Attributes:
        gamma: Discounts tokens inside a response here, not steps.
        gae_lambda: λ; with γ = λ = 1, as in verl-agent, an advantage is the response's
            score less the critic's value.
        critic: The value model.
    """

    name: Literal["gae"]
    gae_lambda: Annotated[float, Field(ge=0, le=1)]
    critic: CriticSettings


def gae(
    token_reward_NL: NDArray[Any],
    value_NL: NDArray[Any],
    mask_NL: NDArray[Any],
    config: GaeSettings,
) -> tuple[FloatArray, FloatArray]:
    """Advantage and return of every response token; both 0 outside the mask.

    A_l = δ_l + γλ A_{l+1}, δ_l = r_l + γ V_{l+1} - V_l, both over the valid tokens only: nothing
    follows the last one, and there is no bootstrap across turns. R = A + V, the critic's target, is
    taken before the whitening: A ← (A - mean(A)) / sqrt(var(A) + 1e-8) over all valid tokens of the
    batch, var Bessel-corrected. Equal to verl-agent's ``compute_gae_advantage_return`` on the valid
    tokens.

    Args:
        token_reward_NL: Rewards, in PPO the row's score on its last token (``outcome_rewards``).
        value_NL: The critic's value before each token, in the unit of the rewards.
        mask_NL: True on response tokens.
        config: γ and λ, both 1 in the reproduced runs.

    Returns:
        ``(A_NL, R_NL)``, float32.

    Raises:
        StepBatchError: Shapes differ, or a valid token's reward or value is not finite; names the
            row.
    """
    valid_NL = np.asarray(mask_NL, dtype=bool)
    reward_NL = _checked("token_reward_NL", token_reward_NL, valid_NL)
    critic_NL = _checked("value_NL", value_NL, valid_NL)
    advantage_NL = np.zeros(valid_NL.shape)
    # Advantage and value of the next valid token of each row; 0 after the last.
    advantage_N = np.zeros(len(valid_NL))
    next_value_N = np.zeros(len(valid_NL))
    for token in range(valid_NL.shape[1] - 1, -1, -1):
        # A masked token passes both on unchanged, so that gaps inside a response, and padding on
        # either side, neither discount nor reset them (ledger 20).
        delta_N = reward_NL[:, token] + config.gamma * next_value_N - critic_NL[:, token]
        valid_N = valid_NL[:, token]
        advantage_N = np.where(
            valid_N, delta_N + config.gamma * config.gae_lambda * advantage_N, advantage_N
        )
        next_value_N = np.where(valid_N, critic_NL[:, token], next_value_N)
        advantage_NL[:, token] = np.where(valid_N, advantage_N, 0.0)

    return_NL = (advantage_NL + critic_NL).astype(np.float32)
    return _whitened(advantage_NL, valid_NL), return_NL


def outcome_rewards(score_N: NDArray[Any], mask_NL: NDArray[Any]) -> FloatArray:
    """Token rewards: the row's score on its last valid token.

    A row without valid tokens gets none. The episode's return is thus paid to each of its
    responses, and no value is carried from one turn to the next.

    Args:
        score_N: Score of each row, in the unit of the rewards.
        mask_NL: True on response tokens.

    Returns:
        ``reward_NL``, float32.
    """
    valid_NL = np.asarray(mask_NL, dtype=bool)
    reward_NL = np.zeros(valid_NL.shape, dtype=np.float32)
    rows = np.flatnonzero(valid_NL.any(axis=1))
    # NumPy has no argmax of a mask without columns.
    if not len(rows):
        return reward_NL
    # argmax of a reversed mask: the number of tokens after the last valid one.
    last = valid_NL.shape[1] - 1 - np.argmax(valid_NL[rows, ::-1], axis=1)
    reward_NL[rows, last] = np.asarray(score_N)[rows]
    return reward_NL


def _checked(name: str, value_NL: NDArray[Any], valid_NL: BoolArray) -> Float64Array:
    """Convert to float64, 0 outside the mask, after checking shapes and values.

    Only valid tokens are checked: what padding holds is not read.
    """
    array_NL = np.asarray(value_NL, dtype=np.float64)
    if array_NL.shape != valid_NL.shape or array_NL.ndim != 2:
        raise StepBatchError(
            f"{name} has shape {array_NL.shape} and mask_NL {valid_NL.shape}: expected the same "
            "(rows, tokens)"
        )
    bad = np.flatnonzero((valid_NL & ~np.isfinite(array_NL)).any(axis=1))
    if len(bad):
        raise StepBatchError(f"row {bad[0]}: {name} is not finite on a valid token")
    return np.where(valid_NL, array_NL, 0.0)


def _whitened(value_NL: Float64Array, valid_NL: BoolArray) -> FloatArray:
    """Mean 0 and standard deviation 1 over the valid tokens of the batch; 0 elsewhere.

    A batch whose advantages are all equal gets 0: the epsilon keeps the divisor positive.
    """
    valid = value_NL[valid_NL]
    # All tokens form one group, or none without tokens: a sum over groups is its value, or 0.
    stats = moments(valid, np.zeros(len(valid), dtype=np.int64))
    mean = stats.mean_G.sum()
    variance = np.square(stats.std_G).sum()
    white_NL = np.zeros(value_NL.shape)
    white_NL[valid_NL] = (valid - mean) / np.sqrt(variance + VARIANCE_EPSILON)
    return white_NL.astype(np.float32)


GAE = Estimator(
    GaeSettings, gae, requires=frozenset({"value"}), labels={"ppo": "PPO"}, level="token"
)
