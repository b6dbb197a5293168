"""Unique socket names per run, so that runs on one node never share a socket.

verl names the sockets through which the engine gets new weights by Ray's job id, in the node's
temporary folder. Every local Ray cluster calls its first job 01000000: the engine of one run took
the weights of the other.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

VARIABLE = "SCPO_SOCKETS"
"""The environment variable that holds the name, in every process of the run."""
MODULE = __name__
MODULES = "VERL_USE_EXTERNAL_MODULES"
"""verl's environment variable: modules that it imports, with commas."""


def new_name(run_folder: Path) -> str:
    """A name for one attempt at a run: the folder's hash, and what no other attempt has."""
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
    # The process that prepares an attempt does not set it, and may have no Ray.
    name_by_run()
