"""Fork runs from a server process that has imported everything and opened the environment.

A forked run of the laptop study needs a third less CPU time, because torch, 800 games and their
engines are loaded only once. Forked processes share only the memory of what was loaded, and each
can be killed like any other process.

This file holds both ends: ``forked_runs`` and ``Server`` in the launcher, ``main`` in the server.
multiprocessing's own fork server cannot replace it:

- Its ``Process.start()`` blocks until the preload is done: 5.3 s for a module that sleeps for 5 s,
  and about 100 s for our imports and environment with a cold disk cache. Signals, the progress
  board and other slots would wait too. ``Server.begin`` returns at once, and a run whose server
  does not answer in time is started in a new Python process.
- A process has one fork server for its whole life. Ours is replaced after ``FORKS`` runs: the next
  one starts with the games that those runs have cached, and the memory of the old one is freed.
- It preloads modules by name; ours opens the environment of a given run.
- If it dies, the launcher does not learn which processes it has started; with ours it does.

Messages are sent over a pipe of multiprocessing. The launcher sends ``{"number", "command", "log",
"variables"}``. The server answers ``{"number", "pid"}`` once the process exists, and ``{"number",
"status"}`` once it has ended. The number identifies the request, so that late answers are assigned
to the right run.

A forked process waits until its pid has been sent, and exits if the server dies before that. So
after killing a server and reading the rest of the pipe, the launcher knows all processes of runs
that this server has started.
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

# For fewer runs of one environment, starting a server costs more than it saves.
FEWEST = 3

# Number of runs that a server forks before another one replaces it.
FORKS = 12

# Seconds within which a new server must answer for the first time: it imports the code and opens
# the environment, which takes about 100 s with a cold disk cache.
OPENING_S = 300.0

# Seconds within which a server that has answered before must answer, or end when it is asked to.
FORKING_S = 30.0

# Seconds between two polls of the server for requests and ended processes.
POLL_S = 0.05


class Forked:
    """The process of one run: forked by a server, or a new Python process if the server fails.

    This object exists before the process does, so that the launcher keeps reacting to signals while
    the server opens its environment.

    Args:
        server: The server that was asked to fork.
        start: The attempt to start.
        number: Number of the request to the server.
    """

    def __init__(self, server: Server, start: Start, number: int) -> None:
        self.server = server
        self._start = start
        self._number = number
        self._asked_at = time.monotonic()
        # The new Python process that replaces the forked one.
        self._anew: Process | None = None
        # True if the run was ended before the server forked it.
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
            # The server may have sent the pid before it was killed. If not, no process runs.
            if self.server.pid(self._number) is None:
                return self._begin_anew()
        return self.server.status(self._number)

    def terminate(self) -> None:
        """Ask the process to end; if it was not forked yet, it never starts."""
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
            # The server is dead and never forked the run, so there is no process to end.
            self._withdrawn = True
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def _begin_anew(self) -> int | None:
        """Start the run in a new Python process; returns its exit status as ``poll`` does."""
        try:
            self._anew = begin_anew(self._start)
        except OSError:
            # No process could be started; 1 makes the caller of ``poll`` record a failed run.
            return 1
        return self._anew.poll()

    def _is_overdue(self) -> bool:
        """True if the server has ended, or has not answered within its time limit."""
        limit_s = FORKING_S if self.server.has_answered else OPENING_S
        since = max(self._asked_at, self.server.heard_at)
        return self.server.has_ended or time.monotonic() - since > limit_s


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
        """Return True if new runs need another server: it has ended or had ``FORKS`` requests."""
        return self._requests >= FORKS or self.has_ended

    @property
    def can_close(self) -> bool:
        """Return True if it is used up and its runs have ended, so that its memory can be freed."""
        if not self.used_up:
            return False
        for number in range(self._requests):
            if self.pid(number) is None:
                # A server that has ended answers no more requests.
                if not self.has_ended:
                    return False
            elif self.status(number) is None:
                return False
        return True

    def begin(self, start: Start) -> Forked:
        """Ask the server to fork a process; OSError if the run's log cannot be written."""
        start.log.touch()
        number = self._requests
        self._requests += 1
        request = {
            "number": number,
            "command": start.command,
            "log": str(start.log),
            "variables": dict(start.variables),
        }
        # If the server is dead, ``Forked.poll`` starts the run in a new Python process.
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

        After the server has ended, the exit status of an ended process is usually unknown. Then 1
        is returned, and the run's status.json has the state in which it ended.
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
        """Kill the server and its workers that translate games; the runs that it forked go on."""
        # The process id of a server that has ended may have been reused since.
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._receive()

    def close(self) -> None:
        """End the server; the runs that it forked go on."""
        # Before its first answer it may be opening thousands of games, and would not react.
        if not self.has_answered:
            self.kill()
        # The server ends when it finds the pipe closed.
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
    """The exit status of a process whose parent has ended; None while it runs, 1 if unknown.

    Process 1 adopts such a process and should reap it at its end. This process may be process 1
    itself (``docker run``), and then reaps it here. If another process 1 does not reap, an ended
    process remains as a zombie, which ``kill(pid, 0)`` still finds.
    """
    # ChildProcessError: it was not adopted by this process.
    with contextlib.suppress(ChildProcessError):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if reaped else None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 1
    except PermissionError:
        # The pid was reused by a process of another user.
        return 1
    return 1 if _is_zombie(pid) else None


