"""Where results came from: code, packages and machine of an attempt. No environment variables, no command lines."""

import hashlib
import importlib.metadata
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from scpo.schema import RunConfig
from scpo.tracking import RunFolder
from scpo.tracking.atomic import read_json, write_bytes, write_json
from scpo.tracking.folder import now

REPOSITORY = Path(__file__).resolve().parents[1]
COMMAND_TIMEOUT_S = 20


def git_commit() -> str | None:
    """The commit of the code that runs, None outside a checkout."""
    output = _output("git", "rev-parse", "HEAD")
    return output.decode().strip() if output else None


def record(folder: RunFolder, config: RunConfig, attempt: int) -> None:
    """Add this attempt to provenance.json, and the code's uncommitted changes to the attempt's folder."""
    diff = _output("git", "diff", "HEAD", "--no-ext-diff") or b""
    if diff:
        write_bytes(folder.attempt(attempt) / "uncommitted.diff", diff)
    attempts = read_json(folder.provenance)["attempts"] if folder.provenance.exists() else {}
    attempts[str(attempt)] = {
        "started_at": now(),
        "commit": git_commit(),
        "dirty": bool(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "seed": config.seed,
        **_machine(),
        "packages": _packages(),
    }
    write_json(folder.provenance, {"attempts": attempts})


def _machine() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "gpus": _gpus(),
        "python": platform.python_version(),
    }


def _packages() -> dict[str, str]:
    found = {str(one.metadata["Name"]).lower(): one.version for one in importlib.metadata.distributions()}
    return dict(sorted(found.items()))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _gpus() -> list[str]:
    """Names of the GPUs, as the driver tells them: importing torch for this would take seconds."""
    if shutil.which("nvidia-smi") is None:
        return []
    output = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or b""
    return [line.strip() for line in output.decode().splitlines() if line.strip()]


def _output(*command: str) -> bytes | None:
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
