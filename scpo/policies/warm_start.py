"""Supervised warm start of a tiny policy on demonstrations, cached by what determines it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from scpo.envs.base import DemonstratingEnvironment, Demonstration
from scpo.policies.kept import made_once, start_key, stop_if_asked
from scpo.policies.language_policy import LocalPolicy
from scpo.policies.model import build_tiny, load_pretrained
from scpo.policies.word_tokenizer import train_tokenizer
from scpo.progress import progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from scpo.schema import EnvConfig, TinyModel, WarmStart

logger = logging.getLogger(__name__)

SHOWN = {"name", "games", "catalogue", "generated", "goals", "prompt", "history_length"}  # of env, in demonstrations
RECIPE = 1  # raise it when the code below, or that of the demonstrations, changes what comes out
MICRO_ROWS = 32  # activations of more rows leave the cache of a CPU core: 128 took 1.3 times as long a row
Row = tuple[list[int], list[int]]


def warm_started(
    model: TinyModel,
    env: EnvConfig,
    environment: DemonstratingEnvironment,
    cache_dir: Path,
    should_stop: Callable[[], bool],
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The warm-started policy, from the cache or made now; concurrent runs wait for the one that makes it.

    Raises:
        KeyboardInterrupt: ``should_stop`` said yes before it was there.
    """

    def make(folder: Path) -> None:
        _make(model, environment, folder, should_stop)

    folder = made_once(cache_dir / "warm_start" / start_key(RECIPE, model, env, SHOWN, environment), make, should_stop)
    return load_pretrained(str(folder))


def _make(
    model: TinyModel, environment: DemonstratingEnvironment, folder: Path, should_stop: Callable[[], bool]
) -> None:
    started = time.monotonic()
    demonstrations = environment.demonstrations(model.warm_start)
    logger.info("%d demonstrations in %.0f s", len(demonstrations), time.monotonic() - started)
    texts = [text for demonstration in demonstrations for text in (*demonstration.prompts, *demonstration.responses)]
    tokenizer = train_tokenizer([*environment.vocabulary(), *texts])
    policy = build_tiny(model, tokenizer)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)  # every run of the sweep waits for this
    try:
        report = imitate(policy, tokenizer, demonstrations, model.warm_start, should_stop)
    finally:
        torch.set_num_threads(threads)
    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "warm_start.json").write_text(json.dumps({"seconds": time.monotonic() - started, **report}))
    logger.info("warm start in %.0f s, response loss %.3f", time.monotonic() - started, report["response_loss"])


def imitate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: Sequence[Demonstration],
    config: WarmStart,
    should_stop: Callable[[], bool],
) -> dict[str, float]:
    """Train ``model`` in place: cross-entropy of response tokens, plus a small weight on the prompt's tokens.

    Returns:
        ``rows`` demonstrated steps, and ``response_loss``: nats per response token over the last 100 updates.
    """
    policy = LocalPolicy(model, tokenizer, max_prompt_tokens=10**6, max_response_tokens=1, batch_rows=1)
    rows = _encode(policy, demonstrations)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    model.train()
    losses = []
    batches = _batches(rows, config)
    for step in progress(range(config.steps), "warm start", "update"):
        stop_if_asked(should_stop)
        rate = min(1.0, (step + 1) / 50) * (1 - 0.9 * step / config.steps)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate
        optimizer.zero_grad()
        batch = next(batches)
        tokens = sum(len(response) for _, response in batch)
        response_loss = sum(
            _add_gradient(policy, batch[start : start + MICRO_ROWS], config.prompt_loss_weight, tokens)
            for start in range(0, len(batch), MICRO_ROWS)
        )
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(response_loss)
    return {"rows": float(len(rows)), "response_loss": float(np.mean(losses[-100:]))}


def _encode(policy: LocalPolicy, demonstrations: Sequence[Demonstration]) -> list[Row]:
    prompts = [prompt for demonstration in demonstrations for prompt in demonstration.prompts]
    responses = [response for demonstration in demonstrations for response in demonstration.responses]
    answers = policy.tokenizer(responses, add_special_tokens=False)["input_ids"]
    return list(zip(policy.encode(prompts), answers, strict=True))


def _batches(rows: list[Row], config: WarmStart) -> Iterator[list[Row]]:
    """Shuffled batches of rows of similar length, for ever."""
    rng = np.random.default_rng(config.seed)
    block = 20 * config.batch_size
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(order), block):
            part = sorted((rows[row] for row in order[start : start + block]), key=lambda row: len(row[0]))
            batches = [part[i : i + config.batch_size] for i in range(0, len(part), config.batch_size)]
            for index in rng.permutation(len(batches)):
                yield batches[index]


def _add_gradient(policy: LocalPolicy, rows: list[Row], prompt_weight: float, tokens: int) -> float:
    """Backpropagate these rows' part of the batch's loss per response token; returns that of the responses alone."""
    ids, mask = policy.left_padded([prompt + response for prompt, response in rows])
    logits = policy.forward(ids, mask).logits[:, :-1]
    target = ids[:, 1:]
    entropy = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    place = torch.arange(target.shape[1], device=ids.device)[None]
    lengths = torch.tensor([len(response) for _, response in rows], device=ids.device)[:, None]
    is_response = (place >= target.shape[1] - lengths).float()
    weight = is_response + prompt_weight * (mask[:, 1:] * mask[:, :-1]) * (1 - is_response)
    entropy = entropy.view_as(weight)
    ((entropy * weight).sum() / tokens).backward()
    return float((entropy.detach() * is_response).sum() / tokens)
