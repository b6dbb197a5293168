"""The local launcher: a pool of slots on this machine, one process a run."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scpo.errors import ConfigError, ScpoError
from scpo.progress import counted
from scpo.records import JsonLines, RunFolder, State
from scpo.records.memory import visible_gpus
from scpo.schema import LocalLauncher, RunConfig
from scpo.stop_signals import CountsSignals
from sweeps.compose.resources import resources, trains_in_verl
from sweeps.launchers.progress_board import ProgressBoard
from sweeps.launchers.run_process import Begin, Outcome, RunProcess, begin_anew

POLL_S = 0.1
GRACE_S = 120.0  # for finishing a step and writing a checkpoint; a second Ctrl-C does not wait


@dataclass
class Pool(CountsSignals):
    """Runs each folder in a process of its own, one a slot. One that fails stops none of the others.

    ``slots``: the GPUs that a process in each of them may see; None leaves that as it is.

    ``run`` takes a whole list. Who decides later what to run (a search) enters the pool as a context manager, which
    catches the stop signals, and calls ``start`` while there is a ``free`` slot, ``poll``, and ``stop`` once
    ``signals`` is not 0.
    """

    train_script: Path
    slots: Sequence[str | None]
    board: ProgressBoard
    begin: Begin = begin_anew
    grace_s: float = GRACE_S
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _running: dict[int, RunProcess] = field(default_factory=dict)

    def run(self, runs: Mapping[str, tuple[RunFolder, RunConfig]]) -> bool:
        """Run all; True if they were let run to their ends, False if a signal stopped the pool."""
        waiting = list(runs.values())
        with self:
            while (waiting and not self.signals) or self._running:
                while waiting and not self.signals and self.free:
                    self.start(*waiting.pop(0))
                time.sleep(POLL_S)
                self.poll()
                if self.signals:
                    self.stop()
        return not self.signals

    @property
    def free(self) -> int:
        """How many more runs could be started now."""
        return len(self.slots) - len(self._running)

    def start(self, folder: RunFolder, config: RunConfig) -> None:
        """Start a run in a free slot."""
        slot = next(one for one in range(len(self.slots)) if one not in self._running)
        gpus = self.slots[slot]
        variables = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        try:
            process = RunProcess.start(folder, config, self.train_script, variables, self.begin)
        except (OSError, ScpoError) as error:
            self._end(folder, Outcome(State.FAILED, f"could not be started: {error}"))
            return
        self._running[slot] = process
        self.board.started(folder, config)

    def poll(self) -> dict[str, Outcome]:
        """Look at every process once; returns the runs that ended since the last time (all: ``outcomes``)."""
        ended = {}
        for slot, one in list(self._running.items()):
            with contextlib.suppress(ScpoError):  # a damaged log is the run's own to report
                last = JsonLines(one.folder.metrics).last()
                if last is not None:
                    self.board.progress(one.folder, last["step"], last.get("train/success_rate"))
            self.board.doing(one.folder, one.doing())
            code = one.poll()
            if code is not None:
                del self._running[slot]
                ended[one.folder.run_id] = one.outcome(code, interrupted=self.signals > 0)
                self._end(one.folder, ended[one.folder.run_id])
        return ended

    def stop(self) -> None:
        """Ask all runs to checkpoint and end; kill what outlasts the grace or a second signal, workers included."""
        self.board.stopping(len(self._running), self.grace_s)
        for one in self._running.values():
            one.terminate()
        deadline = time.monotonic() + self.grace_s
        while self._running:
            time.sleep(POLL_S)
            self.poll()
            if self.signals > 1 or time.monotonic() > deadline:
                for one in self._running.values():
                    one.kill()

    def _end(self, folder: RunFolder, outcome: Outcome) -> None:
        self.outcomes[folder.run_id] = outcome
        self.board.ended(folder, outcome)


def slots_for(configs: Sequence[RunConfig]) -> list[str | None]:
    """A slot for each ``gpus_per_run`` of the visible GPUs or, where runs use none, for each ``machine.threads`` cores.

    Each is given as its GPUs (see ``Pool``). ``gpus_per_run`` None: as many as the run that needs most of them.
    ``slots`` of the launcher, if given, replaces the number of slots; more slots than GPUs share them in turn.

    Raises:
        ConfigError: A run needs more GPUs than this machine shows.
    """
    machine, launcher = configs[0].machine, configs[0].launcher
    if not isinstance(launcher, LocalLauncher):
        raise ConfigError(f"launcher.name={launcher.name}: the pool of this machine is launcher=local")
    gpus = visible_gpus() if machine.device != "cpu" else []
    largest = max(configs, key=lambda config: resources(config).all_gpus)
    _check_gpus(largest, gpus, launcher.gpus_per_run)
    size = launcher.gpus_per_run or max(1, resources(largest).all_gpus)
    shares = [",".join(gpus[at : at + size]) for at in range(0, len(gpus) - size + 1, size)]
    cores = len(os.sched_getaffinity(0))
    number = min(len(configs), launcher.slots or len(shares) or max(1, cores // machine.threads))
    return [shares[index % len(shares)] if shares else None for index in range(number)]


def refused_here(configs: Sequence[RunConfig]) -> str | None:
    """Why this machine cannot run these, for who only looks; None: it can."""
    try:
        slots_for(configs)
    except ConfigError as error:
        return str(error)
    return None


def _check_gpus(config: RunConfig, gpus: Sequence[str], given: int | None) -> None:
    """A run gets all its GPUs, or the command that fits is told before anything starts."""
    needed, shown = resources(config).all_gpus, f"this machine shows {counted(len(gpus), 'GPU')} ({', '.join(gpus)})"
    if given is not None and given > len(gpus) > 0:
        raise ConfigError(f"launcher.gpus_per_run={given}: {shown}")
    if not trains_in_verl(config):
        return
    if gpus and given is not None and given < needed:
        raise ConfigError(
            f"launcher.gpus_per_run={given}, and a run with trainer.verl.gpus={needed} needs {needed}: leave "
            "launcher.gpus_per_run out, or trainer=verl_1gpu"
        )
    if needed > max(1, len(gpus)) or (needed and config.machine.device == "cpu"):
        fitting = "trainer=verl_1gpu (one 80 GB card), " if gpus else ""
        raise ConfigError(
            f"{config.model.name} with method={config.method.name} wants {counted(needed, 'GPU')} "
            f"(trainer.verl.gpus x nodes), {shown if gpus else 'this machine shows none'}; "
            f"here: {fitting}trainer=verl_cpu (for tests); on a cluster: launcher=slurm_a800x4"
        )
