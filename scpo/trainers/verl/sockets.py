"""Unique socket names for each attempt, so that runs on one node never share a socket.

The rollout engine gets new weights through sockets in the node's temporary folder, which verl names
after Ray's job id. The first job of every local Ray cluster is 01000000, so that with verl's names
the engine of one run would get the weights of another.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

VARIABLE = "SCPO_SOCKETS"
"""Environment variable with the name of an attempt's sockets."""
MODULE = __name__
MODULES = "VERL_USE_EXTERNAL_MODULES"
"""Environment variable of verl: comma-separated modules that it imports."""


def new_name(run_folder: Path) -> str:
    """Unique name for one attempt at a run: a hash of the folder and random digits."""
    return hashlib.sha256(str(run_folder.resolve()).encode()).hexdigest()[:8] + secrets.token_hex(4)


def environment(run_folder: Path, modules: str = "") -> dict[str, str]:
    """Environment variables of an attempt's processes; ``modules``: further imports for verl."""
    return {VARIABLE: new_name(run_folder), MODULES: ",".join(filter(None, (modules, MODULE)))}


def name_by_run() -> None:
    """Replace Ray's job id, which verl uses only in socket names, by this attempt's name."""
    from ray.runtime_context import RuntimeContext

    given = os.environ[VARIABLE]
    RuntimeContext.get_job_id = lambda self: given


if VARIABLE in os.environ:
    # The variable is not set in the process that prepares an attempt, which may lack Ray.
    name_by_run()
