"""Models of the local trainer: built from config, or loaded by path or hub name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from scpo.errors import ConfigError, first_line
from scpo.records.memory import GIB, free_gib

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from scpo.schema.model import HuggingFaceModel, TinyModel


def pick_device(name: str) -> torch.device:
    """Resolve ``auto``: CUDA if available.

    Raises:
        ConfigError: CUDA was requested and is not available.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "machine.device=cuda, but torch sees no CUDA device; use machine.device=auto or cpu"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def build_tiny(config: TinyModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A freshly initialised causal LM of the paper's architecture (Qwen2.5), in float32.

    Args:
        config: Shape of the model, and the seed of its first weights.
        tokenizer: A trained tokenizer; the size of its vocabulary is the number of embeddings,
            which the output layer shares.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        intermediate_size=config.intermediate_size,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=config.initializer_range,
    )
    # Initialisation draws from the global generator; `fork_rng` restores its state.
    with torch.random.fork_rng():
        torch.manual_seed(config.init_seed)
        return Qwen2ForCausalLM(shape)


def load_pretrained(
    path: str, dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load model and tokenizer from a folder or a hub name.

    Raises:
        ConfigError: They cannot be loaded.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    try:
        # For our word-level tokenizer, AutoTokenizer would use the class of the model type, which
        # is byte-level for qwen2.
        loader = PreTrainedTokenizerFast if _has_plain_tokenizer(path) else AutoTokenizer
        tokenizer = loader.from_pretrained(path, padding_side="left")
        return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)), tokenizer
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(
            f"model.path={path!r}: no Hugging Face causal LM could be loaded "
            f"({first_line(error)}); give a folder with config.json, weights and "
            "tokenizer, or a hub name that this machine can reach"
        ) from error


def _has_plain_tokenizer(path: str) -> bool:
    """Return True for a folder whose tokenizer was saved as a plain ``PreTrainedTokenizerFast``.

    transformers 5 writes the name of this class as ``TokenizersBackend``.
    """
    config = Path(path) / "tokenizer_config.json"
    return (
        config.is_file()
        and json.loads(config.read_text()).get("tokenizer_class") == "TokenizersBackend"
    )


def load_huggingface(
    config: HuggingFaceModel, *, trained: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the policy of ``conf/model/<name>.yaml`` with ``kind: huggingface``.

    ``trained``: load the weights in float32 for any configured type, because a step of 1e-6 changes
    only 2 % of bfloat16 weights; recompute activations in the backward pass; switch dropout off.
    """
    model, tokenizer = load_pretrained(config.path, "float32" if trained else config.dtype)
    if trained:
        # Recomputing needs training mode, which would also switch dropout on, and its noise would
        # make the log-probabilities of the update differ from those of the rollout. Models have
        # dropout as modules or as numbers in their configuration.
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        for name in ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop"):
            if getattr(model.config, name, None):
                setattr(model.config, name, 0.0)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model, tokenizer


def memory_gib(device: torch.device) -> float:
    """Total memory of a GPU, or free memory of the machine, in GiB; infinite if it is unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / GIB
    free = free_gib()
    return math.inf if free is None else free
