"""How fast a sweep is described and looked at: the paper's whole matrix, a second call, `status` and `verify` of 300.

    python -m bench.bench_sweeps

Composing is what costs time. A sample of the same runs is composed one by one as well, each reading
conf/ anew, as a process that runs one run does; their ids must be in the matrix, so the ratio
cannot come from a shortcut. Seconds are CPU seconds of one thread: on a busy machine the clock
would measure its other users.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.random_walks import best_of
from scpo.records import RunFolder, State, run_config, run_folders, verify
from scpo.records.files import file_sum
from scpo.records.identity import run_id
from scpo.records.logs import to_line
from scpo.schema.run import RunConfig
from sweeps import dispatch
from sweeps.compose import configuration as compose
from sweeps.compose.matrix import expand
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.status import statuses
from tests.support.whole_logs import whole

MATRIX_GOAL_S, SECOND_CALL_GOAL_S, LOOK_GOAL_S = 10.0, 2.0, 2.0
STEPS, METRICS = 40, 60  # lines of a study's run, and numbers in each
PAPER = ("main_table", "ablation", "sweep_theta", "sweep_lambda", "cost")
SAMPLE = [
    ["scale=paper", f"env={env}", f"model={model}", f"method={method}"]
    for env, model, method in itertools.product(
        ("alfworld", "webshop"), ("qwen2_5_1_5b", "qwen2_5_7b"), ("scpo", "gigpo", "grpo")
    )
]

_timed = partial(best_of, 1, clock=time.process_time)


def main() -> None:
    """Measure and print."""
    compose.compose_run([])  # what is imported once belongs to no run
    _forget()
    seconds, runs = _timed(lambda: {run for name in PAPER for run in expand(name, ["scale=paper"]).runs})
    alone_s = sum(_timed(lambda words=words: _alone(words, runs))[0] for words in SAMPLE) / len(SAMPLE)
    print(f"all that the paper ran, {len(runs)} runs: {seconds:.2f} s  (goal for over 100 runs: {MATRIX_GOAL_S} s)")
    print(f"one run by itself: {alone_s:.3f} s; in the matrix: {alone_s * len(runs) / seconds:.0f}x faster")
    with tempfile.TemporaryDirectory() as folder:
        seconds, count = _second_call(Path(folder))
    print(f"a second call on {count} finished runs: {seconds:.2f} s  (goal for 200 runs: {SECOND_CALL_GOAL_S} s)")
    with tempfile.TemporaryDirectory() as folder:
        _show_looks(Path(folder))


def _forget() -> None:
    compose.compose_files.cache_clear()


def _alone(words: list[str], runs: set[str]) -> None:
    _forget()
    name = run_id(compose.compose_run(words))
    if name not in runs:
        raise SystemExit(f"{name} is not in the matrix: nothing is measured")


def _second_call(runs_dir: Path) -> tuple[float, int]:
    """What ``sweep.py`` does when all is done already: expand, look, decide."""
    words = [f"machine.runs_dir={runs_dir}", f"seeds={[*range(50)]}"]
    for config in expand("ablation", words).runs.values():
        _finished(config)
    _forget()
    quiet = Console(file=open(os.devnull, "w"))  # noqa: SIM115 (for the life of this process)

    def call() -> int:
        return dispatch.dispatch(quiet, expand("ablation", words), Path("train.py"))

    seconds, code = _timed(call)
    if code != 0:
        raise SystemExit("the second call found something to do: nothing is measured")
    return seconds, len(run_folders.list_runs(runs_dir))


def _show_looks(runs_dir: Path) -> None:
    """`status` and `verify` of 300 finished runs, and what their checksums cost of it."""
    words = [f"machine.runs_dir={runs_dir}", f"seeds={[*range(75)]}", "scale=study", f"trainer.steps={STEPS}"]
    folders = [_finished(config) for config in expand("ablation", words).runs.values()]
    observer = Observer(Slurm())
    looks: dict[str, Callable[[], Any]] = {
        "status": lambda: statuses(run_folders.list_runs(runs_dir), observer),
        "verify": lambda: [
            problem for folder in run_folders.list_runs(runs_dir) for problem in verify.problems(folder)
        ],
    }
    for name, look in looks.items():
        seconds, found = _timed(look)
        if name == "verify" and found:
            raise SystemExit(f"verify finds {found[0]}: nothing is measured")
        print(f"{name} of {len(folders)} finished runs: {seconds:.2f} s  (goal for 300: {LOOK_GOAL_S} s)")
    logs = [path for folder in folders for path in (folder.metrics, folder.timing)]
    seconds, _ = _timed(lambda: [file_sum(path) for path in logs])
    print(f"  of which checksums of {len(logs)} logs: {seconds:.3f} s")


def _finished(config: RunConfig) -> RunFolder:
    """A run with all records of a finished one, ``METRICS`` numbers a step besides its validations."""
    folder = run_config.ensure(config)
    panels = ("train", "probe", *config.env.validation_panels)
    folder.pin_panels({name: {"sha256": "0" * 64, "tasks": ["a task"] * 134} for name in panels})
    made = config.model_dump(mode="json")
    steps = range(config.trainer.steps + 1)
    metrics = [{"step": step, **{f"of/{k}": step / (k + 7) for k in range(METRICS)}} for step in steps]
    lines = {
        folder.metrics: whole(made, metrics),
        folder.timing: [{"step": step, "timing_s/step": 1.5 + step} for step in steps],
    }
    for path, records in lines.items():
        path.write_bytes(b"".join(map(to_line, records)))
    folder.note_sums({path.name: file_sum(path) for path in lines}, step=config.trainer.steps)
    folder.update_status(state=State.DONE)
    return folder


if __name__ == "__main__":
    main()
