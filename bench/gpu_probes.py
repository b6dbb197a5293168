"""Measurements of the acceptance script that need a process and a GPU of their own.

    python -m bench.gpu_probes attention answer.json scale=paper method=scpo

Each writes what it found as JSON. With ``--dry`` they run on a CPU with a model of a few thousand
parameters and float32; figures are then no figures of a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.recorded import recorded
from scpo.benchmarks import BENCHMARKS
from scpo.memory import GIB, gpu_table, micro_batch
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import RunConfig
from scpo.schema.scorer import CrossEncoderScorer
from scpo.schema.trainer import VerlTrainer
from scpo.scoring import make_scorer
from scpo.shaping.step_text import step_texts
from sweeps.compose.configuration import compose_run

ROWS = 64
PAIRS = 2000
DRY_PAIRS = 200
DRY_TOKENS = 64
RESPONSE = 128  # tokens of a row whose log-probabilities two kinds of attention compute
VERLS_TOKENS = 16  # sampled before and after the engine sleeps

OF_A_MICRO_BATCH = ("activations", "logits", "fragments")  # parts of the memory table

Probe = Callable[[RunConfig, bool], dict[str, Any]]


def sleep(config: RunConfig, dry: bool) -> dict[str, Any]:
    """GPU memory while the rollout engine sleeps and after it wakes, and its answers."""
    engine = _SmallEngine() if dry else _Vllm(config)
    before = engine.answer()
    awake = engine.used_gib()
    engine.sleep()
    asleep = engine.used_gib()
    engine.wake()
    return {
        "awake_gib": awake,
        "asleep_gib": asleep,
        "woken_gib": engine.used_gib(),
        "same_answer": engine.answer() == before,
    }


class _Vllm:
    """vLLM as verl starts it: with sleep mode and a share of the GPU."""

    def __init__(self, config: RunConfig) -> None:
        import vllm

        assert isinstance(config.trainer, VerlTrainer)  # noqa: S101 (bench.gpu_acceptance chose it)
        self._before = _used_gib()
        self._llm = vllm.LLM(
            _path(config), dtype="bfloat16", enable_sleep_mode=True, max_model_len=2048,
            gpu_memory_utilization=config.trainer.verl.engine_memory,
        )  # fmt: skip
        self._sampling = vllm.SamplingParams(temperature=0.0, max_tokens=VERLS_TOKENS)

    def answer(self) -> str:
        (answered,) = self._llm.generate(["You are in the kitchen."], self._sampling)
        return str(answered.outputs[0].text)

    def sleep(self) -> None:
        self._llm.sleep(level=1)

    def wake(self) -> None:
        self._llm.wake_up()

    def used_gib(self) -> float:
        return _used_gib() - self._before


class _SmallEngine:
    """A tiny model whose weights leave memory, for the dry run."""

    def __init__(self) -> None:
        import torch

        self._torch, self._model = torch, _tiny("eager")
        self._kept: dict[str, Any] = {}

    def answer(self) -> list[int]:
        ids = self._torch.arange(1, 9)[None]
        return self._model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()

    def sleep(self) -> None:
        state = self._model.state_dict()
        self._kept = {name: value.numpy().copy() for name, value in state.items()}
        for parameter in self._model.parameters():
            parameter.data = self._torch.empty(0)

    def wake(self) -> None:
        for name, parameter in self._model.named_parameters():
            parameter.data = self._torch.from_numpy(self._kept[name])

    def used_gib(self) -> float:
        return sum(one.nbytes for one in self._model.parameters()) / GIB


def attention(config: RunConfig, dry: bool) -> dict[str, Any]:
    """Log-probabilities of 64 rows with flash-attn and with torch's own attention."""
    kinds = ("eager", "sdpa") if dry else ("flash_attention_2", "sdpa")
    if not dry and not _has_flash_attention():
        return {"not_run": "flash-attn is not installed"}
    found = [_log_probs(config, kind, dry) for kind in kinds]
    difference = np.abs(np.exp(found[0]) - np.exp(found[1]))
    return {
        "rows": ROWS,
        "mean_difference": float(difference.mean()),
        "largest_difference": float(difference.max()),
        "pearson": float(np.corrcoef(found[0], found[1])[0, 1]),
    }


