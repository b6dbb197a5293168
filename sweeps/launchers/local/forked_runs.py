"""Runs that begin with their imports done and their games open: forked from a process that has both.

A run of the laptop study then costs two thirds: importing torch, reading 800 games and loading engines is done once.
Forked processes share that memory and nothing else; each is a process as any other and can be killed as any other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scpo.records.provenance import REPOSITORY
from scpo.schema import LocalLauncher, RunConfig
from sweeps.compose.resources import resources, trains_in_verl
from sweeps.records.attempt import thread_environment
from sweeps.records.run_process import Begin, Process, Start, begin_anew

FEWEST = 3  # runs for which a server pays
FORKS = 12  # runs of one server: the next one has read what they have learned of their games
POLL_S = 0.1
READY_S = 120.0  # to import and open everything; a slow disk takes a fraction of it


@dataclass
class Forked:
    """A process that a server forked."""

    server: Server
    pid: int

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self.server.status(self.pid)

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


class Server:
    """One ``sweeps.launchers.local.fork_server``.

    Args:
        first: A run whose environment is opened.
    """

    def __init__(self, first: Start) -> None:
        from multiprocessing import Pipe

        self._channel, theirs = Pipe()
        program = (
            f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
            "from sweeps.launchers.local.fork_server import main; main()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, str(theirs.fileno()), str(first.script), str(first.folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **thread_environment(first.config.machine.threads)},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._forks = 0
        self._heard = False
        self._new: list[int] = []
        self._pids: list[int] = []
        self._status: dict[int, int] = {}

    @property
    def used_up(self) -> bool:
        """Whether another one should take over."""
        return self._forks >= FORKS or self._process.poll() is not None

    @property
    def over(self) -> bool:
        """Whether it is used up and each of its runs has ended: it is of no more use, and takes the games' memory."""
        return self.used_up and all(self.status(pid) is not None for pid in self._pids)

    def begin(self, start: Start) -> Process | None:
        """A process of its own for this; None if the server gives none. OSError: no log can be written."""
        start.log.touch()
        self._forks += 1
        request = {"command": start.command, "log": str(start.log), "variables": dict(start.variables)}
        with contextlib.suppress(OSError):  # it is gone
            self._channel.send(request)
            limit = time.monotonic() + READY_S
            while not self._new and self._process.poll() is None and time.monotonic() < limit:
                self._hear(POLL_S)
        return Forked(self, self._new.pop()) if self._new else None

    def status(self, pid: int) -> int | None:
        """How a process ended; None while it runs. If the server is gone nobody knows: 1."""
        if pid not in self._status:
            self._hear(0)
        if pid not in self._status and self._process.poll() is not None and not _alive(pid):
            self._status[pid] = 1
        return self._status.get(pid)

    def close(self) -> None:
        """Let it end; one that is still opening games ends when it has."""
        self._channel.close()
        if self._heard:
            self._process.wait()

    def _hear(self, seconds: float) -> None:
        """Take in what it has said, waiting so long for a first word."""
        while self._channel.poll(seconds):
            seconds = 0
            try:
                said = self._channel.recv()
            except (EOFError, OSError):
                return
            self._heard = True
            if "status" in said:
                self._status[said["pid"]] = said["status"]
            else:
                self._new.append(said["pid"])
                self._pids.append(said["pid"])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def forked_runs(configs: Sequence[RunConfig], note: Callable[[str], None]) -> Iterator[Begin]:
    """How to begin these runs: forked where that pays and can be done, else each in a Python of its own.

    Args:
        configs: What is going to be run.
        note: Told before something takes a while.
    """
    environments = Counter(config.env.model_dump_json() for config in configs if _can_fork(config))
    commonest, runs = environments.most_common(1)[0] if environments else ("", 0)
    servers: list[Server] = []

    def begin(start: Start) -> Process:
        if not _can_fork(start.config) or start.config.env.model_dump_json() != commonest:
            return begin_anew(start)
        if not servers or servers[-1].used_up:
            for over in [server for server in servers if server.over]:
                servers.remove(over)
                over.close()
            note("opening what the runs share; the first time on a machine its games are translated")
            servers.append(Server(start))
        return servers[-1].begin(start) or begin_anew(start)

    try:
        yield begin if runs >= FEWEST else begin_anew
    finally:
        for server in servers:
            server.close()


def _can_fork(config: RunConfig) -> bool:
    """One thread, no GPU: neither survives a fork."""
    return (
        isinstance(config.launcher, LocalLauncher)
        and config.launcher.fork
        and config.machine.threads == 1
        and not trains_in_verl(config)
        and resources(config).all_gpus == 0
    )
