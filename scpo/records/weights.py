"""Checksums of the weights that runs read from a path, whose content can be replaced.

A run id has the path only. Without the checksums, seeds with different weights would be averaged as
one row.
"""

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from scpo.errors import ConfigError
from scpo.records.files import file_sum
from scpo.records.run_folders import RunFolder
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import RunConfig

# Files of a model's folder that its numbers depend on: weights, configuration, tokenizer.
SUFFIXES = (".safetensors", ".bin", ".json", ".model", ".txt")


def hub_cache() -> Path:
    """Folder in which the Hugging Face hub's models are cached."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def weights_sums(config: RunConfig) -> dict[str, str]:
    """Checksums of the run's weights, e.g. ``{"model.path=/data/my-model": <SHA-256>}``.

    Of a name on the hub, the commit that is cached. Weights that are not on this machine yet are
    left out, and so are those of an installed package, whose version is recorded.
    """
    sums = {}
    for key, path in _paths(config):
        # The loader reports a folder that cannot be read.
        with contextlib.suppress(OSError):
            if content := _content(path):
                sums[f"{key}={path}"] = content
    return sums


def _paths(config: RunConfig) -> Iterator[tuple[str, str]]:
    if isinstance(config.model, HuggingFaceModel):
        yield "model.path", config.model.path
    reads_scorer = config.method.kind == "trained" and config.method.shaper is not None
    path = getattr(config.scorer, "path", None)
    if reads_scorer and isinstance(path, str):
        yield "scorer.path", path


def _content(path: str) -> str:
    """Hash of a folder's files, or the cached commit of a name on the hub; empty without either."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
        stats = [(file.name, file.stat()) for file in files]
        known = tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
        return _folder_sum(folder, known)
    reference = hub_cache() / f"models--{path.replace('/', '--')}" / "refs" / "main"
    return reference.read_text().strip() if reference.is_file() else ""


# Cached, because an attempt asks before its start and for its record, and 7B takes half a minute.
@functools.lru_cache(maxsize=8)
def _folder_sum(folder: Path, files: Sequence[tuple[str, int, int]]) -> str:
    """Hash of the names and contents of these files; sizes and times are keys of the cache."""
    seen = hashlib.sha256()
    for name, _, _ in files:
        seen.update(f"{name} {file_sum(folder / name).sha256}\n".encode())
    return seen.hexdigest()


def changed_weights(folder: RunFolder, config: RunConfig) -> list[str]:
    """Paths whose weights differ from those of the last attempt that recorded any."""
    present = weights_sums(config)
    for attempt in reversed(folder.read_attempts()):
        before = attempt.get("weights")
        if isinstance(before, dict) and before:
            return [
                name for name, content in present.items() if before.get(name, content) != content
            ]
    return []


def check_weights(folder: RunFolder, config: RunConfig) -> None:
    """Check that a run with a checkpoint goes on with the weights that it had.

    They are the initial policy, which is the reference of a KL term, and the scorer of its credit.
    ``machine.resume_across_versions`` skips the check.

    Raises:
        ConfigError: The weights have changed; the message names the paths.
    """
    checkpoints = folder.complete_checkpoints()
    if not checkpoints or config.machine.resume_across_versions:
        return
    if changed := changed_weights(folder, config):
        which = "it" if len(changed) == 1 else "them"
        raise ConfigError(
            f"{folder.run_id} stopped at step {checkpoints[-1]} with other weights. Changed since: "
            f"{', '.join(changed)}. Restore {which}, or add machine.resume_across_versions=true, "
            f"or move {folder.path} away to start again"
        )
