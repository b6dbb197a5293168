"""Supervised warm start of a tiny policy on demonstrations, cached for all runs.

Includes the word-level tokenizer, trained on the environment's text.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from scpo.envs.base import DemonstratingEnvironment, Demonstration
from scpo.envs.projection import CLOSE_TAG, OPEN_TAG
from scpo.policies.kept import made_once, start_key, stop_if_asked
from scpo.policies.language_policy import LocalPolicy
from scpo.policies.model import build_tiny, load_pretrained
from scpo.progress import progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

    from scpo.schema.env import EnvConfig
    from scpo.schema.model import TinyModel, WarmStart

logger = logging.getLogger(__name__)

PAD, UNKNOWN = "<pad>", "<unk>"

# A token: an action tag, a lower-case word, a number, or a mark with which a compact prompt
# separates its parts. Everything else (quotes, commas, full stops) is dropped.
WORD = r"</?action>|[a-z]+|\d+|[>|:;]"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per lower-case word, number and mark of ``texts``.

    The closing action tag ends a response. ALFWorld has 274 words where Qwen2.5 has 152,000 tokens,
    which at this model's size would be nearly all of its parameters.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    # Padding has id 0; the tags are tokens even if no demonstration contains them.
    special = [PAD, CLOSE_TAG, UNKNOWN, OPEN_TAG]
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}

    # Ids follow the alphabet, not the counts of a particular sample.
    vocabulary = {
        word: index for index, word in enumerate(special + sorted(words.difference(special)))
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=CLOSE_TAG,
        unk_token=UNKNOWN,
        padding_side="left",
    )


# Fields of the environment's configuration that demonstrations depend on; the key of the cache has
# no others, so that runs which differ in the horizon, for example, share a warm start.
SHOWN = {
    "name",
    "games",
    "catalogue",
    "generated",
    "goals",
    "prompt",
    "history_length",
}

# Raise it when the code below, or that of the demonstrations, changes what comes out.
RECIPE = 1

# Activations of more rows leave the cache of a CPU core: 128 took 1.3 times as long a row.
MICRO_ROWS = 32

# Token ids of a demonstrated step's prompt and response.
Row = tuple[list[int], list[int]]


def warm_started(
    model: TinyModel,
    env: EnvConfig,
    environment: DemonstratingEnvironment,
    cache_dir: Path,
    should_stop: Callable[[], bool],
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the warm-started policy, from the cache or built now.

    Concurrent runs wait for the one that builds it.

    Args:
        model: Shape of the model and settings of its warm start.
        env: The environment's settings, for the key of the cache.
        environment: Gives the demonstrations and its vocabulary.
        cache_dir: The machine's cache, shared by all runs.
        should_stop: Asked between updates, and while another run builds it.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True before it was built.
    """

    def make(folder: Path) -> None:
        _make(model, environment, folder, should_stop)

    folder = made_once(
        cache_dir / "warm_start" / start_key(RECIPE, model, env, SHOWN, environment),
        make,
        should_stop,
    )
    return load_pretrained(str(folder))


def _make(
    model: TinyModel,
    environment: DemonstratingEnvironment,
    folder: Path,
    should_stop: Callable[[], bool],
) -> None:
    """Build a warm-started policy and write model, tokenizer and a report into ``folder``."""
    started = time.monotonic()
    demonstrations = environment.demonstrations(model.warm_start)
    logger.info("%d demonstrations in %.0f s", len(demonstrations), time.monotonic() - started)
    texts = [
        text
        for demonstration in demonstrations
        for text in (*demonstration.prompts, *demonstration.responses)
    ]
    # The whole vocabulary: words of other games than the demonstrated ones must not be unknown.
    tokenizer = train_tokenizer([*environment.vocabulary(), *texts])
    policy = build_tiny(model, tokenizer)
    threads = torch.get_num_threads()

    # Every run of the sweep waits for this, so it takes all cores and not a run's share. The number
    # is restored because sums of the training that follows depend on it.
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        report = imitate(policy, tokenizer, demonstrations, model.warm_start, should_stop)
    finally:
        torch.set_num_threads(threads)

    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "warm_start.json").write_text(
        json.dumps({"seconds": time.monotonic() - started, **report})
    )
    logger.info(
        "warm start in %.0f s, response loss %.3f",
        time.monotonic() - started,
        report["response_loss"],
    )


