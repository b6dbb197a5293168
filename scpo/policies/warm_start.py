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

# A token is an action tag, a lower-case word, a number, or one of the marks that separate the parts
# of a compact prompt. Everything else (quotes, commas, full stops) is dropped.
WORD = r"</?action>|[a-z]+|\d+|[>|:;]"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per lower-case word, number and mark of ``texts``.

    The closing action tag ends a response. ALFWorld has 274 words. With the 152,000 tokens of
    Qwen2.5, nearly all parameters of so small a model would be embeddings.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    # The padding token has id 0. The tags are tokens even if no text contains them.
    special = [PAD, CLOSE_TAG, UNKNOWN, OPEN_TAG]
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}

    # Ids are in alphabetical order, so that they do not depend on the counts in a sample.
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


# Fields of the environment's configuration that demonstrations depend on. The key of the cache
# contains no other fields, so that runs with different horizons, for example, share a warm start.
SHOWN = {
    "name",
    "games",
    "catalogue",
    "generated",
    "goals",
    "prompt",
    "history_length",
}

# Version of the cached weights: raise it when a change to this file or to the demonstrations gives
# other weights.
RECIPE = 1

# Rows of a micro-batch whose activations fit the cache of a CPU core: with 128 rows, a row took 1.3
# times as long.
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
        should_stop: Called between updates, and while another run builds the policy; True stops.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True before the policy was built.
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
    texts: list[str] = []
    for demonstration in demonstrations:
        texts += [*demonstration.prompts, *demonstration.responses]
    # The environment's whole vocabulary, so that words of other games are known, too.
    tokenizer = train_tokenizer([*environment.vocabulary(), *texts])
    policy = build_tiny(model, tokenizer)
    threads = torch.get_num_threads()

    # All cores, not only the run's share, because every run of the sweep waits for this. The number
    # of threads is restored, because the sums of the following training depend on it.
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
        should_stop: Called before each update; True stops the training.

    Returns:
        ``rows``: number of demonstrated steps; ``response_loss``: nats per response token, mean
        over the last 100 updates.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True.
    """
    # Only encodes, pads and runs forward passes here; the limits for sampling are not used.
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
        response_loss = 0.0
        for start in range(0, len(batch), MICRO_ROWS):
            micro_batch = batch[start : start + MICRO_ROWS]
            response_loss += _add_gradient(policy, micro_batch, config.prompt_loss_weight, tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(response_loss)

    return {"rows": float(len(rows)), "response_loss": float(np.mean(losses[-100:]))}


def _encode(policy: LocalPolicy, demonstrations: Sequence[Demonstration]) -> list[Row]:
    """Token ids of all steps; a response ends with the closing tag, which is the end token."""
    prompts: list[str] = []
    responses: list[str] = []
    for demonstration in demonstrations:
        prompts += demonstration.prompts
        responses += demonstration.responses
    answers = policy.tokenizer(responses, add_special_tokens=False)["input_ids"]
    return list(zip(policy.encode(prompts), answers, strict=True))


def _batches(rows: list[Row], config: WarmStart) -> Iterator[list[Row]]:
    """Yield shuffled batches of rows of similar length, endlessly.

    Each pass visits every row once; the last batch of a block may be smaller.
    """
    rng = np.random.default_rng(config.seed)
    block = 20 * config.batch_size
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(order), block):
            # Sorted only within a block, so that rows of similar length share a batch while the
            # order remains random.
            part = [rows[index] for index in order[start : start + block]]
            part.sort(key=lambda row: len(row[0]))
            batches = [
                part[i : i + config.batch_size] for i in range(0, len(part), config.batch_size)
            ]
            for index in rng.permutation(len(batches)):
                yield batches[index]


def _add_gradient(policy: LocalPolicy, rows: list[Row], prompt_weight: float, tokens: int) -> float:
    """Backpropagate the part of the batch's loss that these rows contribute.

    Args:
        policy: Pads the rows and runs the forward pass.
        rows: A micro-batch.
        prompt_weight: Weight of a prompt token; a response token has weight 1.
        tokens: Number of response tokens of the whole batch.

    Returns:
        Cross-entropy of the response tokens in nats, summed and divided by ``tokens``.
    """
    ids, mask = policy.left_padded([prompt + response for prompt, response in rows])
    # Each position predicts the next token.
    logits = policy.forward(ids, mask).logits[:, :-1]
    target = ids[:, 1:]
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), reduction="none"
    ).view_as(target)
    # Rows are padded on the left, so that all responses end in the last column.
    place = torch.arange(target.shape[1], device=ids.device)[None]
    lengths = torch.tensor([len(response) for _, response in rows], device=ids.device)[:, None]
    is_response = (place >= target.shape[1] - lengths).float()
    # Left padding has weight 0, also where the target is the first token of the prompt.
    is_prompt = mask[:, 1:] * mask[:, :-1] * (1 - is_response)
    weight = is_response + prompt_weight * is_prompt
    # Divided by the batch's response tokens, so that micro-batches add up to one mean.
    ((loss * weight).sum() / tokens).backward()
    return float((loss.detach() * is_response).sum() / tokens)
