"""A sentence encoder as scorer: the clipped and rescaled cosine of two embeddings."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scpo.bounded import Bounded
from scpo.schema.scorer import BiEncoderScorer
from scpo.scoring.embedding_store import EmbeddingStore, encoder_identity
from scpo.scoring.pretrained import pretrained

CACHED_TEXTS = 32_768
"""Embeddings kept in memory, least recently used out first: 100 MB at 384 dimensions."""


class BiEncoder:
    """max(0, (cos - c) / (1 - c)) with c = ``cosine_floor``, never (1 + cos) / 2: that puts almost all pairs above 0.6.

    Embeddings are mean-pooled over the tokens and normalised, as sentence-transformers does for all-MiniLM-L6-v2
    (arXiv 2002.10957). Each text is a forward pass, on a GPU too, so that its embedding is a function of the text and
    may be kept: what else was encoded, and when, changes nothing. Norms and cosines are in float64: the score of two
    equal texts is exactly 1.

    Args:
        config: Which model, and how a cosine becomes a score.
        device: Where the model runs.
        cache_dir: Where embeddings made on a CPU are kept for other runs; None to keep none.

    Raises:
        ScorerError: torch, transformers or the model cannot be loaded; says what to install.
    """

    def __init__(self, config: BiEncoderScorer, device: str = "cpu", cache_dir: Path | None = None) -> None:
        self.name = config.identity
        self._config = config
        self._device = device
        self._tokenizer, self._model = pretrained(config.path, "AutoModel")
        self._model.to(device).eval()
        self._cache: Bounded[str, NDArray[np.float64]] = Bounded(CACHED_TEXTS)
        self._cache_dir = cache_dir if device == "cpu" else None

    @cached_property
    def _store(self) -> EmbeddingStore | None:
        if self._cache_dir is None:
            return None
        encoder = encoder_identity(self._tokenizer, self._model, self._config.max_tokens)
        return EmbeddingStore(self._cache_dir / "embeddings", encoder)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair, in [0, 1]."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        place = {text: i for i, text in enumerate(texts)}
        embedding = self.embed(texts)
        first, second = np.array([(place[a], place[b]) for a, b in pairs]).T
        cosine = (embedding[first] * embedding[second]).sum(axis=1)
        floor = self._config.cosine_floor
        scores: NDArray[np.float32] = np.clip((cosine - floor) / (1 - floor), 0, 1).astype(np.float32)
        return scores

    def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Normalised embeddings, ``(len(texts), dimensions)``."""
        known = {text: vector for text in texts if (vector := self._cache.get(text)) is not None}
        known |= self._encoded([text for text in dict.fromkeys(texts) if text not in known])
        for text, vector in known.items():
            self._cache.put(text, vector)
        return np.stack([known[text] for text in texts])

    def _encoded(self, texts: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Embeddings of texts that are not in memory, from the disk or computed and kept there."""
        if not texts:
            return {}
        summed = self._store.get(texts) if self._store else {}
        new = {text: self._forward(text) for text in texts if text not in summed}
        if self._store:
            self._store.put(new)
        return {text: _unit(vector_D) for text, vector_D in (summed | new).items()}

    def _forward(self, text: str) -> NDArray[np.float32]:
        """The sum over the tokens."""
        import torch

        ids = self._tokenizer(text, truncation=True, max_length=self._config.max_tokens)["input_ids"]
        with torch.inference_mode():
            hidden_LD = self._model(input_ids=torch.tensor([ids], device=self._device)).last_hidden_state[0]
            summed_D: NDArray[np.float32] = hidden_LD.sum(dim=0).cpu().numpy()
        return summed_D


def _unit(summed_D: NDArray[np.float32]) -> NDArray[np.float64]:
    vector_D = summed_D.astype(np.float64)
    unit_D: NDArray[np.float64] = vector_D / np.linalg.norm(vector_D)
    return unit_D
