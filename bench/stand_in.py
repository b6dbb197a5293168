"""A policy and a reranker of the paper's sizes where no model hub is reachable, for ``bench.gpu_acceptance``.

    python -m bench.stand_in policy FOLDER --seconds 900   # two CPU cores, or less on a GPU
    python -m bench.stand_in reranker FOLDER
    python -m bench.gpu_acceptance scale=paper method=scpo model.path=FOLDER scorer.path=FOLDER env.games=generated

The policy computes what a small model computes that was trained on walkthroughs of generated ALFWorld games: it
answers verl-agent's prompt in its format, with about 60 tokens, and ends. The small model's weights stand in the
first coordinates of a model of Qwen2.5-1.5B's shape, and zeros in the others. Memory, lengths of prompts and
responses, and what a step costs are then those of the real size; what it learns is not.

The reranker has random weights in the shape of bge-reranker-v2-m3: its speed is real, its scores mean nothing.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from bench.rerankers import XLM_R_LARGE, Weights
from scpo.envs import AlfworldEnvironment
from scpo.rollout import group_slots
from sweeps.compose.configuration import compose_run

# Qwen2.5-1.5B-Instruct's config.json.
LARGE = dict(
    vocab_size=151_936, hidden_size=1536, num_hidden_layers=28, intermediate_size=8960, num_attention_heads=12,
    num_key_value_heads=2, max_position_embeddings=32_768, rope_theta=1e6, rms_norm_eps=1e-6,
    tie_word_embeddings=True,
)  # fmt: skip
# As many key-value heads as LARGE has, one query head for each.
SMALL = LARGE | dict(
    hidden_size=128, num_hidden_layers=4, intermediate_size=256, num_attention_heads=2, head_dim=64,
    initializer_range=0.05,
)  # fmt: skip
GAMES = 300
VOCABULARY = 2000
TEMPLATE = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END, PADDING = "<|im_end|>", "<|endoftext|>"
REASON = (
    "Let me look at what I know and at the admissible actions of the current situation. This is what has to be done "
    "next with what I see and hold here. So I choose to"
)

# Logits of tokens that the tokenizer does not have: their embedding and the final norm's weight in the first unused
# coordinate, which is small and positive for the others.
ABSENT, PRESENT, MARK = -4000.0, 0.02, 20.0

Row = tuple[list[int], list[int]]
"""Token ids of a prompt and of its response."""


def demonstrated(games: int) -> Iterator[tuple[str, str]]:
    """Prompts of verl-agent and responses that follow the walkthroughs of generated games."""
    config = compose_run(["scale=paper", "env.games=generated", f"env.train_panel.games={games}"]).env
    environment = AlfworldEnvironment(config, cache_dir=None)
    for slot in group_slots(environment.panel("train").tasks, 1):
        episode = environment.start(slot.task, slot.sibling)
        for command in episode.opened.game.walkthrough:
            if episode.done:
                break
            response = f"<think>{REASON} {command}.</think>\n<action>{command}</action>"
            yield episode.prompt(), response
            episode.step(response)


def train_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with Qwen2's way of splitting, so that transformers may load it as a tokenizer of that kind."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    # Of tokenizer.json of Qwen2.5.
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [PADDING, "<|im_start|>", END]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*texts, TEMPLATE], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PADDING, padding_side="left")
    fast.chat_template = TEMPLATE
    return fast


def rows_of(tokenizer: PreTrainedTokenizerFast, steps: Sequence[tuple[str, str]]) -> list[Row]:
    """Token ids of the demonstrated steps; a response ends with the token that ends a turn."""
    rows = []
    for prompt, response in steps:
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        rows.append((prompt_ids, tokenizer(response + END, add_special_tokens=False)["input_ids"]))
    return rows


def small_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """An untrained model of ``SMALL`` with this tokenizer's vocabulary."""
    ends = dict(bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SMALL | ends | dict(vocab_size=len(tokenizer))))


