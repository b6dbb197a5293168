"""Sentence encoder as scorer: the clipped and rescaled cosine of two embeddings.

Embeddings are stored on disk, so that a text is encoded once for all runs that share a cache
folder. An embedding depends on its text, on the encoder and, in its last bits, on the processor and
the libraries. Each combination of encoder, processor and libraries has a file of its own, a SQLite
database that several processes may write; each row has a checksum. After a read or write error
embeddings are computed again, with the same result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.bounded import Bounded
from scpo.schema.scorer import BiEncoderScorer
from scpo.scoring.pretrained import pretrained

logger = logging.getLogger(__name__)

MOST_TEXTS = 131_072
"""Largest number of texts in a file, 200 MB at 384 dimensions; further texts are not stored."""

# SQLite limits the bound values of a query: to 999 before version 3.32.
_KEYS_PER_QUERY = 500

# Wait for the lock that another process holds while it writes.
_LOCK_TIMEOUT_S = 30.0

# Environment variables that select the processor's instructions, which affect a sum's last bits.
_INSTRUCTION_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
)


class EmbeddingStore:
    """Vectors (float32) of texts in the file of one encoder.

    A vector is the sum over a text's tokens, as the model returned it; it is normalised after
    reading, so that stored and computed embeddings have the same bits. Each call opens a connection
    of its own, because another process may have deleted a damaged file.

    Args:
        folder: Folder of the files.
        encoder: Hash of all that the vectors depend on (``encoder_identity``); names the file.
        most_texts: Largest number of texts in the file.
    """

    def __init__(self, folder: Path, encoder: str, most_texts: int = MOST_TEXTS) -> None:
        self._path = folder / f"{encoder}.sqlite"
        self._most_texts = most_texts
        self._broken = False

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of these texts; texts without one are left out."""
        keys = {_key(text): text for text in texts}
        found: dict[str, NDArray[np.float32]] = {}
        if self._broken or not keys or not self._path.exists():
            return found
        names = list(keys)
        try:
            with contextlib.closing(self._open()) as database:
                for start in range(0, len(names), _KEYS_PER_QUERY):
                    part = names[start : start + _KEYS_PER_QUERY]
                    marks = ",".join("?" * len(part))
                    # Only question marks are inserted into the query; SQLite binds the keys.
                    query = f"SELECT * FROM embedding WHERE key IN ({marks})"  # noqa: S608
                    for key, vector, checksum in database.execute(query, part):
                        # A damaged row is left out; its embedding is computed again.
                        if zlib.crc32(key + vector) == checksum:
                            stored = np.frombuffer(vector, dtype="<f4")
                            found[keys[key]] = stored.astype(np.float32)
        except Exception as error:  # noqa: BLE001 (whichever decoder finds the damage)
            self._give_up(error)
        return found

    def put(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Store these vectors, up to ``most_texts`` in the file."""
        if self._broken or not vectors:
            return
        rows = []
        for text, vector in vectors.items():
            key = _key(text)
            # Little-endian on every machine, because the cache folder may be shared.
            stored = vector.astype("<f4").tobytes()
            rows.append((key, stored, zlib.crc32(key + stored)))

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # The connection as a context commits; it does not close itself.
            with contextlib.closing(self._open()) as database, database:
                # Two processes that write at the same time may exceed the bound a little, which
                # does no harm.
                (count,) = database.execute("SELECT count(*) FROM embedding").fetchone()
                free = max(0, self._most_texts - count)
                database.executemany(
                    "INSERT OR REPLACE INTO embedding VALUES (?, ?, ?)", rows[:free]
                )
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        """Connect to the file; it is created on first use."""
        database = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)
        # Not flushed to disk, for speed: a row that a power cut damages fails its checksum.
        database.execute("PRAGMA synchronous = OFF")
        database.execute(
            "CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, vector BLOB, checksum INT)"
        )
        return database

    def _give_up(self, error: Exception) -> None:
        """Delete a damaged file; after any other error, stop reading and writing embeddings."""
        # An OperationalError (a lock, a full disk) is a DatabaseError too, but no sign of damage.
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        )
        if damaged:
            with contextlib.suppress(OSError):
                self._path.unlink()
                logger.warning(
                    "the embeddings %s are damaged (%s) and are made again", self._path, error
                )
                return
        self._broken = True
        logger.warning("embeddings are no longer kept in %s: %s", self._path, error)


def encoder_identity(tokenizer: Any, model: Any, max_tokens: int) -> str:
    """Hash of everything that an embedding on a CPU depends on, besides its text.

    These are weights, tokenizer, maximum length, libraries, processor and threads.
    """
    import torch
    import transformers

    digest = hashlib.blake2b(digest_size=12)
    # The weights themselves, because a folder of the same name may hold other ones.
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    # A tokenizer also serialises the truncation and padding of its last call.
    rules |= {"truncation": None, "padding": None}
    parts = [
        json.dumps(rules, sort_keys=True),
        model.config.to_json_string(),
        str(max_tokens),
        torch.__version__,
        transformers.__version__,
        # Sums are split over threads, so their number affects the last bits.
        str(torch.get_num_threads()),
        _processor(),
        torch.backends.cpu.get_cpu_capability(),
    ]
    parts += [os.environ.get(name, "") for name in _INSTRUCTION_VARIABLES]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _processor() -> str:
    """Name of the CPU's model; libraries choose their kernels by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return f"{platform.machine()} {line.partition(':')[2].strip()}"
    # Not Linux, or a processor without that line.
    return f"{platform.machine()} {platform.processor()}"


def _key(text: str) -> bytes:
    """Key of a text: a hash of 16 bytes, which keeps the index small."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


CACHED_TEXTS = 32_768
"""Number of embeddings in the LRU cache in memory, 100 MB at 384 dimensions."""


class BiEncoder:
    """max(0, (cos - c) / (1 - c)) of two embeddings, with c = ``cosine_floor``.

    Not (1 + cos) / 2, which puts almost all pairs above 0.6. Embeddings are mean-pooled over the
    tokens and normalised, as sentence-transformers does for all-MiniLM-L6-v2 (arXiv 2002.10957).
    Each text is a forward pass of its own, on a GPU too, so that its embedding depends only on
    the text and can be stored. Norms and cosines are in float64: the score of two equal texts is
    exactly 1.

    Args:
        config: The model, and the cosine floor.
        device: Device of the model.
        cache_dir: Folder of stored embeddings, for models on a CPU; None to store none.

    Raises:
        ScorerError: torch, transformers or the model cannot be loaded.
    """

    def __init__(
        self, config: BiEncoderScorer, device: str = "cpu", cache_dir: Path | None = None
    ) -> None:
        self.name = config.identity
        self._config = config
        self._device = device
        self._tokenizer, self._model = pretrained(config.path, "AutoModel")
        self._model.to(device).eval()
        self._cache: Bounded[str, NDArray[np.float64]] = Bounded(CACHED_TEXTS)
        # On a GPU the last bits of an embedding may change from one process to the next.
        self._cache_dir = cache_dir if device == "cpu" else None

    @cached_property
    def _store(self) -> EmbeddingStore | None:
        """The encoder's file; made on first use, because its name hashes all weights."""
        if self._cache_dir is None:
            return None
        encoder = encoder_identity(self._tokenizer, self._model, self._config.max_tokens)
        return EmbeddingStore(self._cache_dir / "embeddings", encoder)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair, in [0, 1]."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        # A text occurs in many pairs; it is embedded once.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        index = {text: i for i, text in enumerate(texts)}
        embedding = self.embed(texts)
        first = [index[text] for text, _ in pairs]
        second = [index[text] for _, text in pairs]
        return self._rescaled((embedding[first] * embedding[second]).sum(axis=1))

    def similarities(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Similarities of all pairs of texts, ``(texts, texts)``; each text is embedded once."""
        embedding = self.embed(texts)
        return self._rescaled(embedding @ embedding.T)

    def _rescaled(self, cosine: NDArray[np.float64]) -> NDArray[np.float32]:
        """Similarities of cosines, of any shape; 1 stays 1 and the floor becomes 0."""
        floor = self._config.cosine_floor
        rescaled = (cosine - floor) / (1 - floor)
        # Clipped for cosines below the floor, and for those that rounding puts above 1.
        scores: NDArray[np.float32] = np.clip(rescaled, 0, 1).astype(np.float32)
        return scores

    def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Normalised embeddings, ``(len(texts), dimensions)``."""
        # The cache is bounded, so its vectors are collected before new ones may evict them.
        known: dict[str, NDArray[np.float64]] = {}
        for text in texts:
            vector = self._cache.get(text)
            if vector is not None:
                known[text] = vector
        known |= self._encoded([text for text in dict.fromkeys(texts) if text not in known])
        for text, embedding in known.items():
            self._cache.put(text, embedding)
        return np.stack([known[text] for text in texts])

    def _encoded(self, texts: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Embeddings of texts that are not in memory, read from disk, or computed and stored."""
        if not texts:
            return {}
        summed = self._store.get(texts) if self._store else {}
        new = {text: self._forward(text) for text in texts if text not in summed}
        if self._store:
            self._store.put(new)
        return {text: _unit(vector_D) for text, vector_D in (summed | new).items()}

    def _forward(self, text: str) -> NDArray[np.float32]:
        """Sum of the last hidden states over a text's tokens, ``(dimensions,)``."""
        import torch

        # One text, so there is no padding and no attention mask is needed.
        encoded = self._tokenizer(text, truncation=True, max_length=self._config.max_tokens)
        ids = torch.tensor([encoded["input_ids"]], device=self._device)
        with torch.inference_mode():
            hidden_LD = self._model(input_ids=ids).last_hidden_state[0]
            summed_D: NDArray[np.float32] = hidden_LD.sum(dim=0).cpu().numpy()
        return summed_D


def _unit(summed_D: NDArray[np.float32]) -> NDArray[np.float64]:
    # Sum and mean over the tokens have the same direction, so they are equal once normalised.
    vector_D = summed_D.astype(np.float64)
    unit_D: NDArray[np.float64] = vector_D / np.linalg.norm(vector_D)
    return unit_D
