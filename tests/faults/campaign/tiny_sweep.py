"""The sweep that is damaged: two rows of an ablation on real games, seconds a run; and what is true of it."""

import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from scpo.records import RunFolder, State, manifest, run_config
from sweeps.compose.matrix import Matrix, expand
from tests.support.training_in_process import STUDY
from tests.support.warm_starts import ROOT, WarmStart

EXPERIMENT = "ablation_monotonicity"
STEPS, CHECKPOINT_EVERY = 4, 1
LIMIT_S = 600  # of a process that takes seconds: a machine that others fill has given one a hundredth of itself
OVERRIDES = (
    *(word for word in STUDY if not word.startswith("method=")),
    *("env.horizon=6", f"trainer.checkpoint_every={CHECKPOINT_EVERY}"),
    *("trainer.keep_checkpoints=2", "trainer.probe_every=4", "trainer.sample_every=4", "seeds=[0]"),
)


@dataclass(frozen=True)
class Ended:
    """How a process of train.py ended."""

    code: int
    output: str


@dataclass(frozen=True)
class TinySweep:
    """``done``: both runs finished. ``stopped``: the second one was killed between two checkpoints."""

    top: Path
    ids: tuple[str, str]

    @property
    def done(self) -> Path:
        return self.top / "done"

    @property
    def stopped(self) -> Path:
        return self.top / "stopped"

    @property
    def cache(self) -> Path:
        return self.top / "cache"

    def copy(self, state: Path, target: Path) -> Path:
        """A copy to be damaged."""
        return Path(shutil.copytree(state, target, symlinks=True))

    def outcome(self, runs: Path, run_id: str) -> dict[str, bytes]:
        """What must be equal in the end: the metrics, and the last weights."""
        folder = RunFolder(runs / run_id)
        return {
            "metrics": folder.metrics.read_bytes(),
            "weights": (folder.checkpoint(STEPS) / "model.safetensors").read_bytes(),
        }


def make(top: Path) -> TinySweep:
    """Run the sweep, and once more for the half of it that is killed."""
    matrix = _matrix(top / "done", top / "cache")
    for config in matrix.runs.values():
        finish(run_config.ensure(config))
    first, second = matrix.runs
    shutil.copytree(top / "done", top / "stopped", symlinks=True)
    shutil.rmtree(top / "stopped" / second)
    fresh = run_config.ensure(_matrix(top / "stopped", top / "cache").runs[second])
    process = start(fresh)
    while not (fresh.metrics.exists() and fresh.metrics.read_bytes().count(b"\n") >= STEPS):  # step 0 is a line too
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    if fresh.read_status().state is not State.RUNNING or not fresh.complete_checkpoints():
        raise SystemExit("the run that was to be killed half-way was not: give the command again")
    return TinySweep(top, (first, second))


def nothing(top: Path) -> TinySweep:
    """No sweep: for faults that need none."""
    return TinySweep(top, ("", ""))


def _matrix(runs: Path, cache: Path) -> Matrix:
    matrix = expand(EXPERIMENT, [*OVERRIDES, f"machine.runs_dir={runs}", f"machine.cache_dir={cache}"])
    runs.mkdir(parents=True, exist_ok=True)
    manifest.update(runs, matrix.manifest)
    return matrix


def start(folder: RunFolder, **surroundings: object) -> WarmStart:
    """``python train.py <run folder>``, its imports done."""
    return WarmStart(ROOT / "train.py", [str(folder.path)], **surroundings)


def wait(process: WarmStart) -> Ended:
    """How it ends; one that does not is killed and has code -9 with a word about it."""
    try:
        output, _ = process.communicate(LIMIT_S)
    except subprocess.TimeoutExpired as error:
        return Ended(
            -signal.SIGKILL, f"{(error.output or b'').decode(errors='replace')}\nit did not end in {LIMIT_S} s"
        )
    return Ended(process.returncode, output)


def finish(folder: RunFolder) -> None:
    ended = wait(start(folder))
    if ended.code:
        raise SystemExit(f"the undisturbed run ended with {ended.code}:\n{ended.output}")
