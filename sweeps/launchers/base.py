"""The interface of launchers, and the registry.

A launcher is a module with ``make_launcher``, an entry in ``LAUNCHERS``, and
``conf/launcher/<name>.yaml``.
"""

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

from rich.console import Console

from scpo.errors import ConfigError
from scpo.records import RunFolder
from scpo.schema.run import RunConfig
from sweeps.launchers.run_process import Outcome

LAUNCHERS = {
    "local": "sweeps.launchers.local",
    "slurm": "sweeps.launchers.slurm.launcher",
}
"""``launcher.name`` -> module with its ``make_launcher(configs, train_script, console)``.

The module is imported on use: a sweep on this machine does not import submitit.
"""

# Folder and configuration of each run, by id.
Runs = Mapping[str, tuple[RunFolder, RunConfig]]


class Launcher(Protocol):
    """Starts runs and follows them.

    A context manager, inside which stop signals (Ctrl-C, SIGTERM) only increment ``signals``.

    Attributes:
        detached: True if its runs outlive this process: sweep.py submits all at once and exits.
            Otherwise sweep.py follows the runs and starts one whenever there is a ``free`` slot.
        poll_s: Seconds between two polls of the runs.
        signals: Number of stop signals received.
    """

    detached: ClassVar[bool]
    poll_s: float
    signals: int

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    @property
    def free(self) -> int:
        """Number of further runs that may be started now."""
        ...

    def check(self, configs: Sequence[RunConfig]) -> int:
        """Number of these runs that can run at a time; ConfigError if one of them can never run."""
        ...

    def preview(self, console: Console, configs: Mapping[str, RunConfig]) -> None:
        """Show in a dry run what would be started; writes nothing."""
        ...

    def start(self, runs: Runs, title: str) -> list[str]:
        """Start these runs; returns the ids of their jobs, empty for a launcher without jobs."""
        ...

    def poll(self) -> dict[str, Outcome]:
        """Outcomes of the started runs that have ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask all runs to checkpoint and end, and wait; runs of a detached launcher go on."""
        ...


def open_launcher(configs: Sequence[RunConfig], train_script: Path, console: Console) -> Launcher:
    """Create the launcher that these configurations name.

    Args:
        configs: All runs that may be started; they share their launcher settings.
        train_script: The script that runs one run, train.py.
        console: Where progress is shown.

    Raises:
        ConfigError: The launcher is unknown.
    """
    name = configs[0].launcher.name
    if name not in LAUNCHERS:
        raise ConfigError(
            f"launcher.name={name}: unknown launcher; allowed: {', '.join(LAUNCHERS)}"
        )
    module = import_module(LAUNCHERS[name])
    launcher: Launcher = module.make_launcher(configs, train_script, console)
    return launcher


def follow(launcher: Launcher, runs: Runs, title: str) -> tuple[dict[str, Outcome], bool]:
    """Start runs as slots become free, until all have ended or a signal stops the launcher.

    Args:
        launcher: A launcher that is not ``detached``.
        runs: The runs to start.
        title: Title of the work, passed to ``launcher.start``.

    Returns:
        The outcome of each run that was started, and whether all ended without a stop signal.
    """
    waiting = list(runs)
    running = 0
    outcomes: dict[str, Outcome] = {}
    with launcher:
        while (waiting and not launcher.signals) or running:
            while waiting and not launcher.signals and launcher.free:
                run_id = waiting.pop(0)
                launcher.start({run_id: runs[run_id]}, title)
                running += 1
            time.sleep(launcher.poll_s)
            # ``stop`` waits until all runs have ended, so that the poll below reports them.
            if launcher.signals:
                launcher.stop()
            ended = launcher.poll()
            outcomes |= ended
            running -= len(ended)
        return outcomes, not launcher.signals
