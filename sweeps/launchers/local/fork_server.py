"""A process that has its imports done and its games open, and forks one for each run (see forked_runs).

    python -c "from sweeps.launchers.local.fork_server import main; main()" <pipe> <training script> <folder of a run>

What there is to import and to open is for the script to say: its ``open_ahead(config)``, if it has one, is called.
Requests come through a pipe of ``multiprocessing``: ``{"command", "log", "variables"}``. Each is answered by
``{"pid"}``, and by ``{"pid", "status"}`` once the process is over. The server ends when the other end of the pipe does.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scpo.records import RunFolder
from scpo.records.provenance import code_files
from sweeps.records.run_process import ignore_warning

POLL_S = 0.05


def main() -> None:
    """Open what the run needs, then fork as asked."""
    channel = Connection(int(sys.argv[1]))
    code = code_files()  # before the first import of training
    open_ahead = runpy.run_path(sys.argv[2]).get("open_ahead")
    gc.disable()
    if open_ahead is not None:
        open_ahead(RunFolder(sys.argv[3]).read_config())
    gc.collect()
    gc.freeze()  # or each run's collector would go through it, and copy its pages by doing so
    gc.enable()
    request = _serve(channel)
    if request is not None:
        _become(request, channel, code)


def _serve(channel: Connection) -> dict[str, Any] | None:
    """Fork until the launcher is gone: None. In each forked process: what it is to become."""
    while True:
        if channel.poll(POLL_S):
            try:
                request = dict(channel.recv())
            except EOFError:
                return None
            pid = os.fork()
            if pid == 0:
                return request
            channel.send({"pid": pid})
        for pid, status in iter(_ended, None):
            channel.send({"pid": pid, "status": status})


def _ended() -> tuple[int, int] | None:
    """A process that is over, with its exit status as ``subprocess`` counts it."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _become(request: dict[str, Any], channel: Connection, code: dict[str, str]) -> None:
    """The process that the launcher asked for, as if it had been started anew."""
    channel.close()
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ignore_warning()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["variables"])
    command = request["command"]
    if code_files() != code:  # what was imported is not what lies there now, and would be recorded
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 (the launcher's own)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # they are files
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")
