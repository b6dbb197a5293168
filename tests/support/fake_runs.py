"""Starts sweeps and runs with the fake trainer in real processes, and looks at what they left."""

import os
import subprocess
import sys
import time
from pathlib import Path

from scpo.records import JsonLines, RunFolder, run_config, run_folders
from scpo.records.files import write_json
from sweeps.compose.configuration import compose_run
from tests.support.warm_starts import WarmStart

FAULTS = Path(__file__).parents[1] / "faults"
HANG_S = 240  # what takes a second on a quiet machine, and minutes where others fill it
QUICK = ("trainer.steps=4", "trainer.checkpoint_every=2", "wandb.mode=disabled")


def make_run(runs_dir, *overrides):
    """The folder of a quick run."""
    return run_config.ensure(compose_run([*QUICK, f"machine.runs_dir={runs_dir}", *overrides]))


def start(script, *words, **knobs):
    """Start a script of tests/faults in a process of its own."""
    command = [sys.executable, str(FAULTS / script), *map(str, words)]
    return subprocess.Popen(
        command, env={**os.environ, **_variables(knobs)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def start_warm(script, *words, **knobs):
    """The same with what sweeps and searches import done before: it takes longer than all that they do here."""
    return WarmStart(FAULTS / script, [*map(str, words)], _variables(knobs))


def _variables(knobs):
    return {f"FAKE_{name.upper()}": str(value) for name, value in knobs.items()}


def start_sweep(runs_dir, *words, experiment="ablation_monotonicity", **knobs):
    """Start `sweep.py` on quick runs, two slots."""
    fixed = (f"+experiment={experiment}", f"machine.runs_dir={runs_dir}", "launcher.slots=2", *QUICK)
    return start_warm("fake_sweep.py", *fixed, *words, **knobs)


def finish(process, seconds=HANG_S):
    """(exit status, what was printed)"""
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def folders(runs_dir):
    return run_folders.list_runs(Path(runs_dir))


def states(runs_dir):
    return sorted(str(folder.read_status().state) for folder in folders(runs_dir))


def starts(folder: RunFolder):
    path = folder.path / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def steps(folder: RunFolder):
    return [record["step"] for record in JsonLines(folder.metrics).records()]


def wait_until(true, seconds=HANG_S):
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def write_status(folder, status):
    """The status as it is, the time of its writing included."""
    write_json(folder.status, status.model_dump(mode="json"))
