"""Second scoring pass of HCAPO in verl, with prompts that contain the episode's outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from numpy.typing import NDArray

HINDSIGHT = "scpo_hindsight"
"""Entry of ``extra_fields`` with the token ids of the hindsight prompt; empty in failures."""
PARTITION = "hindsight"


def hindsight_logprob(
    worker_group: Any,
    extra_fields: Sequence[Mapping[str, Any]],
    responses: Sequence[torch.Tensor],
    is_padding: Sequence[bool],
    *,
    multiple: int,
    temperature: float,
) -> NDArray[np.float32]:
    """Mean token log-probability (nats) of responses after their hindsight prompt.

    Args:
        worker_group: verl's workers with the policy, before its update.
        extra_fields: The ``extra_fields`` of every row of verl's batch.
        responses: Token ids of every row.
        is_padding: True for padding rows of verl.
        multiple: Divisor of the number of scored rows, which are filled up, so that all ranks have
            the same number of full micro-batches.
        temperature: Sampling temperature of the rollout.

    Returns:
        ``logprob_N``, one for each row of verl's batch, padding included; NaN for rows without a
        hindsight prompt.
    """
    logprob_N = np.full(len(responses), np.nan, dtype=np.float32)
    chosen = [
        row for row, fields in enumerate(extra_fields) if not is_padding[row] and fields[HINDSIGHT]
    ]
    if not chosen:
        return logprob_N
    # Filled up with copies of the first row, whose scores are dropped below.
    filled = chosen + [chosen[0]] * (-len(chosen) % multiple)
    keys = [f"{PARTITION}_{index}" for index in range(len(filled))]
    rows = [_row(extra_fields[row][HINDSIGHT], responses[row]) for row in filled]
    tags = [{"seq_len": len(row["input_ids"])} for row in rows]
    try:
        logprob_N[chosen] = _scored(worker_group, keys, rows, tags, temperature)[: len(chosen)]
    finally:
        # Otherwise the storage would keep every training step's rows.
        tq.kv_clear(keys=keys, partition_id=PARTITION)
    return logprob_N


def _scored(
    worker_group: Any,
    keys: list[str],
    rows: list[dict[str, Any]],
    tags: list[dict[str, int]],
    temperature: float,
) -> list[float]:
    """Mean log-probability of each row's response, in nats.

    The workers read rows from TransferQueue and write their results there; the call passes only
    keys. The rows have a partition of their own, because verl's replay buffer would take rows of
    the training partition for trajectories.
    """
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    batch = tq.kv_batch_put(
        keys=keys, partition_id=PARTITION, fields=list_of_dict_to_tensordict(rows), tags=tags
    )
    batch.extra_info.update(
        {"calculate_entropy": False, "compute_loss": False, "temperature": temperature}
    )
    worker_group.compute_log_prob(batch)
    data = tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=["log_probs"])
    return [
        _mean(whole, len(row["responses"]))
        for whole, row in zip(data["log_probs"].unbind(), rows, strict=True)
    ]


def _mean(logprob_L: torch.Tensor, length: int) -> float:
    """Mean over the last ``length`` tokens, the response; position t - 1 predicts token t."""
    # In float32: a mean over hundreds of tokens loses digits in bfloat16.
    return float(logprob_L[-length - 1 : -1].float().mean())


def _row(prompt: Sequence[int], response: torch.Tensor) -> dict[str, Any]:
    """A row with the fields that verl's engine reads, in the format of verl's agent loop."""
    prompts = torch.tensor(prompt, dtype=torch.int64)
    ids = torch.cat([prompts, response])
    mask = torch.ones_like(response)
    return {
        "prompts": prompts,
        "responses": response,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "response_mask": mask,
        "loss_mask": mask,
        "multi_modal_inputs": {},
    }
