"""Provenance of an attempt: code, packages, machine; no environment variables, no command lines."""

import hashlib
import importlib.metadata
import importlib.util
import logging
import platform
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scpo.installed import CODE_PARTS, CODE_SUFFIXES, REPOSITORY
from scpo.records import redaction
from scpo.records.files import file_sum, read_json, write_bytes, write_json
from scpo.records.memory import installed_gpus
from scpo.records.run_folders import RunFolder, now
from scpo.records.status import State
from scpo.schema.run import RunConfig

# File with the commit and the uncommitted changes of a code snapshot, which has no .git.
SNAPSHOT_RECORD = "snapshot.json"
COMMAND_TIMEOUT_S = 20

# File of an attempt's folder with the uncommitted changes of its code.
UNCOMMITTED = "uncommitted.diff"

# Largest untracked file whose text is in the diff, in bytes. A larger file is not code; the diff
# has its checksum.
SHOWN_BYTES = 1 << 20

logger = logging.getLogger(__name__)


def git_commit() -> str | None:
    """Commit of the running code; None if unknown."""
    snapshot = _snapshot()
    if snapshot:
        commit: str | None = snapshot["commit"]
        return commit
    printed = output("git", "rev-parse", "HEAD")
    return printed.decode().strip() if printed else None


def code_state(secret_names: Collection[str] = ()) -> dict[str, Any]:
    """{commit, uncommitted}: the running code and its uncommitted changes, secrets redacted.

    The changes are a diff, with untracked code and configuration that git does not ignore as new
    files.

    Args:
        secret_names: Environment variables that are secret although their names do not show it.
    """
    snapshot = _snapshot()
    if snapshot:
        return snapshot
    changes = output("git", "diff", "HEAD", "--no-ext-diff") or b""
    diff = b"".join((changes, *_untracked())).decode(errors="replace")
    return {"commit": git_commit(), "uncommitted": redaction.redact(diff, names=secret_names)}


def _untracked() -> Iterator[bytes]:
    """Yield a diff for each untracked file of the code or the configuration.

    ``python -m scpo.new`` creates such files, and runs can use them before git tracks them. Other
    untracked files, such as data, are left out.
    """
    listed = output(
        "git", "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE_PARTS, "conf"
    )
    for name in (listed or b"").decode(errors="surrogateescape").split("\0"):
        path = REPOSITORY / name
        if path.suffix not in CODE_SUFFIXES or not path.is_file():
            continue
        if path.stat().st_size > SHOWN_BYTES:
            yield f"{name}: not in git, SHA-256 {file_sum(path).sha256}\n".encode()
            continue
        # Compared with an empty file: a diff with a commit would require adding it to the index.
        command = ("git", "diff", "--no-ext-diff", "--no-index", "--", "/dev/null", name)
        yield output(*command, statuses=(0, 1)) or b""


def key_variables(configs: Iterable[RunConfig]) -> set[str]:
    """The environment variables that hold the keys of these runs' endpoints."""
    variables = set()
    for config in configs:
        if config.model.kind == "api" and config.model.key_variable is not None:
            variables.add(config.model.key_variable)
    return variables


def _snapshot() -> dict[str, Any]:
    """The record of a code snapshot; empty in a checkout."""
    path = REPOSITORY / SNAPSHOT_RECORD
    return dict(read_json(path)) if path.exists() else {}


def record(folder: RunFolder, config: RunConfig, attempt: int, weights: Mapping[str, str]) -> None:
    """Add an attempt to provenance.json, and the uncommitted changes to the attempt's folder.

    ``weights``: checksums of ``scpo.records.weights``.
    """
    if without_provenance(folder):
        logger.warning(
            "%s is lost: it had commit, packages, machine and weights of the earlier attempts, so "
            "their weights could not be compared",
            folder.provenance,
        )
    code = code_state(key_variables([config]))
    diff = code["uncommitted"].encode()
    if diff:
        write_bytes(folder.attempt(attempt) / UNCOMMITTED, diff)
    attempts = folder.read_provenance()
    attempts[str(attempt)] = {
        "started_at": now(),
        "commit": code["commit"],
        "dirty": bool(diff),
        # Two attempts with the same commit and hash ran the same code of the checkout.
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "seed": config.seed,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "torch_capability": _torch_capability() if config.method.kind == "trained" else None,
        "gpus": [name for name, _ in installed_gpus()],
        "python": platform.python_version(),
        "packages": _packages(),
        "weights": dict(weights),
    }
    write_json(folder.provenance, {"run": folder.run_id, "attempts": attempts})


def without_provenance(folder: RunFolder) -> str | None:
    """Message on an unfinished run whose record of attempts was deleted; None for others.

    ``logs.check_provenance`` reports a finished run, which is left out of tables without it.

    Raises:
        RecordError: Its status is damaged.
    """
    if folder.provenance.exists() or not folder.complete_checkpoints():
        return None
    # A status without an attempt was not written by a run's process.
    status = folder.read_status()
    if status.state is State.DONE or not status.attempt:
        return None
    return (
        f"has checkpoints but no {folder.provenance.name}, the record of the commit, packages, "
        "machine and weights of each attempt: it was deleted. Restore it; a run that goes on "
        "records its later attempts only"
    )


def latest_diff(folder: RunFolder) -> Path | None:
    """File with the uncommitted changes of a run's last attempt; None if there were none."""
    attempts = folder.read_provenance()
    if not attempts:
        return None
    diff = folder.attempt(max(map(int, attempts))) / UNCOMMITTED
    return diff if diff.exists() else None


def _packages() -> dict[str, str]:
    versions = {}
    for distribution in importlib.metadata.distributions():
        # `distribution.version` would parse the metadata again.
        metadata = distribution.metadata
        versions[str(metadata["Name"]).lower()] = str(metadata["Version"])
    return dict(sorted(versions.items()))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _torch_capability() -> str | None:
    """The vector instructions that torch's CPU kernels use, e.g. AVX512; None without torch.

    They determine the rounding of sums. They may differ between processors of one name, and with
    ATEN_CPU_CAPABILITY.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    # A slow import, but a run that trains needs it anyway.
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def output(*command: str, statuses: Collection[int] = (0,)) -> bytes | None:
    """Output of a command in the repository; None if it fails, times out or is not installed.

    Args:
        command: Its words.
        statuses: Exit statuses that count as success; `git diff --no-index` has 1 for a difference.
    """
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in statuses else None
