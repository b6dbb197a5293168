"""Memory in use on this machine: peak of a run's process tree, and of its GPUs."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT_S = 20


def installed_gpus() -> list[tuple[str, float]]:
    """Name and total memory (GiB) of each GPU."""
    rows = [line.rsplit(",", 1) for line in ask("name,memory.total") if "," in line]
    return [(name.strip(), float(mib) / 1024) for name, mib in rows]


def driver_version() -> str | None:
    """For example 580.65.06; None: there is no driver."""
    lines = ask("driver_version")
    return lines[0].strip() if lines else None


def ask(fields: str) -> list[str]:
    """A line for each GPU; none where there is no driver, or where it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


GIB = 1 << 30


POLL_S = 2.0  # allocators keep what they have taken, so that a peak is there to be seen


HOST, GPU = "perf/node_memory_gib", "perf/node_gpu_gib"


QUERY = "index,uuid,memory.used"


class NodeMemory:
    """Samples in a thread of its own while it is open.

    ``perf/node_memory_gib``: resident memory of process ``root`` and all that descend from it, less files and shared
    memory, which several of them would count. ``perf/node_gpu_gib``: memory in use on the fullest of the ``gpus``
    (as CUDA_VISIBLE_DEVICES names them; empty: all; None: the run uses none), by whomever. Neither where the system
    does not tell.
    """

    def __init__(self, root: int | None = None, gpus: str | None = None, poll_s: float = POLL_S) -> None:
        self._root, self._gpus, self._poll_s = root or os.getpid(), gpus, poll_s
        self._peaks: dict[str, float] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="node-memory", daemon=True)

    def take(self) -> dict[str, float]:
        """The peaks since the last call, by their names in the logs, the present moment included."""
        self._look()
        with self._lock:
            taken, self._peaks = self._peaks, {}
        return taken

    def _watch(self) -> None:
        while not self._over.wait(self._poll_s):
            self._look()

    def _look(self) -> None:
        gpus = {} if self._gpus is None else used_gib(self._gpus)
        found = {HOST: tree_gib(self._root), GPU: max(gpus.values(), default=0.0)}
        with self._lock:
            self._peaks |= {name: max(gib, self._peaks.get(name, 0.0)) for name, gib in found.items() if gib}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


def used_gib(visible: str = "", ask: Callable[[str], list[str]] = ask) -> dict[str, float]:
    """GiB in use on each GPU, by its number; of those that ``visible`` names. Empty where there is no driver."""
    chosen = [one.strip() for one in visible.split(",") if one.strip()]
    used = {}
    for line in ask(QUERY):
        number, uuid, mib = (part.strip() for part in line.split(","))
        if not chosen or any(one == number or (len(one) > 3 and uuid.startswith(one)) for one in chosen):
            used[number] = float(mib) / 1024
    return used


def tree_gib(root: int, proc: Path = Path("/proc")) -> float:
    """GiB of a process and its descendants; 0 where there is no /proc."""
    children, pages = defaultdict(list), {}
    for folder in proc.glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        children[parent].append(int(folder.name))
        pages[int(folder.name)] = resident - shared
    waiting, total = [root], 0
    while waiting:
        one = waiting.pop()
        total += pages.get(one, 0)
        waiting += children[one]
    return total * os.sysconf("SC_PAGE_SIZE") / GIB
