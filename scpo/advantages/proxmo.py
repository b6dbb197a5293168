"""ProxMO: soft baselines by proximity of observations, outcomes by difficulty (arXiv 2602.19225).

Its code: github.com/GithubX-F/ProxMO-RL, proxmo/core_proxmo.py.
"""

import re
from collections import Counter
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.outcomes import row_scores
from scpo.states.identity import StateKey, state_texts
from scpo.steps import FloatArray, StepBatch, StrArray

# scikit-learn's default token pattern: words of two characters and more.
_WORD = re.compile(r"\b\w\w+\b")


class ProxmoSettings(GroupSettings):
    """Settings of ProxMO.

    Attributes:
        state_key: The text whose words are compared; ProxMO's code takes the raw observation.
        omega: Weight of the step term.
        alpha: Exponent of the group's success rate in the factor w: the larger, the rarer an
            outcome must be in its group for w to differ from 1.
        beta: Size of the modulation. The 0.2164 of ProxMO's script is 0.05 / (sigmoid(1) - 1/2),
            which keeps w between 0.95 and 1.05.
        temperature: T of the softmax over cosines; the lower, the fewer neighbours count.
        features: Size of the vocabulary: the most frequent words of the batch.
        success_rate: Definition of p in w: the paper's or the code's (ledger 60).
    """

    name: Literal["proxmo"]
    state_key: StateKey
    omega: NonNegativeFloat
    alpha: PositiveFloat
    beta: NonNegativeFloat
    temperature: Annotated[float, Field(gt=0)]
    features: PositiveInt
    success_rate: Literal["as_paper", "as_code"]


def proxmo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: ProxmoSettings
) -> FloatArray:
    """A = w A_E + ω A_S.

    A_E is the outcome less its group's mean (``mean_norm``), and w = 1 + β (sigmoid((1-p)^α) - 1/2)
    for a success, 1 + β (sigmoid(-p^α) - 1/2) for a failure. ``as_paper``: p is the share of the
    group's rows that belong to successes. ``as_code``: p is the group's mean score, clamped to
    [0, 1], and a score above 1/2 is a success; with rewards of 0 and 10, p is 1 as soon as one row
    in ten belongs to a success.

    A_S = q - Σ_j softmax_j(cos(i, j) / T) q_j over the rows of the group, q = R + bonus, with the
    cosine of TF-IDF vectors of the ``features`` most frequent words of the batch. The sum includes
    the row itself, whose q has the largest weight.

    Args:
        batch: The steps.
        step_return_N: R, discounted step returns.
        bonus_N: Added to R; includes the penalty of invalid actions.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    outcome_N = episode_advantage(batch, config, "mean_norm") * _modulation(batch, config)
    return as_advantage(outcome_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: ProxmoSettings
) -> Float64Array:
    """ω A_S in float64, in the unit of the rewards: it is not divided by a deviation."""
    q_N = step_return_N.astype(np.float64) + bonus_N
    baseline_N = np.zeros(len(batch))
    unit_NV = _tfidf(state_texts(batch, config.state_key), config.features)
    # A row's baseline takes rows of its own group only.
    for group in np.unique(batch.group_N):
        rows = np.flatnonzero(batch.group_N == group)
        logit = unit_NV[rows] @ unit_NV[rows].T / config.temperature
        # The softmax of a row, shifted by its maximum against overflow.
        weight = np.exp(logit - logit.max(axis=1, keepdims=True))
        # Sorted by value, so that the order of rows changes no bit of the sum.
        weighted = np.sort(weight * q_N[rows], axis=1).sum(axis=1)
        baseline_N[rows] = weighted / np.sort(weight, axis=1).sum(axis=1)
    return config.omega * (q_N - baseline_N)


def _modulation(batch: StepBatch, config: ProxmoSettings) -> Float64Array:
    """The factor w of each row: largest for rare successes, smallest for rare failures.

    It is 1 in groups where all siblings succeed (p = 1) or all fail (p = 0).
    """
    group_N = group_ids(batch.group_N)
    score_N = row_scores(batch, config)
    if config.success_rate == "as_code":
        rate_N = np.clip(moments(score_N, group_N).mean_G[group_N], 0.0, 1.0)
        succeeded_N = score_N > 0.5
    else:
        rate_N = moments(batch.success_N.astype(np.float64), group_N).mean_G[group_N]
        succeeded_N = batch.success_N
    exponent_N = np.where(succeeded_N, (1 - rate_N) ** config.alpha, -(rate_N**config.alpha))
    sigmoid_N = 1 / (1 + np.exp(-exponent_N))
    return 1 + config.beta * (sigmoid_N - 0.5)


def _tfidf(text_N: StrArray, features: int) -> NDArray[np.float64]:
    """Unit TF-IDF vectors, as of scikit-learn's TfidfVectorizer; 0 for a text without a kept word.

    Not scikit-learn's own, because estimators depend on NumPy only.

    Args:
        text_N: The texts.
        features: Maximum number of words that are kept.

    Returns:
        ``(rows, words)``, float64.
    """
    words = [_WORD.findall(text.lower()) for text in text_N]
    totals = Counter(word for found in words for word in found)
    # Among equally frequent words the alphabet decides.
    by_frequency = sorted(totals, key=lambda word: (-totals[word], word))
    # Columns are alphabetical, as in scikit-learn.
    kept = sorted(by_frequency[:features])
    column = {word: index for index, word in enumerate(kept)}
    count_NV = np.zeros((len(words), len(kept)))
    for row, found in enumerate(words):
        for word, count in Counter(found).items():
            if word in column:
                count_NV[row, column[word]] = count
    frequency_V = (count_NV > 0).sum(axis=0)
    # scikit-learn's smoothed inverse document frequency.
    inverse_frequency_V = np.log((1 + len(words)) / (1 + frequency_V)) + 1
    weighted_NV = count_NV * inverse_frequency_V
    norm_N = np.linalg.norm(weighted_NV, axis=1, keepdims=True)
    return np.asarray(weighted_NV / np.where(norm_N > 0, norm_N, 1.0), dtype=np.float64)


PROXMO = Estimator(
    ProxmoSettings,
    proxmo,
    requires=frozenset({"step_bonus"}),
    labels={"proxmo": "ProxMO"},
    step_term=step_term,
)
