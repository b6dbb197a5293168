"""Processes of train.py and sweep.py that begin with their imports done: one CPU second less for each start of a sweep,
six for one that trains.

A server imports what training imports, once, and forks. What comes out is a process as any other: it has its own id,
takes signals, can be killed and ends with an exit status.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = (
    "scpo.trainers.local.trainer",
    "scpo.envs.alfworld.environment",
    "textworld.envs.pddl",
    "transformers.models.qwen2.modeling_qwen2",
    "sweeps.dispatch",
    "sweeps.search.search_command",
)
GAMES = ["scpo.envs.alfworld.environment", "textworld.envs.pddl"]
# At import, so while tests are collected: the first test that needs a server may be one of the environments'.
multiprocessing.set_forkserver_preload(list(HEAVY))


class WarmStart:
    """``python <script> <words>`` in the checkout's root, with as much of ``subprocess.Popen`` as the tests need."""

    def __init__(
        self, script: Path, words: list[str], variables: dict[str, str | None] | None = None, *,
        encoding: str = "utf-8", umask: int = 0o022, cwd: Path = ROOT, group: bool = False,
    ) -> None:  # fmt: skip
        """``variables``: other values of environment variables, None for none; ``encoding``: of its output; ``cwd``:
        another folder; ``group``: the process leads a process group of its own.
        """
        context = multiprocessing.get_context("forkserver")
        self._output = tempfile.NamedTemporaryFile("r", prefix="warm-start-", encoding="utf-8")  # noqa: SIM115
        surroundings = {
            "variables": variables or {},
            "encoding": encoding,
            "umask": umask,
            "cwd": str(cwd),
            "group": group,
        }
        what = (str(script), words, self._output.name)
        self._process = context.Process(target=_become, args=what, kwargs=surroundings)
        self._process.start()
        atexit.register(self._process.kill)  # or Python would wait at its end for what a failed test left
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired(self._process.name, timeout, Path(self._output.name).read_bytes())
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """All that it printed, once it is over."""
        self.wait(timeout)
        self._output.seek(0)
        return self._output.read(), None

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _become(
    script: str, words: list[str], output: str, *,
    variables: dict[str, str | None], encoding: str, umask: int, cwd: str, group: bool,
) -> None:  # fmt: skip
    """Runs in the new process: stdout and stderr go into the file, the rest is the script's."""
    # The server has the signal mask of the test that started it first. Training in that test's process
    # may block the stop signals while it starts helpers, and this process would never see one.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if group:
        os.setpgid(0, 0)
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    for name in (name for name, value in variables.items() if value is None):
        os.environ.pop(name, None)
    with open(output, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.umask(umask)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding=encoding, errors="strict" if encoding == "ascii" else None)
    os.chdir(cwd)
    sys.path.insert(0, str(ROOT))
    sys.argv = [script, *words]
    assert set(HEAVY) <= sys.modules.keys(), "the server passes over what it cannot import"
    multiprocessing.set_forkserver_preload(GAMES)  # demonstrations are played by a server of its own, without torch
    runpy.run_path(script, run_name="__main__")
