"""Provenance of an attempt: code, packages and machine. No environment variables, no command lines."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from scpo.errors import ConfigError
from scpo.records import redaction
from scpo.records.files import read_json, read_record, text_sum, write_bytes, write_json
from scpo.records.memory import installed_gpus
from scpo.records.run_folders import Provenance, RunFolder, now
from scpo.schema import RunConfig

REPOSITORY = Path(__file__).resolve().parents[2]


SNAPSHOT_RECORD = "snapshot.json"  # lies in a frozen copy of the code, in place of .git


COMMAND_TIMEOUT_S = 20


def git_commit() -> str | None:
    """The commit of the code that runs, None where that is unknown."""
    if _frozen():
        commit: str | None = _frozen()["commit"]
        return commit
    printed = output("git", "rev-parse", "HEAD")
    return printed.decode().strip() if printed else None


def code_state(secret_names: Collection[str] = ()) -> dict[str, Any]:
    """{commit, uncommitted}: the code that runs, its uncommitted changes with their secrets blacked out.

    ``secret_names``: environment variables whose values are secret although their names do not say so.
    """
    if frozen := _frozen():
        return frozen
    diff = (output("git", "diff", "HEAD", "--no-ext-diff") or b"").decode(errors="replace")
    return {"commit": git_commit(), "uncommitted": redaction.redact(diff, names=secret_names)}


def key_variables(configs: Iterable[RunConfig]) -> set[str]:
    """The environment variables that hold the keys of these runs' endpoints."""
    models = [config.model for config in configs]
    return {model.key_variable for model in models if model.kind == "api" and model.key_variable is not None}


def _frozen() -> dict[str, Any]:
    """What a snapshot of the code says of itself; empty where this is none."""
    path = REPOSITORY / SNAPSHOT_RECORD
    return dict(read_json(path)) if path.exists() else {}


def record(folder: RunFolder, config: RunConfig, attempt: int) -> None:
    """Add this attempt to provenance.json, and the code's uncommitted changes to the attempt's folder."""
    code = code_state(key_variables([config]))
    diff = code["uncommitted"].encode()
    if diff:
        write_bytes(folder.attempt(attempt) / "uncommitted.diff", diff)
    earlier = folder.provenance
    attempts = read_record(earlier, Provenance, "record of attempts").attempts if earlier.exists() else {}
    attempts[str(attempt)] = {
        "started_at": now(),
        "commit": code["commit"],
        "dirty": bool(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "seed": config.seed,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "torch_capability": _torch_capability() if config.method.kind == "trained" else None,
        "gpus": [name for name, _ in installed_gpus()],
        "python": platform.python_version(),
        "packages": _packages(),
    }
    write_json(folder.provenance, {"attempts": attempts})


def _packages() -> dict[str, str]:
    parsed = (one.metadata for one in importlib.metadata.distributions())  # one.version would parse it again
    return dict(sorted((str(one["Name"]).lower(), str(one["Version"])) for one in parsed))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _torch_capability() -> str | None:
    """The vector instructions that torch's CPU kernels use, e.g. AVX512; None without torch.

    They decide how sums are rounded, also between processors of one name and under ATEN_CPU_CAPABILITY.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def visible_gpus() -> list[str]:
    """The GPUs that a process started here may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(index) for index in range(len(installed_gpus()))]
    return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1", "NoDevFiles")]


def output(*command: str) -> bytes | None:
    """What a command prints when run in the repository; None if it fails, hangs or is not there."""
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


FILE = "code.json"  # in the run folder: the code that wrote its steps


PARTS = ("scpo", "sweeps", "train.py")


ENDINGS = (".py", ".yaml")  # all that these folders hold, and nothing that a tool leaves beside it


SHOWN = 6


class CodeRecord(BaseModel):
    """code.json: path -> hash of its content."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, str]


def code_files() -> dict[str, str]:
    """Path -> hash of each file of the code that runs; the same in a checkout, a copy of it and a job's snapshot."""
    return {name: text_sum(path.read_bytes()) for name, path in sorted(_paths(REPOSITORY))}


def _paths(root: Path) -> Iterator[tuple[str, Path]]:
    for part in PARTS:
        found = [root / part] if (root / part).is_file() else (root / part).rglob("*")
        yield from ((str(path.relative_to(root)), path) for path in found if path.suffix in ENDINGS and path.is_file())


def check_resume(folder: RunFolder, *, across: bool, commits: tuple[str | None, str | None]) -> None:
    """Refuse to go on from a checkpoint of other code; note which code goes on.

    Steps of two versions of the code in one curve would be nobody's result.

    Args:
        folder: The run.
        across: ``machine.resume_across_versions``: go on all the same.
        commits: Under which the run stopped, and now: all that older runs have noted.

    Raises:
        ConfigError: The code has changed; the message names the files.
    """
    path, now = folder.path / FILE, code_files()
    checkpoints = folder.complete_checkpoints()
    if checkpoints and not across:
        if path.exists():
            before = read_record(path, CodeRecord, "record of the code").files
            differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        else:
            differing = [] if commits[0] == commits[1] else [f"commit {commits[0]}, now {commits[1]}"]
        if differing:
            raise ConfigError(
                f"{folder.run_id} stopped at step {checkpoints[-1]} under other code. Changed since: "
                f"{_some(differing)}. Restore {'it' if len(differing) == 1 else 'them'} (the run began under commit "
                f"{commits[0]}), or add machine.resume_across_versions=true, or delete {folder.path} to start again"
            )
    write_json(path, CodeRecord(files=now).model_dump())


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
