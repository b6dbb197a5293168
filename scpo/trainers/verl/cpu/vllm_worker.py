"""vLLM's worker without a GPU; vLLM imports this module in the process that holds the model.

vLLM's CPU build packs every linear layer for its own kernels once the model is loaded and frees the
weight, so those of the next update would have nowhere to go. Here the layers stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils


def _keep(layer: Any, remove_weight: bool) -> None:
    """In place of vLLM's packing: use the weight as it is, with torch's own product."""
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _keep


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]  # verl is untyped
    """verl's own, in a module that is imported before the model is loaded."""
