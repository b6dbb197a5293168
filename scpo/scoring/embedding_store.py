"""Embeddings of step texts on disk, so that a text is encoded once for all runs that share a cache folder.

An embedding is a function of its text, of the encoder, and in its last bits of the processor and the libraries: all of
that names the file, a SQLite database, which several processes may write. Each row carries a checksum. What cannot be
read or written costs time, and no result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

MOST_TEXTS = 131_072
"""Texts in a file, 200 MB at 384 dimensions; none is added to a full one."""
_AT_ONCE = 500  # keys of one question
_WAIT_S = 30.0  # for another process that writes
_BITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")  # variables that choose a processor's instructions


class EmbeddingStore:
    """Vectors (float32) of texts in the file of one encoder.

    Args:
        folder: Where the files lie.
        encoder: What makes the vectors, to the bit; see ``encoder_identity``.
        most_texts: Texts that the file may hold.
    """

    def __init__(self, folder: Path, encoder: str, most_texts: int = MOST_TEXTS) -> None:
        self._path = folder / f"{encoder}.sqlite"
        self._most_texts = most_texts
        self._broken = False

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of those texts that are known."""
        keys = {_key(text): text for text in texts}
        found: dict[str, NDArray[np.float32]] = {}
        if self._broken or not keys or not self._path.exists():
            return found
        names = list(keys)
        try:
            with self._open() as database:
                for start in range(0, len(names), _AT_ONCE):
                    part = names[start : start + _AT_ONCE]
                    places = ",".join("?" * len(part))
                    asked = f"SELECT key, vector, checksum FROM embedding WHERE key IN ({places})"  # noqa: S608 (only ?)
                    for key, vector, checksum in database.execute(asked, part):
                        if zlib.crc32(key + vector) == checksum:
                            found[keys[key]] = np.frombuffer(vector, dtype="<f4").astype(np.float32)
            database.close()
        except (sqlite3.Error, OSError, TypeError, ValueError) as error:
            self._give_up(error)
        return found

    def put(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep these vectors, while there is room."""
        if self._broken or not vectors:
            return
        rows = [(_key(text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, vector BLOB, checksum INT)"
                )
                (count,) = database.execute("SELECT count(*) FROM embedding").fetchone()
                database.executemany(
                    "INSERT OR REPLACE INTO embedding VALUES (?, ?, ?)",
                    [
                        (key, vector, zlib.crc32(key + vector))
                        for key, vector in rows[: max(0, self._most_texts - count)]
                    ],
                )
            database.close()
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=_WAIT_S)
        database.execute("PRAGMA synchronous = OFF")  # a row that a power cut tore fails its checksum
        return database

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        logger.warning("embeddings are no longer kept in %s: %s; delete it to start anew", self._path, error)


def encoder_identity(tokenizer: Any, model: Any, max_tokens: int) -> str:
    """Hash of all that an embedding on a CPU depends on: weights, tokenizer, length, libraries, processor, threads."""
    import torch
    import transformers

    digest = hashlib.blake2b(digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules |= {"truncation": None, "padding": None}  # what its last call asked for
    parts = [json.dumps(rules, sort_keys=True), model.config.to_json_string(), str(max_tokens)]
    parts += [torch.__version__, transformers.__version__, str(torch.get_num_threads()), _processor()]
    parts += [torch.backends.cpu.get_cpu_capability(), *(os.environ.get(name, "") for name in _BITS)]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{platform.machine()} {next(named, platform.processor())}"


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
