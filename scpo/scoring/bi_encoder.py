"""A sentence encoder as scorer: the clipped and rescaled cosine of two embeddings."""

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.schema.scorer import BiEncoderScorer

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512)
"""Padded lengths in tokens. A text is always encoded at the smallest that holds it, whatever else is in the batch."""
CACHED_TEXTS = 32_768
"""Embeddings kept in memory, least recently used out first: 100 MB at 384 dimensions."""

_PACKAGE = "package:"


class BiEncoder:
    """max(0, (cos - c) / (1 - c)) with c = ``cosine_floor``, never (1 + cos) / 2: that puts almost all pairs above 0.6.

    Embeddings are mean-pooled over the tokens and normalised, as sentence-transformers does for all-MiniLM-L6-v2
    (arXiv 2002.10957). Each text is encoded in a canonical shape, a fixed number of rows at a bucketed length, so that
    its embedding does not depend on the texts encoded with it. Norms and cosines are in float64: the score of two equal
    texts is exactly 1.

    Raises:
        ScorerError: torch, transformers or the model cannot be loaded; says what to install.
    """

    def __init__(self, config: BiEncoderScorer, device: str = "cpu") -> None:
        self.name = f"{config.name}(path={config.path}, c={config.cosine_floor}, max_tokens={config.max_tokens})"
        self._config = config
        self._device = device
        self._tokenizer, self._model = _load(config.path, device)
        self._cache: OrderedDict[str, NDArray[np.float64]] = OrderedDict()

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
        new = [text for text in dict.fromkeys(texts) if text not in self._cache]
        known = {text: self._cache[text] for text in texts if text in self._cache}
        known |= self._encode(new)
        for text in texts:
            self._cache[text] = known[text]
            self._cache.move_to_end(text)
        while len(self._cache) > CACHED_TEXTS:
            self._cache.popitem(last=False)
        return np.stack([known[text] for text in texts])

    def _encode(self, texts: list[str]) -> dict[str, NDArray[np.float64]]:
        """Encode texts bucket by bucket, ``batch_size`` rows at a time; missing rows are filled with the first one."""
        buckets: dict[int, list[tuple[str, list[int]]]] = {}
        limit = self._config.max_tokens
        for text in texts:
            ids = self._tokenizer(text, truncation=True, max_length=limit)["input_ids"]
            width = next((width for width in TOKEN_BUCKETS if width >= len(ids)), len(ids))
            buckets.setdefault(width, []).append((text, ids))
        size = self._config.batch_size
        encoded: dict[str, NDArray[np.float64]] = {}
        for width, rows in sorted(buckets.items()):
            for start in range(0, len(rows), size):
                chunk = rows[start : start + size]
                filled = [ids for _, ids in chunk] + [chunk[0][1]] * (size - len(chunk))
                vectors = self._forward(filled, width)
                encoded.update((text, vector) for (text, _), vector in zip(chunk, vectors, strict=False))
        return encoded

    def _forward(self, ids: list[list[int]], width: int) -> NDArray[np.float64]:
        import torch

        padding = self._tokenizer.pad_token_id
        token_BL = torch.tensor([row + [padding] * (width - len(row)) for row in ids], device=self._device)
        mask_BL = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids], device=self._device)
        with torch.inference_mode():
            hidden_BLD = self._model(input_ids=token_BL, attention_mask=mask_BL).last_hidden_state
            summed_BD = (hidden_BLD * mask_BL[..., None]).sum(dim=1)
        vectors = summed_BD.cpu().numpy().astype(np.float64)
        unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


def _load(path: str, device: str) -> tuple[Any, Any]:
    """Tokenizer and model from a package's folder ``model``, a local folder or the hub; only the last may download."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise ScorerError("the bi_encoder scorer needs torch and transformers: pip install 'scpo[local]'") from error
    source = _package_folder(path.removeprefix(_PACKAGE)) if path.startswith(_PACKAGE) else path
    local = Path(source).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local)
        model = AutoModel.from_pretrained(source, local_files_only=local)
    except (OSError, ValueError) as error:
        raise ScorerError(
            f"no sentence encoder at {path!r}: expected package:<installed package>, a local folder with a "
            f"transformers model, or a name on the Hugging Face hub ({error})"
        ) from error
    return tokenizer, model.to(device).eval()


def _package_folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ScorerError(
            f"the scorer's model comes with the package {package!r}, which is not installed: "
            f"pip install {package.replace('_', '-')}"
        )
    return str(Path(spec.submodule_search_locations[0]) / "model")
