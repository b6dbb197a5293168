"""Fork runs from a server process that has imported everything and opened the environment.

A forked run of the laptop study costs a third less CPU time: importing torch, reading 800 games and
loading engines happens once. Forked processes share that memory and nothing else, and each can be
killed like any other process.

This file holds both ends: ``forked_runs`` and ``Server`` in the launcher, ``main`` in the server.
multiprocessing's own fork server cannot replace it:

- Its ``Process.start()`` waits until the preload is done (5.3 s for a module that sleeps 5 s; a
  cold cache takes 100 s here). Signals, the progress board and other slots would wait too; ours
  returns at once, and a run whose server is late is started anew.
- A process has one fork server for its whole life. Ours is replaced after ``FORKS`` runs: the next
  one starts with the games that those runs have cached, and the memory of the old one is freed.
- It preloads modules by name; ours opens the environment of a given run.
- If it dies, the launcher does not learn which processes it has started; with ours it does.

Messages over a pipe of multiprocessing: the launcher sends ``{"number", "command", "log",
"variables"}``; the server answers ``{"number", "pid"}`` once the process exists and ``{"number",
"status"}`` once it has ended. The number assigns a late answer to the right run. A forked process
waits until its pid has been sent, and exits if the server dies before that. So a launcher that has
killed a server and read the rest of the pipe knows every process that runs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scpo.installed import REPOSITORY
from scpo.records import run_config
from scpo.records.code_files import code_files
from scpo.records.run_folders import RunFolder
from scpo.schema.run import LocalLauncher, RunConfig
from sweeps.launchers.run_process import Begin, Process, Start, begin_anew, ignore_warning
from sweeps.records.process import thread_environment
from sweeps.resources import resources, trains_in_verl

# With fewer runs, starting a server costs more than it saves.
FEWEST = 3

# Runs of one server, before another one replaces it.
FORKS = 12

# Limit for imports and the environment; a cold cache takes about 100 s.
OPENING_S = 300.0

# Limit for the answer of a server that has answered before.
FORKING_S = 30.0
POLL_S = 0.05


class Forked:
    """The process of one run, forked by a server, or started anew if the server fails.

    The object exists before the process does, so that the launcher keeps reacting to signals while
    a server opens its environment.
    """

    def __init__(self, server: Server, start: Start, number: int) -> None:
        self.server = server
        self._start = start
        self._number = number
        self._asked = time.monotonic()
        self._anew: Process | None = None
        self._withdrawn = False

    @property
    def pid(self) -> int:
        """Process id; ProcessLookupError before the process exists."""
        if self._anew is not None:
            return self._anew.pid
        pid = self.server.pid(self._number)
        if pid is None:
            raise ProcessLookupError
        return pid

    def poll(self) -> int | None:
        """Exit status; None while it runs or waits for its server."""
        if self._anew is not None:
            return self._anew.poll()
        if self._withdrawn:
            return -signal.SIGTERM
        if self.server.pid(self._number) is None and self._is_overdue():
            self.server.kill()
            # Killing is final: the last messages are read, so this pid is known or never ran.
            if self.server.pid(self._number) is None:
                return self._begin_anew()
        return self.server.status(self._number)

    def terminate(self) -> None:
        """Ask it to end; one that is not forked yet never starts."""
        if self._anew is not None:
            self._anew.terminate()
            return

        # Wait briefly for the pid: without it, only killing the whole server ends the run.
        limit = time.monotonic() + POLL_S
        while self.server.pid(self._number) is None and time.monotonic() < limit:
            time.sleep(POLL_S / 5)
        pid = self.server.pid(self._number)
        if pid is None:
            self.server.kill()
            pid = self.server.pid(self._number)
        if pid is None:
            # The server is dead and never forked the run: nothing is left to end.
            self._withdrawn = True
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def _begin_anew(self) -> int | None:
        try:
            self._anew = begin_anew(self._start)
        except OSError:
            # No process could be started; polling records the death of the run.
            return 1
        return self._anew.poll()

    def _is_overdue(self) -> bool:
        limit = FORKING_S if self.server.has_answered else OPENING_S
        since = max(self._asked, self.server.heard_at)
        return self.server.has_ended or time.monotonic() - since > limit


class Server:
    """The launcher's end of one fork server.

    Args:
        first: The run whose environment the server opens.
    """

    def __init__(self, first: Start) -> None:
        from multiprocessing import Pipe

        self._channel, theirs = Pipe()
        program = (
            f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
            "from sweeps.launchers.forked import main; main()"
        )
        arguments = [str(theirs.fileno()), str(first.script), str(first.folder.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **thread_environment(first.config.machine.threads)},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

        # Time at which its last message arrived.
        self.heard_at = time.monotonic()
        self._requests = 0
        self._pids: dict[int, int] = {}
        self._statuses: dict[int, int] = {}

    @property
    def has_ended(self) -> bool:
        """Return True if its process is gone."""
        return self._process.poll() is not None

    @property
    def has_answered(self) -> bool:
        """Return True if it has opened its environment and forked a run."""
        return bool(self._pids)

    @property
    def used_up(self) -> bool:
        """Return True if another server should replace it."""
        return self._requests >= FORKS or self.has_ended

    @property
    def over(self) -> bool:
        """Return True if it is used up and its runs have ended, so that its memory can be freed."""
        forked = [number for number in range(self._requests) if self.pid(number) is not None]
        waiting = len(forked) < self._requests and not self.has_ended
        has_runs = any(self.status(number) is None for number in forked)
        return self.used_up and not waiting and not has_runs

    def begin(self, start: Start) -> Forked:
        """Ask for a process; OSError if its log cannot be written."""
        start.log.touch()
        number = self._requests
        self._requests += 1
        request = {
            "number": number,
            "command": start.command,
            "log": str(start.log),
            "variables": dict(start.variables),
        }
        # If the server is dead, polling the run starts its process anew.
        with contextlib.suppress(OSError):
            self._channel.send(request)
        return Forked(self, start, number)

    def pid(self, number: int) -> int | None:
        """Process id of a request; None before the process exists."""
        if number not in self._pids:
            self._receive()
        return self._pids.get(number)

    def status(self, number: int) -> int | None:
        """Exit status of a request's process; None while it runs.

        Without a server the status of a process that is not our child is unknown: 1 is returned,
        and the run's own status.json holds how it ended.
        """
        if number not in self._statuses:
            self._receive()
        pid = self._pids.get(number)
        if number not in self._statuses and pid is not None and self.has_ended:
            status = exit_status(pid)
            if status is not None:
                self._statuses[number] = status
        return self._statuses.get(number)

    def kill(self) -> None:
        """End the server and its translation workers now; the runs that it forked go on."""
        # The number of a server that has ended may belong to another process group by now.
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._receive()

    def close(self) -> None:
        """End the server; its runs go on."""
        # Before its first answer it may be opening thousands of games and would not react.
        if not self.has_answered:
            self.kill()
        # A closed pipe is the request to end.
        self._channel.close()
        try:
            self._process.wait(timeout=FORKING_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _receive(self) -> None:
        """Read the messages that have arrived."""
        with contextlib.suppress(EOFError, OSError):
            while self._channel.poll(0):
                message = self._channel.recv()
                self.heard_at = time.monotonic()
                if "pid" in message:
                    self._pids[message["number"]] = message["pid"]
                else:
                    self._statuses[message["number"]] = message["status"]


def exit_status(pid: int) -> int | None:
    """The exit status of a process whose parent is gone; None while it runs, 1 if unknown.

    Orphans are adopted by process 1. If that is this process (``docker run``), it has to reap them;
    if process 1 reaps nothing, they stay as zombies, which ``kill(pid, 0)`` still finds.
    """
    with contextlib.suppress(ChildProcessError):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if reaped else None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 1
    except PermissionError:
        # The number now belongs to a process of another user.
        return 1
    return 1 if _is_zombie(pid) else None


def _is_zombie(pid: int) -> bool:
    try:
        # The name, in parentheses, may hold any character; the state follows it.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        # There is no /proc (macOS, whose process 1 reaps), or the process is gone since.
        return False
    return after_name.split()[0] in ("Z", "X")


@contextlib.contextmanager
def forked_runs(configs: Sequence[RunConfig], note: Callable[[str], None]) -> Iterator[Begin]:
    """Choose how to start these runs: forked where possible and worthwhile, else in a new Python.

    Args:
        configs: The runs to come.
        note: Called with a line before something takes a while.
    """
    forkable = [config for config in configs if _can_fork(config)]
    environments = Counter(config.env.model_dump_json() for config in forkable)
    commonest, runs = environments.most_common(1)[0] if environments else ("", 0)
    servers: list[Server] = []

    def begin(start: Start) -> Process:
        if not _can_fork(start.config) or start.config.env.model_dump_json() != commonest:
            return begin_anew(start)
        if servers and servers[-1].has_ended and not servers[-1].has_answered:
            # It could not open the environment. The next one could not either, and a run that
            # starts by itself reports the reason.
            return begin_anew(start)
        if not servers or servers[-1].used_up:
            # Close the servers whose runs have ended before another one opens its games.
            over = [server for server in servers if server.over]
            for server in over:
                servers.remove(server)
                server.close()
            note("opening what the runs share; the first time its games are translated")
            servers.append(Server(start))
        return servers[-1].begin(start)

    try:
        yield begin if runs >= FEWEST else begin_anew
    finally:
        for server in servers:
            server.close()


def _can_fork(config: RunConfig) -> bool:
    """True for runs with one thread and no GPU: neither threads nor CUDA survive a fork."""
    return (
        isinstance(config.launcher, LocalLauncher)
        and config.launcher.fork
        and config.machine.threads == 1
        and not trains_in_verl(config)
        and resources(config).all_gpus == 0
    )


def main() -> None:
    """Run the server: open what the runs need, then fork on request.

    Arguments: file descriptor of the pipe, training script, folder of a run. The script's optional
    function ``open_ahead(config)`` opens shared objects.
    """
    channel = Connection(int(sys.argv[1]))
    # Before the first import of training code, so that the checksums are of the files that are run.
    code = code_files()
    open_ahead = runpy.run_path(sys.argv[2]).get("open_ahead")
    # Nearly all objects made while the environment opens are permanent; the garbage collector would
    # traverse them again and again.
    gc.disable()
    if open_ahead is not None:
        open_ahead(run_config.read_config(RunFolder(sys.argv[3])))
    gc.collect()
    # Without this, the collector of each run would write to all objects and so copy their pages.
    gc.freeze()
    gc.enable()
    request = _serve(channel)
    if request is not None:
        _become(request, code)


def _serve(channel: Connection) -> dict[str, Any] | None:
    """Fork on request. Returns the request in each forked process; None in the server, at its end.

    The server ends when the launcher closes the pipe.
    """
    numbers: dict[int, int] = {}
    while True:
        if channel.poll(POLL_S):
            try:
                request = dict(channel.recv())
            except EOFError:
                return None
            started, start = os.pipe()
            # Only one thread runs here, so that a fork is safe.
            pid = os.fork()
            if pid == 0:
                # With this end open, the read below would never notice that the server died.
                os.close(start)
                channel.close()
                # End of file: the server died before it could send the pid.
                if not os.read(started, 1):
                    os._exit(1)
                os.close(started)
                return request
            numbers[pid] = request["number"]
            channel.send({"number": request["number"], "pid": pid})
            # Only now may the child run: the launcher can find its pid in the pipe.
            os.write(start, b"1")
            os.close(started)
            os.close(start)
        for pid, status in iter(_ended, None):
            if pid in numbers:
                channel.send({"number": numbers[pid], "status": status})


def _ended() -> tuple[int, int] | None:
    """Pid of a child that has ended, and its exit status as ``subprocess`` gives it; else None."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    if not pid:
        return None
    return (pid, os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], code: dict[str, str]) -> None:
    """Become the process that the launcher asked for, as if it had been started anew."""
    # As in begin_anew: a session of its own, so that the launcher can kill it with its workers.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ignore_warning()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["variables"])
    command = request["command"]
    if code_files() != code:
        # The code on disk has changed since it was imported, and the run would record the new one.
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 (the launcher's command)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # they are files
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")