def train(model: Qwen2ForCausalLM, rows: Sequence[Row], seconds: float, *, batch: int = 8) -> float:
    """Train on responses, and a tenth as much on prompts, for so long; returns the last loss of a response."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    rng, started, step, loss_of_response = random.Random(0), time.monotonic(), 0, math.nan
    while (left := 1 - (time.monotonic() - started) / seconds) > 0:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, step / 30) * (0.1 + 0.9 * left)
        chosen = rng.sample(rows, batch)
        width = max(len(prompt) + len(response) for prompt, response in chosen)
        ids, weight = torch.zeros(batch, width, dtype=torch.long), torch.zeros(batch, width)
        for place, (prompt, response) in enumerate(chosen):
            end = len(prompt) + len(response)
            ids[place, :end] = torch.tensor(prompt + response)
            weight[place, : len(prompt)], weight[place, len(prompt) : end] = 0.1, 1.0
        ids, weight = ids.to(device), weight.to(device)[:, 1:]

        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        ((loss * weight).sum() / weight.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss_of_response = loss.detach()[weight == 1.0].mean().item()
        if step % 50 == 0:
            print(f"step {step}: loss of a response {loss_of_response:.3f}", flush=True)
    model.cpu().eval()
    return loss_of_response


@torch.no_grad()
def enlarged(small: Qwen2ForCausalLM, large: Qwen2Config) -> Qwen2ForCausalLM:
    """A model of another shape that computes the same function of the small one's tokens.

    Args:
        small: One query head for each of its key-value heads.
        large: At least as large in everything, with as many key-value heads, heads whose length is a
            multiple of the small ones', and one coordinate more.

    Returns:
        The model in float32. Tokens that the small one does not have are never sampled.
    """
    given = small.config
    width, used = given.hidden_size, given.vocab_size
    head, large_head = given.head_dim, large.hidden_size // large.num_attention_heads
    model = Qwen2ForCausalLM(large)
    for parameter in model.parameters():
        parameter.zero_()

    def place(into: torch.Tensor, weight: torch.Tensor) -> None:
        into[tuple(slice(size) for size in weight.shape)] = weight

    # RMSNorm divides by the root of a mean, here over more coordinates, of which all others are 0.
    of_norms = math.sqrt(width / large.hidden_size)
    embedding = model.model.embed_tokens.weight
    place(embedding, small.model.embed_tokens.weight)
    embedding[:used, width], embedding[used:, width] = PRESENT, ABSENT
    place(model.model.norm.weight, small.model.norm.weight * of_norms)
    model.model.norm.weight[width] = MARK

    # Coordinate i of half a head turns by base^(-i / half): every n-th of a head n times as long turns alike.
    half = torch.arange(head // 2) * (large_head // head)
    within = torch.cat([half, half + large_head // 2])
    queries_of_a_key = large.num_attention_heads // large.num_key_value_heads
    for layer, source in zip(model.model.layers, small.model.layers, strict=False):
        place(layer.input_layernorm.weight, source.input_layernorm.weight * of_norms)
        place(layer.post_attention_layernorm.weight, source.post_attention_layernorm.weight * of_norms)
        for name in ("gate_proj", "up_proj", "down_proj"):
            place(getattr(layer.mlp, name).weight, getattr(source.mlp, name).weight)
        for number in range(given.num_key_value_heads):
            taken = slice(number * head, (number + 1) * head)
            key = number * large_head + within
            query = number * queries_of_a_key * large_head + within
            # Scores are divided by the root of the head's length.
            scale = math.sqrt(large_head / head)
            for name, rows, factor in (("q_proj", query, scale), ("k_proj", key, 1.0), ("v_proj", key, 1.0)):
                into, weights = getattr(layer.self_attn, name), getattr(source.self_attn, name)
                into.weight[rows, :width] = weights.weight[taken] * factor
                into.bias[rows] = weights.bias[taken] * factor
            layer.self_attn.o_proj.weight[:width, query] = source.self_attn.o_proj.weight[:, taken]
    return model.eval()


def write_policy(folder: Path, seconds: float, games: int = GAMES) -> None:
    """Train a small policy and write it in the large shape, in bfloat16, with its tokenizer."""
    steps = list(demonstrated(games))
    tokenizer = train_tokenizer([text for step in steps for text in step])
    small = small_model(tokenizer)
    loss = train(small, rows_of(tokenizer, steps), seconds)
    ends = dict(bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    enlarged(small, Qwen2Config(**LARGE | ends)).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: policy of {len(steps)} demonstrated steps, loss of a response {loss:.3f}")


def write_reranker(folder: Path) -> None:
    """Write a reranker of XLM-R-large's shape with random weights, in float32."""
    weights = Weights.random(XLM_R_LARGE, "cpu")
    weights.model.save_pretrained(folder)
    weights.tokenizer.save_pretrained(folder)
    print(f"{folder}: reranker with random weights")


def main() -> None:
    """Write the model that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("policy", "reranker"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=900.0, help="time to train the policy (default: 900)")
    arguments = parser.parse_args()
    if arguments.model == "policy":
        write_policy(arguments.folder, arguments.seconds)
    else:
        write_reranker(arguments.folder)


if __name__ == "__main__":
    main()