def _is_zombie(pid: int) -> bool:
    """True if the process has ended and was not reaped; False without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        # There is no /proc (macOS, where process 1 reaps), or the process was reaped just now.
        return False
    # "<pid> (<name>) <state> ..."; the name may contain parentheses and spaces.
    state = stat.rpartition(")")[2].split()[0]
    return state in ("Z", "X")


@contextlib.contextmanager
def forked_runs(configs: Sequence[RunConfig], note: Callable[[str], None]) -> Iterator[Begin]:
    """Provide the function that starts these runs; end its servers on exit.

    Runs of the most frequent environment are forked if there are at least ``FEWEST`` of them. All
    other runs start in a new Python process.

    Args:
        configs: The runs that will be started.
        note: Called with a line of text before a server opens its environment, which takes a while.
    """
    environments = Counter(config.env.model_dump_json() for config in configs if _can_fork(config))
    most_frequent, runs = environments.most_common(1)[0] if environments else ("", 0)
    servers: list[Server] = []

    def begin(start: Start) -> Process:
        if not _can_fork(start.config) or start.config.env.model_dump_json() != most_frequent:
            return begin_anew(start)
        if servers and servers[-1].has_ended and not servers[-1].has_answered:
            # The last server could not open the environment, so another one could not either. A
            # run in a new process reports the reason in its log.
            return begin_anew(start)
        if not servers or servers[-1].used_up:
            # Free the memory of earlier servers before another one opens its games.
            for server in [server for server in servers if server.can_close]:
                servers.remove(server)
                server.close()
            note("opening what the runs share; games that are new are translated first")
            servers.append(Server(start))
        return servers[-1].begin(start)

    try:
        yield begin if runs >= FEWEST else begin_anew
    finally:
        for server in servers:
            server.close()


def _can_fork(config: RunConfig) -> bool:
    """True for local runs with one thread and no GPU: neither threads nor CUDA survive a fork."""
    return (
        isinstance(config.launcher, LocalLauncher)
        and config.launcher.fork
        and config.machine.threads == 1
        and not trains_in_verl(config)
        and resources(config).all_gpus == 0
    )


def main() -> None:
    """Run the server: open what the runs share, then fork on request.

    The arguments in ``sys.argv`` are the file descriptor of the pipe, the training script, and the
    folder of a run. The script's function ``open_ahead(config)``, if it has one, opens the shared
    objects.
    """
    channel = Connection(int(sys.argv[1]))
    # Before training code is imported, so that these are the checksums of the imported files.
    code = code_files()
    open_ahead = runpy.run_path(sys.argv[2]).get("open_ahead")
    # Nearly all objects that are created while the environment opens are permanent, and the garbage
    # collector would traverse them again and again.
    gc.disable()
    if open_ahead is not None:
        open_ahead(run_config.read_config(RunFolder(sys.argv[3])))
    gc.collect()
    # Otherwise the collector in each forked run would write to all these objects, and so copy the
    # memory that is shared.
    gc.freeze()
    gc.enable()
    request = _serve(channel)
    if request is not None:
        _become(request, code)


def _serve(channel: Connection) -> dict[str, Any] | None:
    """Fork a process for each request of the launcher, and send the exit statuses.

    Returns:
        In a forked process: its request. In the server: None, once the launcher has closed the
        pipe.
    """
    # Pid of each forked process -> number of its request.
    numbers: dict[int, int] = {}
    while True:
        if channel.poll(POLL_S):
            try:
                request = dict(channel.recv())
            except EOFError:
                return None
            # The child waits until the server writes a byte to this pipe.
            read_end, write_end = os.pipe()
            # A fork is safe, because only one thread runs here.
            pid = os.fork()
            if pid == 0:
                # Closed so that the read below returns if the server dies.
                os.close(write_end)
                channel.close()
                # End of file: the server died before it could send the pid.
                if not os.read(read_end, 1):
                    os._exit(1)
                os.close(read_end)
                return request
            numbers[pid] = request["number"]
            channel.send({"number": request["number"], "pid": pid})
            # Only now may the child run: the launcher can find its pid in the pipe.
            os.write(write_end, b"1")
            os.close(read_end)
            os.close(write_end)
        while (ended := _reap()) is not None:
            pid, status = ended
            if pid in numbers:
                channel.send({"number": numbers[pid], "status": status})


def _reap() -> tuple[int, int] | None:
    """Pid and exit status of a child that has ended, negative for a signal; None without one."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    if not pid:
        return None
    return (pid, os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], code: dict[str, str]) -> None:
    """Turn this forked process into that of the run, as if ``begin_anew`` had started it."""
    # In a session of its own, so that the launcher can kill it together with its workers.
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
        # The code on disk has changed since it was imported. The run records the checksums of the
        # new code, so it must also execute the new code.
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 (the launcher's command)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # they are files
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")