def _log_probs(config: RunConfig, kind: str, dry: bool) -> np.ndarray:
    import torch

    model, device = _model(config, kind, dry)
    generator = torch.Generator().manual_seed(0)
    found = []
    for row in range(ROWS):
        length = DRY_TOKENS if dry else int(200 + 13 * row)
        ids = torch.randint(1, model.config.vocab_size, (1, length), generator=generator).to(device)
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1].float()
        chosen = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[-RESPONSE:, 0]
        found.append(chosen.cpu().numpy())
    return np.concatenate(found)


def longest(config: RunConfig, dry: bool) -> dict[str, Any]:
    """Peak memory of forward and backward over a micro-batch of the longest rows, above the weights'.

    ``measured_gib`` holds the gradients too, here in bfloat16: ``gradients_gib`` of it. The memory
    table counts those, in float32 and shared out by FSDP, among the rest, not in ``estimated_gib``.
    """
    import torch

    # As a run chooses it (trainer.verl.attention=auto).
    fused = not _has_flash_attention()
    model, device = _model(config, "eager" if dry else _attention(), dry)
    rows, tokens = (2, DRY_TOKENS) if dry else _longest_rows(config)
    model.gradient_checkpointing_enable()
    model.train()
    ids = torch.randint(1, model.config.vocab_size, (rows, tokens), device=device)
    before = _peak_gib(device, reset=True)
    log_probs, entropy = _as_verl_computes_them(model, ids, fused=fused, dry=dry)
    (log_probs.mean() + 0.001 * entropy.mean()).backward()
    parts = {} if dry else _update_gib(config, fused=fused)
    return {
        "rows": rows,
        "tokens": tokens,
        "fused": fused,
        "measured_gib": _peak_gib(device) - before,
        "gradients_gib": sum(one.nbytes for one in model.parameters()) / GIB,
        "estimated_gib": sum(parts.get(name, 0.0) for name in OF_A_MICRO_BATCH),
        "rest_of_table_gib": sum(gib for name, gib in parts.items() if name not in OF_A_MICRO_BATCH),
        "gpu_gib": 0.0 if dry else _gpu_gib(),
    }


def _as_verl_computes_them(model: Any, ids: Any, *, fused: bool, dry: bool) -> tuple[Any, Any]:
    """Log-probabilities and entropies; what they keep for the backward pass is what is measured.

    ``fused``: verl's fused kernels, which never hold all logits.
    """
    targets = ids[:, 1:]
    if dry:
        log_prob = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
        return log_prob.gather(-1, targets[..., None]), -(log_prob.exp() * log_prob).sum(-1)
    if fused:
        from verl.utils.experimental.torch_functional import FusedLinearForPPO

        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        return tuple(FusedLinearForPPO()(hidden, model.lm_head.weight, targets))
    from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits

    logits = model(input_ids=ids).logits[:, :-1]
    return logprobs_from_logits(logits=logits, labels=targets), entropy_from_logits(logits)


def _update_gib(config: RunConfig, *, fused: bool) -> dict[str, float]:
    """GiB of the parts of the memory table during an update, with the attention of this machine."""
    assert isinstance(config.trainer, VerlTrainer)  # noqa: S101 (bench.gpu_acceptance chose it)
    attention = "sdpa" if fused else "flash"
    verl = config.trainer.verl.model_copy(update={"attention": attention})
    trainer = config.trainer.model_copy(update={"verl": verl})
    table = gpu_table(config.model_copy(update={"trainer": trainer}), _gpu_gib())
    return {part.name: part.update_gib for part in table}


