"""What a run at scale=study costs: when its cache is empty, when its games are translated, and when they are known.

    python -m bench.bench_study [--steps 6] [--full]

Each run is a process of its own, as a sweep starts it; seconds are CPU seconds of one core, start
of Python included: on a busy machine the clock would measure its other users. A training step is
the difference of two runs, one of which ends after its first step. All runs of one length must log
the same bytes, so no saving can come from another result.

A sweep forks its runs from one process that has its imports done and its games open. With --full,
the last table is what one more run costs such a sweep: the difference of sweeps of three runs and
of one, halved.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = ("env.validation_panels.valid_seen.games=12", "env.validation_panels.valid_unseen.games=12")
NEW_GOAL_S, KNOWN_GOAL_S, RUN_GOAL_S, MEMORY_GOAL_MB = 0.8, 0.4, 25.0, 1000
WARM_NEW_GOAL_S, WARM_KNOWN_GOAL_S = 32.0, 20.0
CHECKSUMS_GOAL = 1.0  # percent of a step
FULL_STEPS = 40


@dataclass(frozen=True)
class Cost:
    """CPU seconds and peak memory of a process, seconds of its mean training step, and what it logged."""

    seconds: float
    megabytes: float
    step_s: float
    logged: bytes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a run at scale=study costs.")
    parser.add_argument("--steps", type=int, default=6, help="training steps of a run; early ones are the longest")
    parser.add_argument("--full", action="store_true", help="a whole run on known games too: some minutes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _steps(Path(folder), arguments.steps)
    if arguments.full:
        with tempfile.TemporaryDirectory() as folder:
            _full(Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            _warm(Path(folder))


def _steps(folder: Path, steps: int) -> None:
    cache, transitions = folder / "cache", folder / "cache" / "transitions"
    empty = _run(folder, cache, steps)

    def forget() -> None:
        shutil.rmtree(transitions)

    new = _pair(folder, cache, steps, forget)
    known = _pair(folder, cache, steps, lambda: None)
    if not empty.logged == new[1].logged == known[1].logged:
        raise SystemExit("runs with another cache logged something else: nothing is measured")
    step_s = [(long.seconds - short.seconds) / (steps - 1) for short, long in (new, known)]
    print(f"{steps} training steps of 16 x 8 episodes, 24 games validated twice; CPU seconds of one core")
    print("(early steps are the longest: a run's mean, and the goals, with --full)\n")
    print(f"{'':28}{'run':>8}{'a step':>9}{'MB':>7}")
    print(f"{'nothing in the cache':28}{empty.seconds:8.1f}{'':>9}{empty.megabytes:7.0f}")
    print(f"{'games translated':28}{new[1].seconds:8.1f}{step_s[0]:9.2f}{new[1].megabytes:7.0f}")
    print(f"{'transitions known':28}{known[1].seconds:8.1f}{step_s[1]:9.2f}{known[1].megabytes:7.0f}")
    checked = _checksums(folder, cache, steps)
    print(f"\nchecksums of such a run with a checkpoint after every step: {1000 * checked:.0f} ms, ", end="")
    print(f"{100 * checked / (step_s[1] * steps):.2f} % of its steps (goal {CHECKSUMS_GOAL:g})")
    print(f"\nnew / known: {step_s[0] / step_s[1]:.1f}x a step, {new[1].seconds / known[1].seconds:.1f}x a run")


def _pair(folder: Path, cache: Path, steps: int, before: Callable[[], None]) -> tuple[Cost, Cost]:
    """A run of one step and one of all of them, each after ``before``."""
    found = []
    for length in (1, steps):
        before()
        found.append(_run(folder, cache, length))
    return found[0], found[1]


def _checksums(folder: Path, cache: Path, steps: int) -> float:
    """CPU seconds of all checksums of a run, its start included."""
    sums = folder / "checksums"
    _run(folder, cache, steps, "trainer.checkpoint_every=1", command=("-m", "bench.timed_checksums", str(sums)))
    return float(sums.read_text())


def _full(folder: Path) -> None:
    """Whole runs, the validations and the start of Python included; a step's mean is by the clock."""
    cache = folder / "cache"
    empty = _run(folder, cache, FULL_STEPS, small=False)
    shutil.rmtree(cache / "transitions")
    new, known = (_run(folder, cache, FULL_STEPS, small=False) for _ in range(2))
    if not empty.logged == new.logged == known.logged:
        raise SystemExit("runs with another cache logged something else: nothing is measured")
    print(f"\n{FULL_STEPS} steps, 274 games validated five times\n\n{'':28}{'run':>8}{'a step':>9}{'MB':>7}")
    for name, cost in (("nothing in the cache", empty), ("games translated", new), ("transitions known", known)):
        print(f"{name:28}{cost.seconds:8.1f}{cost.step_s:9.2f}{cost.megabytes:7.0f}")
    print(f"{'goals, known':28}{RUN_GOAL_S:8.1f}{KNOWN_GOAL_S:9.2f}{MEMORY_GOAL_MB:7.0f}   (a new step: {NEW_GOAL_S})")


def _warm(folder: Path) -> None:
    """CPU seconds of one more run of a sweep, its games translated before."""
    cache = folder / "cache"
    seconds = {}
    # "new" is last, because it leaves the transitions of one seed only.
    for state in ("translated", "known", "new"):
        if state == "new":
            shutil.rmtree(cache / "transitions")
        long = _sweep(folder, cache, seeds=3)
        if state == "new":
            shutil.rmtree(cache / "transitions")
        seconds[state] = (long - _sweep(folder, cache, seeds=1)) / 2
    print(f"\none more run of a sweep\n\n{'':28}{'run':>8}{'goal':>9}")
    print(f"{'games translated':28}{seconds['new']:8.1f}{WARM_NEW_GOAL_S:9.1f}")
    print(f"{'transitions known':28}{seconds['known']:8.1f}{WARM_KNOWN_GOAL_S:9.1f}")


def _sweep(folder: Path, cache: Path, *, seeds: int) -> float:
    """CPU seconds of a sweep of GiGPO and of all that it started."""
    words = ["+experiment=one", "scale=study", "method=gigpo", f"seeds={list(range(seeds))}"]
    usage = _usage(folder, cache, ("sweep.py",), words)
    return usage.ru_utime + usage.ru_stime


def _run(
    folder: Path, cache: Path, steps: int, *more: str, small: bool = True, command: Sequence[str] = ("train.py",)
) -> Cost:
    """One run of GiGPO from its beginning, in a process of its own."""
    runs = folder / "runs"
    words = ["scale=study", "method=gigpo", f"trainer.steps={steps}", *more]
    words += SMALL if small else ()
    usage = _usage(folder, cache, command, words)
    (metrics,) = runs.glob("*/metrics.jsonl")
    timing = [json.loads(line) for line in metrics.with_name("timing.jsonl").read_text().splitlines()]
    step_s = sum(line.get("timing_s/step", 0.0) for line in timing) / steps
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, step_s, metrics.read_bytes())


def _usage(folder: Path, cache: Path, command: Sequence[str], words: Sequence[str]) -> resource.struct_rusage:
    """What a command used, with all processes that it started; the runs of an earlier one are deleted."""
    runs = folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    machine = ["wandb.mode=disabled", f"machine.runs_dir={runs}", f"machine.cache_dir={cache}", "machine.device=cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command, *words, *machine], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} failed:\n{(folder / 'log').read_text()[-2000:]}")
    return usage


if __name__ == "__main__":
    main()
