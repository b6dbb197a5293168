"""What only a GPU can show, in one go: run it once, send back the file that it writes.

    python -m bench.gpu_acceptance scale=paper method=scpo                     # 4 x A800, 1.5B
    python -m bench.gpu_acceptance scale=paper method=scpo trainer=verl_1gpu   # one card of 80 GB
    python -m bench.gpu_acceptance --dry                                       # on a CPU: the same with a small policy

Without the official games: env.games=generated. It trains two steps, samples each GPU's memory meanwhile, scores a
fixed sample of pairs in float16 and float32, and compares what it finds with what the documents expect or estimate.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scpo.errors import ConfigError, first_line
from scpo.installed import installed_version
from scpo.memory import gpu_table, needed_gib
from scpo.preflight import SAMPLE
from scpo.records.memory import driver_version, installed_gpus, used_gib
from scpo.records.provenance import REPOSITORY
from scpo.schema import CrossEncoderScorer, RunConfig
from scpo.scoring import make_scorer
from sweeps.compose.configuration import compose_run

STEPS = 2
PACKAGES = ("torch", "vllm", "transformers", "verl", "flash-attn", "ray")
DRY = ("scale=study", "method=scpo", "trainer.groups=2", "trainer.group_size=2", "env.train_panel.games=4")
FEW = ("wandb.mode=disabled", f"trainer.steps={STEPS}", "trainer.validation.every=50", "trainer.probe_every=50")
PANELS = ("valid_seen", "valid_unseen")
REPORT = "gpu_acceptance.json"
POLL_S = 1.0


def main(words: Sequence[str]) -> int:
    """Run everything, write the report and print it."""
    dry = "--dry" in words
    chosen = [*(DRY if dry else [word for word in words if word != "--dry"]), *FEW]
    chosen += [f"env.validation_panels.{panel}.games=8" for panel in PANELS if "env=webshop" not in chosen]
    try:
        config = compose_run(chosen)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as runs:
        trained = train(chosen, Path(runs))
    report = {
        "words": chosen,
        "machine": machine(),
        "training": trained,
        "scorer": _or_why_not(score, config),
        "estimated_gib": _estimate(config),
    }
    Path(REPORT).write_text(json.dumps(report, indent=2) + "\n")
    for name, found, expected in checks(report):
        print(f"{name:42} {found!s:24} {expected}")
    print(f"written: {REPORT}")
    return int(trained["exit"] != 0)


def machine() -> dict[str, Any]:
    """Packages, driver and GPUs."""
    versions = {name: installed_version(name) for name in PACKAGES}
    return {"packages": versions, "driver": driver_version(), "gpus": installed_gpus()}


def train(words: Sequence[str], runs: Path) -> dict[str, Any]:
    """Two steps in a process of their own: exit status, last words, metrics, seconds, and each GPU's peak in GiB."""
    command = [sys.executable, str(REPOSITORY / "train.py"), *words, f"machine.runs_dir={runs}"]
    started = time.monotonic()
    with peaks() as gib:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    found = {"exit": done.returncode, "seconds": time.monotonic() - started, "peak_gib": gib}
    found |= {"last_words": (done.stdout + done.stderr).splitlines()[-30:]}
    for name in ("metrics", "timing"):
        lines = [json.loads(line) for path in runs.glob(f"*/{name}.jsonl") for line in path.read_text().splitlines()]
        found[name] = lines[-1] if lines else {}
    return found


@contextmanager
def peaks() -> Iterator[list[float]]:
    """The most memory of each GPU that was in use while this was open, the scorer's process and the engine included."""
    gib: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            gib[:] = [max(pair) for pair in itertools.zip_longest(gib, used_gib().values(), fillvalue=0.0)]

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield gib
    finally:
        over.set()
        thread.join()


def score(config: RunConfig) -> dict[str, Any]:
    """Seconds for a sample of pairs in each precision, their largest difference, how often theta decides otherwise."""
    pairs = list(itertools.permutations(SAMPLE, 2))
    precisions = ("float16", "float32") if isinstance(config.scorer, CrossEncoderScorer) else ("as it is",)
    answers, found = {}, {"pairs": len(pairs)}
    for precision in precisions:
        settings = config.scorer
        if isinstance(settings, CrossEncoderScorer):
            settings = settings.model_copy(update={"dtype": precision})
        scorer = make_scorer(settings)
        scorer.score(pairs[:1])  # warm
        started = time.perf_counter()
        answers[precision] = np.asarray(scorer.score(pairs))
        found[f"{precision}_s"] = time.perf_counter() - started
    shaper = config.trained.shaper
    if len(answers) == 2 and shaper is not None:
        low, high = answers.values()
        found["largest_difference"] = float(np.abs(low - high).max())
        found["theta_flips"] = int(np.sum((low >= shaper.theta) != (high >= shaper.theta)))
    return found


def _or_why_not(measure: Callable[[RunConfig], dict[str, Any]], config: RunConfig) -> dict[str, Any]:
    """What it found; what it died of instead, for the rest of the report is worth sending back all the same."""
    try:
        return measure(config)
    except Exception as error:  # noqa: BLE001 (no model, no memory, another driver: whatever it is, it is the finding)
        return {"failed": f"{type(error).__name__}: {first_line(error)}"}


def _estimate(config: RunConfig) -> float:
    gpus = installed_gpus()
    return needed_gib(gpu_table(config, min((gib for _, gib in gpus), default=80.0)))


def checks(report: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """What was found, and what is expected of it."""
    training, metrics = report["training"], report["training"]["metrics"]
    yield "exit status", training["exit"], "0"
    yield "step reached", metrics.get("step"), str(STEPS)
    yield (
        "peak GiB of each GPU",
        [round(gib, 1) for gib in training["peak_gib"]],
        f"{report['estimated_gib']:.0f} estimated",
    )
    yield "mean |p rollout - p update|", metrics.get("training/rollout_probs_diff_mean"), "below 0.02"
    yield "their Pearson correlation", metrics.get("training/rollout_actor_probs_pearson_corr"), "above 0.99"
    yield "descents", metrics.get("credit/descents"), "0 to 3"
    yield "smallest mini-batch", metrics.get("train/smallest_mini_batch"), "near trainer.mini_batch_rows"
    for name, seconds in sorted(training["timing"].items()):
        if name.startswith("timing_s/"):
            yield f"seconds of {name.removeprefix('timing_s/')}", round(seconds, 1), ""
    for name, value in report["scorer"].items():
        yield f"scorer: {name}", value, "0 flips" if name == "theta_flips" else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
