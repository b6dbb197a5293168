"""Memory in use by a run's processes and on its GPUs; free memory, the driver's GPUs, usable cores.

torch counts the memory of one process only. The memory of all processes is comparable with the
paper's 33.5 GB without and 35.2 GB with the scorer, which is a process of its own here.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

GIB = 1 << 30

# Seconds between samples. Allocators keep their memory, so peaks last long enough to be found.
POLL_S = 2.0
HOST, GPU = "perf/node_memory_gib", "perf/node_gpu_gib"
DRIVER_TIMEOUT_S = 20
MEMORY_QUERY = "index,uuid,memory.used"


def usable_cores() -> int:
    """Number of cores that this process may use, by the mask of its job or container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    # macOS has no CPU masks.
    return os.cpu_count() or 1


class NodeMemory:
    """Samples memory in a thread while it is open.

    ``perf/node_memory_gib``: resident memory of process ``root`` and its descendants, without files
    and shared memory, which would count several times. ``perf/node_gpu_gib``: memory in use on the
    fullest GPU, by any process. A measure that the system does not provide is left out.

    Args:
        root: The process; None: this one.
        gpus: The GPUs to look at, as CUDA_VISIBLE_DEVICES names them; empty: all; None: none.
        poll_s: Seconds between two samples.
    """

    def __init__(
        self, root: int | None = None, gpus: str | None = None, poll_s: float = POLL_S
    ) -> None:
        self._root = root or os.getpid()
        self._gpus = gpus
        self._poll_s = poll_s
        self._peaks: dict[str, float] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="node-memory", daemon=True)

    def take(self) -> dict[str, float]:
        """Peaks since the last call, by metric name; takes a sample first."""
        self._sample()
        with self._lock:
            # Reset, so that the peak of one step does not include earlier ones.
            taken = self._peaks
            self._peaks = {}
        return taken

    def _watch(self) -> None:
        while not self._over.wait(self._poll_s):
            self._sample()

    def _sample(self) -> None:
        gpus = {} if self._gpus is None else used_gib(self._gpus)
        sample = {HOST: tree_gib(self._root), GPU: max(gpus.values(), default=0.0)}
        with self._lock:
            for name, gib in sample.items():
                if gib:
                    self._peaks[name] = max(gib, self._peaks.get(name, 0.0))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()


def tree_gib(root: int, proc: Path = Path("/proc")) -> float:
    """Resident memory in GiB of a process and its descendants; 0 on systems without /proc."""
    children = defaultdict(list)
    pages = {}
    for folder in proc.glob("[0-9]*"):
        try:
            # A process name may contain spaces and parentheses; fields start after the last ")".
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
        except (OSError, ValueError):
            # The process has ended meanwhile.
            continue
        process = int(folder.name)
        children[parent].append(process)
        # Without shared pages, which would count once for each process that maps them.
        pages[process] = resident - shared

    waiting = [root]
    total = 0
    while waiting:
        process = waiting.pop()
        total += pages.get(process, 0)
        waiting += children[process]
    return total * os.sysconf("SC_PAGE_SIZE") / GIB


def free_gib(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """Memory in GiB that a new process can get, within a container's limit; None if unknown.

    The page cache counts as free, because the kernel gives it up for a process. Only Linux has
    these files.
    """
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    except OSError:
        return None
    free = int(lines["MemAvailable"].split()[0]) * 1024
    # No container, or one whose limit is the word "max".
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    return free / GIB


def query_driver(fields: str) -> list[str]:
    """Answer of nvidia-smi, a line per GPU; empty without a driver, or if it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return done.stdout.splitlines()


def used_gib(visible: str = "", ask: Callable[[str], list[str]] = query_driver) -> dict[str, float]:
    """GiB in use on each GPU by its index; only those that ``visible`` names, empty: all.

    GPUs for which the driver gives no number are left out.
    """
    chosen = [name.strip() for name in visible.split(",") if name.strip()]
    used = {}
    for line in ask(MEMORY_QUERY):
        index, _, rest = (part.strip() for part in line.partition(","))
        uuid, _, mib = (part.strip() for part in rest.partition(","))
        # CUDA accepts indices and prefixes of UUIDs. A name of up to three characters is an index.
        named = any(name == index or (len(name) > 3 and uuid.startswith(name)) for name in chosen)
        gib = _gib(mib)
        if gib is not None and (named or not chosen):
            used[index] = gib
    return used


def installed_gpus() -> list[tuple[str, float | None]]:
    """Name and total memory (GiB) of each GPU; None where the driver gives no number."""
    gpus = []
    for line in query_driver("name,memory.total"):
        name, comma, mib = line.rpartition(",")
        if comma:
            gpus.append((name.strip(), _gib(mib)))
    return gpus


def smallest_gib(gpus: Iterable[tuple[str, float | None]]) -> float | None:
    """Memory in GiB of the smallest of these GPUs whose size is known; None without one."""
    return min((gib for _, gib in gpus if gib is not None), default=None)


def _gib(mib: str) -> float | None:
    # GPUs that share the host's memory (GB10, Jetson) answer "[N/A]", broken ones "[GPU is lost]".
    try:
        return float(mib) / 1024
    except ValueError:
        return None


def visible_gpus() -> list[str]:
    """The GPUs that a child process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(index) for index in range(len(installed_gpus()))]
    names = [name.strip() for name in chosen.split(",")]
    return [name for name in names if name not in ("", "-1", "NoDevFiles")]


def driver_version() -> str | None:
    """Version of the driver, for example 580.65.06; None without a driver."""
    lines = query_driver("driver_version")
    return lines[0].strip() if lines else None
