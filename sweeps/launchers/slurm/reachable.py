"""Folders that a job needs and nodes may not see: code, run folders, Python environment."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from scpo.errors import ConfigError
from sweeps.launchers.slurm.scheduler import node_names
from sweeps.records.file_systems import NETWORK_FILE_SYSTEMS, VOLATILE_FILE_SYSTEMS, file_system


def needed_on_nodes(runs_dir: Path) -> dict[str, Path]:
    """Name -> folder of what a job reads or writes on its node."""
    return {
        "machine.runs_dir (with the snapshot of the code)": runs_dir.absolute(),
        "the Python environment": Path(sys.prefix),
    }


def local_folders(runs_dir: Path) -> Iterator[tuple[str, Path, str]]:
    """(name, folder, file system) of what lies on no network file system."""
    nodes = node_names()
    if not nodes or socket.gethostname().partition(".")[0] in nodes:
        return  # no Slurm to ask, or a cluster of which this host is a node
    for name, folder in needed_on_nodes(runs_dir).items():
        kind = file_system(folder)
        if kind not in NETWORK_FILE_SYSTEMS:
            yield name, folder, kind


def check_reachable(runs_dir: Path) -> None:
    """Reject submissions of jobs whose files are in this host's memory.

    Other local disks only cause a warning of the doctor: some network file systems look like one.

    Raises:
        ConfigError: A folder that jobs need is on a tmpfs or ramfs, and this host is not a node.
    """
    for name, folder, kind in local_folders(runs_dir):
        if kind in VOLATILE_FILE_SYSTEMS:
            raise ConfigError(
                f"{name} lies in {folder}, on {kind}: in this host's memory, where no node can "
                "read it. Move it to a file system that the nodes share"
            )
