"""Platform ``cpu`` for verl's plugin registry; verl imports it at the end of its own import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(str):
    """Device name ``cpu`` that formats as ``0``, for verl's ``f"{device name}:{device id}"``."""

    __slots__ = ()

    def __format__(self, _spec: str) -> str:
        return "0"


def _zero(*_args: Any, **_options: Any) -> int:
    return 0


def _nothing(*_args: Any, **_options: Any) -> None:
    return None


MISSING: dict[str, Any] = {
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
        _zero,
    ),
    **dict.fromkeys(("empty_cache", "ipc_collect", "reset_peak_memory_stats"), _nothing),
    # torch.manual_seed seeds the CPU already.
    **dict.fromkeys(("manual_seed", "manual_seed_all"), _nothing),
    "mem_get_info": lambda *_: (0, 0),
    # verl's checkpoints contain the random state.
    "get_rng_state": torch.get_rng_state,
    "set_rng_state": torch.set_rng_state,
}
"""Functions of ``torch.cuda`` that verl calls and ``torch.cpu`` lacks."""


@PlatformRegistry.register(platform="cpu")
class PlatformCpu(PlatformBase):  # type: ignore[misc]  # verl is untyped
    """A single device, with gloo for communication and a logical GPU of Ray for placement."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module: ModuleType = torch.cpu

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return _Device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    set_device = synchronize = manual_seed = manual_seed_all = set_allocator_settings = (
        empty_cache
    ) = _nothing
    profiler_start = profiler_stop = cudart = _nothing


def _fill_in_torch_cpu() -> None:
    """Add the functions of ``MISSING`` to ``torch.cpu``, unless this version of torch has them."""
    for name, value in MISSING.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, value)


def _one_backend() -> None:
    """Request the backend gloo; verl's ``cpu:gloo,<device>:<backend>`` would name the CPU twice."""
    from verl.utils import distributed

    original = distributed.initialize_global_process_group_ray
    distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: (
        original(timeout_second, backend or "gloo")
    )


def _no_pinned_memory() -> None:
    """Turn off pinned memory, which requires a GPU driver, in the reference policy's offloading."""
    from torch.distributed.fsdp import CPUOffloadPolicy

    def without_pinning(policy: Any, pin_memory: bool = False) -> None:
        policy.pin_memory = False

    CPUOffloadPolicy.__init__ = without_pinning  # type: ignore[method-assign, assignment]


_fill_in_torch_cpu()
_one_backend()
_no_pinned_memory()
