"""StepBatch, advantages and diagnostics of a verl training step; imports neither verl nor torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scpo.advantages.estimator import OPTIONAL_FIELDS
from scpo.credit.assign import assign, assign_tokens, resolve
from scpo.credit.metrics import CreditDiagnostics
from scpo.rollout import Trajectory, step_batch
from scpo.schema.method import required
from scpo.schema.run import RunConfig
from scpo.shaping.drive import Scorer
from scpo.shaping.order import UNSHAPED_ORDER, UNSHAPED_RANKS
from scpo.shaping.reference_buffer import ReferenceBuffer
from scpo.states.identity import Memory
from scpo.steps import FloatArray, StepBatch
from scpo.trainers.verl.verl_rows import Rows

TokenColumn = Sequence[NDArray[np.float32]]
"""One array of response tokens for each row of verl's batch, padding included."""

Column = TypeVar("Column")


@dataclass(frozen=True)
class Columns:
    """verl's measurements, for each row of its batch, padding included.

    Attributes:
        tokens: Number of prompt and response tokens of each row.
        response_tokens: Number of response tokens of each row.
        entropy: Entropy of each response token under the policy that sampled it. None if the method
            does not require it, as for the columns below.
        value: The critic's value before each response token.
        hindsight: Mean log-probability of each row's response after the hindsight prompt, NaN in
            failures.
    """

    tokens: NDArray[np.int64]
    response_tokens: NDArray[np.int64]
    entropy: TokenColumn | None = None
    value: TokenColumn | None = None
    hindsight: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Estimate:
    """Advantages of a training step of verl, with the data that they were computed from.

    Attributes:
        advantage: Advantage of each response token, one array for each row of verl's batch; 0 on
            padding rows.
        target: The critic's target, in the same form. Without a critic it is the advantage, since
            verl's metrics read a column ``returns`` of every method.
        batch: The steps, without padding.
        trajectories: The same steps as episodes, without tokens.
        diagnostics: Diagnostics of ``scpo.credit.assign``.
    """

    advantage: list[FloatArray]
    target: list[FloatArray]
    batch: StepBatch
    trajectories: list[Trajectory]
    diagnostics: CreditDiagnostics


def estimate(
    rows: Rows,
    columns: Columns,
    config: RunConfig,
    step: int,
    *,
    scorer: Scorer | None,
    ranks: int,
    buffer: ReferenceBuffer | None = None,
    memory: Memory | None = None,
) -> Estimate:
    """Call ``scpo.credit.assign`` on a batch of verl; its errors are passed on.

    Args:
        rows: The environment steps among verl's rows.
        columns: verl's measurements.
        config: The run's configuration.
        step: Training step, part of every seed.
        scorer: Scorer of the shaper and the state identity; None if the method needs none.
        ranks: Number of data-parallel ranks over which verl has balanced the batch.
        buffer: Successes of earlier training steps; None without a reference buffer.
        memory: Findings of the state identity in earlier steps; None if it keeps none.
    """
    shaper = config.trained.shaper
    seed = (config.seed, step)
    trajectories = rows.trajectories
    order = shaper.order if shaper else UNSHAPED_ORDER
    order_ranks = shaper.order_ranks if shaper else UNSHAPED_RANKS
    length_N = columns.tokens[rows.place_N]
    batch = step_batch(
        trajectories,
        success_threshold=config.env.success_threshold,
        position_N=rows.positions(order, length_N, ranks=ranks, order_ranks=order_ranks),
        measured=_measured(rows, columns, config),
    )
    if resolve(config.trained).level == "row":
        advantage_N, diagnostics = assign(
            batch,
            scorer,
            config.trained,
            seed=seed,
            speculate=config.machine.scorer.speculate,
            buffer=buffer,
            memory=memory,
        )
        # Every token of a response gets its step's advantage, as in verl's outcome estimators. The
        # steps are in canonical order; `spread` converts to verl's order.
        shared = []
        for length, value in zip(columns.response_tokens, rows.spread(advantage_N), strict=True):
            shared.append(np.full(length, value, dtype=np.float32))
        return Estimate(shared, shared, batch, trajectories, diagnostics)

    # Token level: convert verl's ragged column to a padded matrix in canonical order, and back.
    response_N = columns.response_tokens[rows.place_N]
    mask_NL = np.arange(int(response_N.max())) < response_N[:, None]
    value_NL = np.zeros(mask_NL.shape, dtype=np.float32)
    value = _fetched(columns.value, "value")
    value_NL[mask_NL] = np.concatenate([value[place] for place in rows.place_N])
    advantage_NL, target_NL, diagnostics = assign_tokens(
        batch, value_NL, mask_NL, config.trained, seed=seed
    )
    advantage = _ragged(rows.spread(advantage_NL), columns.response_tokens)
    target = _ragged(rows.spread(target_NL), columns.response_tokens)
    return Estimate(advantage, target, batch, trajectories, diagnostics)


def _measured(rows: Rows, columns: Columns, config: RunConfig) -> dict[str, FloatArray]:
    """Optional columns of ``StepBatch`` that the method requires, in the order of ``rows``."""
    needed = required(config.method)
    measured = {}
    # verl gives an entropy for each token; estimators read the mean over the response, as the local
    # trainer measures it.
    if "entropy" in needed:
        entropy = _fetched(columns.entropy, "entropy")
        mean_N = np.array([entropy[place].mean() for place in rows.place_N], dtype=np.float32)
        measured[OPTIONAL_FIELDS["entropy"]] = mean_N
    if "hindsight_logprob" in needed:
        hindsight = _fetched(columns.hindsight, "hindsight_logprob")
        measured[OPTIONAL_FIELDS["hindsight_logprob"]] = hindsight[rows.place_N]
    return measured


def _fetched(column: Column | None, name: str) -> Column:
    """Return the column after checking that it is not None.

    Raises:
        ValueError: The trainer did not fetch a column that the method requires.
    """
    if column is None:
        raise ValueError(f"the method requires {name}, which was not fetched from verl")
    return column


def _ragged(array: FloatArray, lengths: NDArray[np.int64]) -> list[FloatArray]:
    """The first ``length`` values of each row of a padded matrix."""
    return [row[:length] for row, length in zip(array, lengths, strict=True)]
