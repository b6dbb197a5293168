"""Several nodes: the run joins the Ray that was started on them, once all of them are there."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from scpo.errors import ConfigError, first_line
from scpo.stop_signals import STOP_SIGNALS

# Ours: nodes of a job start their Ray within seconds of each other.
DEADLINE_S = 300.0
POLL_S = 1.0
START = (
    "Start it: ray start --head --port=6379 on the first node, ray start --address=<its name>:6379 "
    "on the others"
)

logger = logging.getLogger(__name__)


def wait_for_nodes(
    nodes: int,
    gpus: int,
    should_stop: Callable[[], bool] = lambda: False,
    deadline_s: float = DEADLINE_S,
) -> bool:
    """Wait until ``nodes`` nodes with ``gpus`` GPUs each have joined Ray (here or RAY_ADDRESS).

    Returns:
        True once they have joined; False if the run was asked to stop.

    Raises:
        ConfigError: No Ray runs here, or too few nodes have joined it in time.
    """
    asked = f"trainer.verl.nodes={nodes}"
    _join(asked)
    end = time.monotonic() + deadline_s
    try:
        while len(there := with_gpus(ray.nodes(), gpus)) < nodes:
            if should_stop():
                return False
            if time.monotonic() > end:
                raise ConfigError(
                    f"{asked}: {len(there)} with {gpus} GPUs joined Ray within {deadline_s:g} s "
                    f"({', '.join(sorted(there)) or 'none'}). {START}"
                )
            logger.info("waiting for %d nodes with %d GPUs, %d are there", nodes, gpus, len(there))
            time.sleep(POLL_S)
    finally:
        ray.shutdown()
    return True


def with_gpus(nodes: Sequence[Mapping[str, Any]], gpus: int) -> list[str]:
    """Addresses of the nodes that live and have that many GPUs."""
    return [
        node["NodeManagerAddress"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus
    ]


def _join(asked: str) -> None:
    """Ray takes SIGTERM when it is joined; a run that waits is stopped as any other."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="error")
    except ConnectionError as error:
        reason = first_line(error)
        raise ConfigError(
            f"{asked}: no Ray to join here ({reason}). {START}, with the same RAY_AUTH_MODE "
            "everywhere (docs/verl.md); or trainer.verl.nodes=1"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