def imitate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: Sequence[Demonstration],
    config: WarmStart,
    should_stop: Callable[[], bool],
) -> dict[str, float]:
    """Train ``model`` in place: cross-entropy of response tokens, with a small weight on prompts.

    Args:
        model: A freshly initialised causal LM.
        tokenizer: Its tokenizer.
        demonstrations: Successful episodes; their order does not matter, since rows are shuffled.
        config: Updates, batch size, learning rate, weight of the prompts, seed.
        should_stop: Asked before each update.

    Returns:
        ``rows`` demonstrated steps, and ``response_loss``: nats per response token over the last
        100 updates.
    """
    # Only encoding, padding and the forward pass of it are used here; it never samples.
    policy = LocalPolicy(
        model, tokenizer, max_prompt_tokens=10**6, max_response_tokens=1, batch_rows=1
    )
    rows = _encode(policy, demonstrations)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.01,
        fused=True,
    )
    model.train()
    losses = []
    batches = _batches(rows, config)
    for step in progress(range(config.steps), "warm start", "update"):
        stop_if_asked(should_stop)

        # Linear warm-up over 50 updates, then linear decay to a tenth.
        rate = min(1.0, (step + 1) / 50) * (1 - 0.9 * step / config.steps)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate

        optimizer.zero_grad()
        batch = next(batches)
        tokens = sum(len(response) for _, response in batch)
        response_loss = sum(
            _add_gradient(
                policy, batch[start : start + MICRO_ROWS], config.prompt_loss_weight, tokens
            )
            for start in range(0, len(batch), MICRO_ROWS)
        )
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(response_loss)

    return {"rows": float(len(rows)), "response_loss": float(np.mean(losses[-100:]))}


def _encode(policy: LocalPolicy, demonstrations: Sequence[Demonstration]) -> list[Row]:
    """Token ids of all steps; a response ends with the closing tag, which is the end token."""
    prompts = [prompt for demonstration in demonstrations for prompt in demonstration.prompts]
    responses = [
        response for demonstration in demonstrations for response in demonstration.responses
    ]
    answers = policy.tokenizer(responses, add_special_tokens=False)["input_ids"]
    return list(zip(policy.encode(prompts), answers, strict=True))


def _batches(rows: list[Row], config: WarmStart) -> Iterator[list[Row]]:
    """Yield shuffled batches of rows of similar length, without end.

    Each pass visits every row once; the last batch of a block may be smaller.
    """
    rng = np.random.default_rng(config.seed)
    block = 20 * config.batch_size
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(order), block):
            part = sorted(
                # Sorted within a block only: similar lengths share a batch, and the order stays
                # random.
                (rows[row] for row in order[start : start + block]),
                key=lambda row: len(row[0]),
            )
            batches = [
                part[i : i + config.batch_size] for i in range(0, len(part), config.batch_size)
            ]
            for index in rng.permutation(len(batches)):
                yield batches[index]


def _add_gradient(policy: LocalPolicy, rows: list[Row], prompt_weight: float, tokens: int) -> float:
    """Backpropagate these rows' part of the batch's loss per response token.

    Args:
        policy: Gives padding and forward pass.
        rows: A micro-batch.
        prompt_weight: Weight of a prompt's token beside a response's 1.
        tokens: Response tokens of the whole batch.

    Returns:
        Loss of the responses only, in nats: their sum over ``tokens``.
    """
    ids, mask = policy.left_padded([prompt + response for prompt, response in rows])
    # Each position predicts the next token.
    logits = policy.forward(ids, mask).logits[:, :-1]
    target = ids[:, 1:]
    entropy = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), reduction="none"
    )
    # Rows are padded on the left, so that all responses end in the last column.
    place = torch.arange(target.shape[1], device=ids.device)[None]
    lengths = torch.tensor([len(response) for _, response in rows], device=ids.device)[:, None]
    is_response = (place >= target.shape[1] - lengths).float()
    # Left padding has weight 0, also where the target is the first token of the prompt.
    weight = is_response + prompt_weight * (mask[:, 1:] * mask[:, :-1]) * (1 - is_response)
    entropy = entropy.view_as(weight)
    # Divided by the batch's response tokens, so that micro-batches add up to one mean.
    ((entropy * weight).sum() / tokens).backward()
    return float((entropy.detach() * is_response).sum() / tokens)
