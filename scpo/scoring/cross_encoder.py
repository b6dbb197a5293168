"""Reranker as scorer, as in the paper (section 4.1: BGE-Reranker-v2-m3).

The last bits of a row's score can depend on the other rows of its forward pass: on how many they
are and on the row's position among them. MKL sums the rows of a matrix-vector product in different
orders, and torch's sigmoid uses other code for the last few of many numbers. So that a score does
not depend on which pairs are scored together:

- On a CPU, a pass has a single row. Only this excludes the effect on every processor, and it costs
  little, since such passes need no padding (docs/scoring.md).
- A GPU takes as long for one row as for many. There a pass has one of a few padded lengths and, for
  each length, a fixed number of rows, so that the same kernels run with any other rows. Rows that
  need no padding form passes of their own, because transformers drops the attention mask of a pass
  without padding, which selects another kernel.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.schema.scorer import CrossEncoderScorer
from scpo.scoring.pretrained import pretrained

if TYPE_CHECKING:
    import torch

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512)
"""Padded lengths in tokens; a row gets the smallest one that is at least its length."""


class Rows(NamedTuple):
    """Rows of one forward pass.

    Attributes:
        width: Length in tokens, padding included.
        indices: Rows of the request that are in this pass.
        size: Number of rows of the pass. If it is larger than the number of ``indices``, copies of
            the first row fill the pass, and their scores are ignored.
    """

    width: int
    indices: tuple[int, ...]
    size: int

    def fill(self, sequences: Sequence[Sequence[int]], padding: int, device: str) -> torch.Tensor:
        """Tensor ``(size, width)`` of token ids, or of other numbers, one per token.

        Args:
            sequences: The numbers of each of ``indices``.
            padding: Number that fills a sequence up to ``width``.
            device: Device of the tensor.
        """
        import torch

        rows = []
        for sequence in sequences:
            rows.append([*sequence, *[padding] * (self.width - len(sequence))])
        copies = [rows[0]] * (self.size - len(rows))
        return torch.tensor([*rows, *copies], device=device)


def single_rows(lengths: Sequence[int]) -> Iterator[Rows]:
    """One pass without padding for each row of these lengths, in tokens."""
    return (Rows(length, (i,), 1) for i, length in enumerate(lengths))


def canonical_batches(lengths: Sequence[int], rows_at: Callable[[int], int]) -> Iterator[Rows]:
    """Group rows by padded length, and cut each group into passes of the same number of rows.

    A row longer than the largest of ``TOKEN_BUCKETS`` keeps its length.

    Args:
        lengths: Tokens of each row, special tokens included.
        rows_at: Function from a padded length to the number of rows of a pass.
    """
    buckets: dict[tuple[int, bool], list[int]] = {}
    for i, length in enumerate(lengths):
        width = next((width for width in TOKEN_BUCKETS if width >= length), length)
        # Rows that fill their width need no attention mask, and form passes of their own.
        buckets.setdefault((width, length == width), []).append(i)
    for (width, _), indices in sorted(buckets.items()):
        size = rows_at(width)
        for start in range(0, len(indices), size):
            yield Rows(width, tuple(indices[start : start + size]), size)


CACHED_TEXTS = 32_768
"""Number of tokenised texts in the LRU cache."""


class Tokens(NamedTuple):
    """Token ids of a text, without special ones, and whether it was truncated."""

    ids: list[int]
    cut: bool


class TokenPair(NamedTuple):
    """Token ids of a pair with special tokens, and their token type ids."""

    ids: list[int]
    type_ids: list[int]


class Place(NamedTuple):
    """Slot of the tokenizer's template for pairs.

    ``side`` is 0 or 1 for a text, None for the special token with the id ``token``.
    """

    side: int | None
    token: int
    type_id: int


class CrossEncoder:
    """Sigmoid of the logit that a sequence classifier with one label gives to a pair of texts.

    A text is tokenised once and truncated to half of the tokens that a pair may have, not counting
    its special tokens. Pairs are assembled from the tokens by the tokenizer's own template (``<s> a
    </s></s> b </s>`` for XLM-R), so a pair that is short enough is what ``tokenizer(a, b)`` would
    give. On a CPU each pair is a forward pass, so that a score is a function of its pair; on a GPU
    pairs share passes of canonical shapes (``canonical_batches``).

    Args:
        config: The model's name, and the limits of a pair and a pass.
        tokenizer: A fast tokenizer.
        model: A sequence classifier with one label, on its device.
        device: Device of the model.
        share: Whether pairs share passes; None: they do on a GPU.

    Attributes:
        counts: Counts since the start: ``computed`` pairs, and those of them in which a text was
            ``truncated``.
        device: Device of the model.
    """

    def __init__(
        self,
        config: CrossEncoderScorer,
        tokenizer: Any,
        model: Any,
        device: str = "cpu",
        *,
        share: bool | None = None,
    ) -> None:
        self.name = config.identity
        self.counts: Counter[str] = Counter()
        self.device = device
        self._tokenizer = tokenizer
        # This class truncates and pads itself, so that a text is the same in all of its pairs.
        self._tokenizer.backend_tokenizer.no_truncation()
        self._tokenizer.backend_tokenizer.no_padding()
        self._model = model.eval()
        self._takes_types = "token_type_ids" in tokenizer.model_input_names
        self._batch_tokens = config.batch_tokens
        self._share = not _on_cpu(device) if share is None else share
        # Half for each text, even if the other is short, so that truncation does not depend on the
        # pair.
        self._side = (config.max_tokens - tokenizer.num_special_tokens_to_add(pair=True)) // 2
        self._template = _template(tokenizer.backend_tokenizer)
        # A step text occurs in as many pairs as the other trajectory has steps.
        self._tokenise = functools.lru_cache(CACHED_TEXTS)(self._new_tokens)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair, in [0, 1]."""
        encoded = self.encode(pairs)
        self.counts.update(computed=len(pairs), truncated=sum(map(self._is_truncated, pairs)))
        scores = np.zeros(len(pairs), dtype=np.float32)
        for rows in self.batches(encoded):
            scores[list(rows.indices)] = self._forward([encoded[i] for i in rows.indices], rows)
        return scores

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[TokenPair]:
        """Token ids of each pair: both texts, truncated, with the special tokens of a pair."""
        return [self._assemble(self._tokenise(a).ids, self._tokenise(b).ids) for a, b in pairs]

    def _assemble(self, *sides: list[int]) -> TokenPair:
        """Both texts' tokens in the slots of the template."""
        pair = TokenPair([], [])
        for place in self._template:
            ids = [place.token] if place.side is None else sides[place.side]
            pair.ids.extend(ids)
            pair.type_ids.extend([place.type_id] * len(ids))
        return pair

    def batches(self, encoded: Sequence[TokenPair]) -> Iterator[Rows]:
        """Forward passes of these pairs.

        A shared pass has about ``batch_tokens`` tokens, padding included: the longer its pairs, the
        fewer they are.
        """
        lengths = [len(pair.ids) for pair in encoded]
        if self._share:
            return canonical_batches(lengths, lambda width: max(1, self._batch_tokens // width))
        return single_rows(lengths)

    def _is_truncated(self, pair: tuple[str, str]) -> bool:
        return any(self._tokenise(text).cut for text in pair)

    def _new_tokens(self, text: str) -> Tokens:
        ids = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return Tokens(ids[: self._side], cut=len(ids) > self._side)

    def _forward(self, encoded: Sequence[TokenPair], rows: Rows) -> NDArray[np.float32]:
        """Scores of the rows of one pass, without those of the copies that fill it."""
        import torch

        ids = [pair.ids for pair in encoded]
        masks = [[1] * len(pair.ids) for pair in encoded]
        inputs = {
            "input_ids": rows.fill(ids, self._tokenizer.pad_token_id, self.device),
            "attention_mask": rows.fill(masks, 0, self.device),
        }
        if self._takes_types:
            type_ids = [pair.type_ids for pair in encoded]
            inputs["token_type_ids"] = rows.fill(type_ids, 0, self.device)
        with torch.inference_mode():
            # In float32: half precision would round different scores to the same number.
            score_B = torch.sigmoid(self._model(**inputs).logits[:, 0].float())
        scores: NDArray[np.float32] = score_B[: len(encoded)].cpu().numpy()
        return scores


def _template(backend: Any) -> list[Place]:
    """Template with which the tokenizer joins two texts, derived from a pair of short texts.

    The tokenizers library could join every pair, but it also computes all combinations of the
    truncated parts: 65 ms per pair of texts with 3,000 tokens.
    """
    pair = backend.encode("x", "x")
    places: list[Place] = []
    for side, token, type_id in zip(pair.sequence_ids, pair.ids, pair.type_ids, strict=True):
        # Special tokens have no side. Consecutive tokens of one text are one slot.
        if side is None or not places or places[-1].side != side:
            places.append(Place(side, token, type_id))
    return places


def load_cross_encoder(config: CrossEncoderScorer, device: str) -> CrossEncoder:
    """Load tokenizer and model from a local folder or the Hugging Face hub.

    Raises:
        ScorerError: torch, transformers or the model cannot be loaded, or the model does not fit.
    """
    tokenizer, model = pretrained(
        config.path, "AutoModelForSequenceClassification", dtype=_dtype(config, device)
    )
    _check(config, tokenizer, model)
    return CrossEncoder(config, tokenizer, model.to(device), device)


def _on_cpu(device: str) -> bool:
    return device.startswith("cpu")


def _dtype(config: CrossEncoderScorer, device: str) -> str:
    """Type of the weights; half precision on a GPU, as in the paper.

    Raises:
        ScorerError: float16 on a CPU.
    """
    on_cpu = _on_cpu(device)
    if config.dtype == "auto":
        return "float32" if on_cpu else "float16"
    if on_cpu and config.dtype == "float16":
        raise ScorerError(
            f"scorer {config.name!r}: dtype float16 is for GPUs, the device is {device}; allowed "
            "there: auto, float32, bfloat16"
        )
    return config.dtype


def _check(config: CrossEncoderScorer, tokenizer: Any, model: Any) -> None:
    """Check that a loaded model is a reranker that ``CrossEncoder`` supports.

    Raises:
        ScorerError: It is not; the message names what is expected.
    """
    if model.config.num_labels != 1:
        raise ScorerError(
            f"{config.path!r} has {model.config.num_labels} labels: expected a reranker, a "
            "sequence classifier with one"
        )
    # `CrossEncoder` truncates and joins texts with the backend of a fast tokenizer.
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ScorerError(
            f"{config.path!r} has a slow tokenizer: expected one with a tokenizer.json"
        )
    if config.max_tokens > tokenizer.model_max_length:
        raise ScorerError(
            f"scorer {config.name!r}: max_tokens {config.max_tokens} exceeds the "
            f"{tokenizer.model_max_length} tokens that {config.path!r} can read"
        )
