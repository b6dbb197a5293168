"""Advantages of a training step, of rows or of tokens, as the method's estimator works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scpo.credit.assign import assign, assign_tokens, resolve
from scpo.credit.metrics import CreditDiagnostics
from scpo.generation import Generation
from scpo.policies.batches import response_mask
from scpo.policies.critic import Critic, Targets, values
from scpo.steps import FloatArray, StepBatch

if TYPE_CHECKING:
    from scpo.schema import RunConfig
    from scpo.shaping.drive import Scorer
    from scpo.shaping.reference_buffer import ReferenceBuffer


@dataclass(frozen=True)
class Estimate:
    """``advantage`` is (N,), or (N, L) of a token-level estimator, which has ``targets`` for its critic as well."""

    advantage: FloatArray
    diagnostics: CreditDiagnostics
    targets: Targets | None = None


def estimate(
    batch: StepBatch,
    generations: Sequence[Generation],
    config: RunConfig,
    step: int,
    *,
    scorer: Scorer,
    critic: Critic | None,
    buffer: ReferenceBuffer | None = None,
) -> Estimate:
    """Ask ``scpo.credit.assign`` for the advantages; ``generations`` are the responses of the batch's rows."""
    seed = (config.seed, step)
    if resolve(config.trained).level == "row" or critic is None:
        speculate = config.machine.scorer.speculate
        return Estimate(*assign(batch, scorer, config.trained, seed=seed, speculate=speculate, buffer=buffer))
    value_NL = values(critic, generations, config.trainer.micro_batch_rows)
    mask_NL = response_mask(generations)
    advantage_NL, return_NL, diagnostics = assign_tokens(batch, value_NL, mask_NL, config.trained, seed=seed)
    return Estimate(advantage_NL, diagnostics, Targets(value_NL, return_NL))
