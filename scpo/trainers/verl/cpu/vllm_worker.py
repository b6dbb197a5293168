"""vLLM's worker without a GPU; vLLM imports this module in the process that holds the model.

After loading a model, vLLM's CPU build packs every linear layer for its own kernels and frees the
original weight, so that the weights of the next update could not be loaded. This module keeps the
layers unpacked.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils


def _keep(layer: Any, remove_weight: bool) -> None:
    """Replacement of vLLM's packing: keep the weight, and multiply with torch."""
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _keep


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]  # verl is untyped
    """verl's extension, in this module so that vLLM imports it before it loads the model."""