def _longest_rows(config: RunConfig) -> tuple[int, int]:
    assert isinstance(config.trainer, VerlTrainer)  # noqa: S101 (bench.gpu_acceptance chose it)
    recorded = BENCHMARKS[config.env.benchmark].longest_prompt_tokens
    prompt = min(recorded, config.trainer.max_prompt_tokens)
    return micro_batch(config, config.trainer)[0], prompt + config.trainer.max_response_tokens


def scorer(config: RunConfig, dry: bool) -> dict[str, Any]:
    """Pairs a second in float16 and float32 on recorded rollouts, and flips of theta."""
    shaper = config.trained.shaper
    if shaper is None:
        return {"not_run": "the method has no shaper"}
    pairs = _recorded_pairs(DRY_PAIRS if dry else PAIRS)
    neural = isinstance(config.scorer, CrossEncoderScorer)
    precisions = ("float16", "float32") if neural else ("its own",)
    answers, found = [], {"pairs": len(pairs)}
    for precision in precisions:
        settings = config.scorer
        if isinstance(settings, CrossEncoderScorer):
            settings = settings.model_copy(update={"dtype": precision})
        made = make_scorer(settings, device="cpu" if dry else "cuda")
        made.score(pairs[:8])  # warm
        started = time.perf_counter()
        answers.append(np.asarray(made.score(pairs)))
        found[f"pairs_per_s_{precision}"] = len(pairs) / (time.perf_counter() - started)
    low, high = answers[0], answers[-1]
    found["largest_difference"] = float(np.abs(low - high).max())
    found["share_of_flips"] = float(np.mean((low >= shaper.theta) != (high >= shaper.theta)))
    return found


def _recorded_pairs(count: int) -> list[tuple[str, str]]:
    """Steps of failed and of successful siblings, drawn from recorded training."""
    pairs: list[tuple[str, str]] = []
    for _, batch, _ in recorded():
        texts = step_texts(batch, "action_next_observation")
        for group in np.unique(batch.group_N):
            here = batch.group_N == group
            failed, won = texts[here & ~batch.success_N], texts[here & batch.success_N]
            pairs += [(str(one), str(other)) for one in failed[:20] for other in won[:20]]
    chosen = np.random.default_rng(0).permutation(len(pairs))[:count]
    return [pairs[place] for place in chosen]


def _model(config: RunConfig, kind: str, dry: bool) -> tuple[Any, Any]:
    """The policy with one kind of attention, and its device."""
    import torch

    if dry:
        return _tiny(kind), torch.device("cpu")
    from transformers import AutoModelForCausalLM

    device = torch.device("cuda")
    load = AutoModelForCausalLM.from_pretrained
    model = load(_path(config), dtype=torch.bfloat16, attn_implementation=kind)
    return model.to(device), device


def _tiny(kind: str) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    more = dict(num_key_value_heads=1, vocab_size=100, attn_implementation=kind)
    return Qwen2ForCausalLM(Qwen2Config(**shape, **more))


def _path(config: RunConfig) -> str:
    assert isinstance(config.model, HuggingFaceModel)  # noqa: S101 (bench.gpu_acceptance chose it)
    return config.model.path


def _attention() -> str:
    return "flash_attention_2" if _has_flash_attention() else "sdpa"


def _has_flash_attention() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def _used_gib() -> float:
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) / GIB


def _gpu_gib() -> float:
    import torch

    return float(torch.cuda.mem_get_info()[1] / GIB)


def _peak_gib(device: Any, *, reset: bool = False) -> float:
    import torch

    if device.type == "cpu":
        return 0.0
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return float(torch.cuda.max_memory_allocated() / GIB)


PROBES: dict[str, Probe] = {
    "sleep": sleep,
    "attention": attention,
    "longest": longest,
    "scorer": scorer,
}


def main(words: Sequence[str]) -> None:
    """``<probe> <file> [--dry] <words of the run>``."""
    name, path, *rest = words
    config = compose_run([word for word in rest if word != "--dry"])
    found = PROBES[name](config, "--dry" in rest)
    target = Path(path)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as file:
        json.dump(found, file)
    Path(file.name).rename(target)
    print(json.dumps(found, indent=2), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
