"""Run pip so that its user sees how it gets on, and say in one line what it failed of. Standard library only."""

import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

AGAIN = "then give the same command again"
COMPILED = "jericho and fast-downward-textworld, which TextWorld needs"
COMPILERS = "Debian, Ubuntu: apt-get install build-essential; macOS: xcode-select --install"
SILENCE_S = 10.0

CAUSES = (  # in pip's messages; the first that matches is the cause of the others
    (
        r"No space left on device|Errno 28\b|Disk quota exceeded|Errno 122\b",
        "the disk is full. Make room there, in the folder of temporary files ({temporary}; TMPDIR names another) or in "
        "pip's cache (`pip cache purge`), {again}",
    ),
    (
        r"NewConnectionError|Failed to establish a new connection|name resolution|Name or service not known"
        r"|Network is unreachable|Connection refused|Max retries exceeded|ProxyError|timed out|ConnectTimeout"
        r"|Connection aborted|Connection broken|ConnectionResetError|SSLError|CERTIFICATE_VERIFY_FAILED",
        "no package index can be reached. Look at the network, and at a proxy (HTTPS_PROXY) or mirror (PIP_INDEX_URL), "
        "{again}; what pip has downloaded it keeps",
    ),
    (
        r"Permission denied|Read-only file system",
        "a folder cannot be written; the lines above name it. Make it yours, {again}",
    ),
    (
        r"No matching distribution found",
        "the package index has no build of a package for Python {python} on {machine}; the lines above name it. "
        "Try another Python: make setup PYTHON=python3.11",
    ),
    (
        r"[Ff]ailed to build|Failed building wheel|subprocess-exited-with-error|metadata-generation-failed",
        "a package could not be compiled; the lines above name it. {compiled}, need make, a C and a C++ compiler "
        "({compilers}), {again}",
    ),
)


class InstallationError(Exception):
    """What is in the way, and what to do about it."""


def command(python: Path, pins: Path) -> list[str]:
    """How pip is called: as a module, for a script's first line holds no long path and none with spaces."""
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(pins)]


def run(arguments: Sequence[str]) -> None:
    """Run pip: its progress bars on a terminal; its lines, and one of ours in each long silence, elsewhere.

    Raises:
        InstallationError: pip failed; its own lines were shown.
    """
    bars = sys.stdout.isatty()
    # The build of fast-downward-textworld calls `python`, which Debian does not have outside an environment.
    path = os.pathsep.join([str(Path(arguments[0]).parent.absolute()), os.environ.get("PATH", os.defpath)])
    process = subprocess.Popen(
        arguments,
        stdout=None if bars else subprocess.PIPE,
        stderr=subprocess.PIPE if bars else subprocess.STDOUT,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
        text=True,
        errors="replace",
    )
    lines = process.stderr if bars else process.stdout
    assert lines is not None  # noqa: S101 (for mypy: one of the two is a pipe)
    try:
        last = _relay(lines, silence_s=None if bars else SILENCE_S)
    finally:
        status = process.wait()  # a Ctrl-C reaches pip too
    if status != 0:
        raise InstallationError(cause("".join(last), f"pip ended with exit status {status}; the lines above say why"))


def _relay(lines: Iterable[str], silence_s: float | None) -> list[str]:
    """Pass lines on to stderr as they come; returns the last of them."""
    last: deque[str] = deque(["pip starts"], maxlen=400)
    heard, ended = [time.monotonic()], threading.Event()

    def sign_of_life(after_s: float) -> None:
        while not ended.wait(after_s):
            silence = time.monotonic() - heard[0]
            if silence >= after_s:
                say(f"  ... {silence:.0f} s since: {last[-1].strip()[:100]}")

    if silence_s is not None:
        threading.Thread(target=sign_of_life, args=(silence_s,), daemon=True).start()
    try:
        for line in lines:
            heard[0] = time.monotonic()
            last.append(line)
            sys.stderr.write(line)
            sys.stderr.flush()
    finally:
        ended.set()
    return list(last)


def cause(text: str, otherwise: str) -> str:
    """What messages of pip, venv or the system mean, and what to do."""
    facts = {
        "again": AGAIN,
        "temporary": tempfile.gettempdir(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "compiled": COMPILED,
        "compilers": COMPILERS,
    }
    return next((meaning.format(**facts) for pattern, meaning in CAUSES if re.search(pattern, text)), otherwise)


def say(line: str) -> None:
    """One line for whoever waits."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
