"""Folders that a job needs and nodes may not see: code, run folders, Python environment."""

import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from scpo.errors import ConfigError
from scpo.schema.model import HuggingFaceModel, is_folder_path
from scpo.schema.run import RunConfig
from sweeps.launchers.slurm.node_probe import Answer, Need, ProbedPartition
from sweeps.launchers.slurm.scheduler import node_names
from sweeps.records.file_systems import NETWORK_FILE_SYSTEMS, VOLATILE_FILE_SYSTEMS, file_system

# Exit status of a job whose node cannot read the code or Python (sysexits.h: EX_CONFIG).
NOT_REACHABLE = 78

Probe = Callable[[ProbedPartition, Sequence[Need], int], Answer]
"""Test of the needs of jobs on a node, within a number of seconds; see ``node_probe.ask_node``."""


def needed_on_nodes(runs_dir: Path) -> dict[str, Path]:
    """Folders that a job reads or writes on its node, by name."""
    return {
        "machine.runs_dir (with the snapshot of the code)": runs_dir.absolute(),
        "the Python environment": Path(sys.prefix),
    }


def needs_of_jobs(runs_dir: Path, snapshot: Path) -> tuple[Need, ...]:
    """Paths that every job of this snapshot uses on its node."""
    return (
        Need("the snapshot of the code", snapshot / "train.py", "r"),
        Need("the Python of the environment", Path(sys.executable), "x"),
        Need("machine.runs_dir", runs_dir, "w"),
    )


def is_outside() -> bool:
    """True if jobs run on other hosts than this one; False if Slurm does not answer."""
    nodes = node_names()
    return bool(nodes) and socket.gethostname().partition(".")[0] not in nodes


def local_folders(runs_dir: Path) -> Iterator[tuple[str, Path, str]]:
    """(name, folder, file system) of the needed folders that are not on a network file system.

    Empty on a node, where jobs run on this host, and if Slurm does not answer.
    """
    if is_outside():
        yield from folders_on_local_disks(runs_dir)


def folders_on_local_disks(runs_dir: Path) -> Iterator[tuple[str, Path, str]]:
    """Like ``local_folders``, but on any host: for callers that do not know where jobs run."""
    for name, folder in needed_on_nodes(runs_dir).items():
        kind = file_system(folder)
        if kind not in NETWORK_FILE_SYSTEMS:
            yield name, folder, kind


def missing_models(configs: Iterable[RunConfig]) -> list[str]:
    """One line for each model folder that is not on this host; a node may have it all the same."""
    paths = [config.model.path for config in configs if isinstance(config.model, HuggingFaceModel)]
    return [
        f"model.path={path}: there is no such folder on this machine; a job ends with an error as "
        "it loads the model, unless its node has it. Otherwise: model.path=<a folder with "
        "config.json that the nodes see, or a hub name>"
        for path in dict.fromkeys(paths)
        if is_folder_path(path) and not Path(path).is_dir()
    ]


def check_reachable(runs_dir: Path) -> None:
    """Reject submissions of jobs whose files are in this host's memory.

    Disks that look local are not refused, because some network file systems look local too;
    ``check_on_node`` asks a node about them.

    Raises:
        ConfigError: A folder that jobs need is on a tmpfs or ramfs, and this host is not a node.
    """
    for name, folder, kind in local_folders(runs_dir):
        if kind in VOLATILE_FILE_SYSTEMS:
            raise ConfigError(
                f"{name} lies in {folder}, on {kind}: in this host's memory, where no node can "
                "read it. Move it to a file system that the nodes share"
            )


def check_on_node(
    partition: ProbedPartition, needs: Sequence[Need], wait_s: int, probe: Probe
) -> str:
    """Let a node test the needs of jobs; returns one line, also if no node answered in time.

    Raises:
        ConfigError: The node lacks something; jobs there would end at once.
    """
    answer = probe(partition, needs, wait_s)
    if answer.lacking:
        lacking = ", ".join(f"cannot {need}" for need in answer.lacking)
        raise ConfigError(
            f"node {answer.node} ({partition}) {lacking}. Nothing was submitted. Move it to a file "
            "system that the nodes share (run folders: machine.runs_dir=<a folder there>; Python: "
            "make the environment there), or submit without this test: launcher.probe_s=0"
        )
    if answer.node is None:
        return (
            f"not tested if nodes can read the code and Python: {answer.why}. Each job tests it on "
            f"its node, and ends with one line (exit status {NOT_REACHABLE}) if the node cannot"
        )

    named = ", ".join(need.name for need in needs)
    return f"node {answer.node} ({partition}) can use {named}"
