"""Which launcher a configuration asks for."""

from collections.abc import Sequence
from pathlib import Path

from scpo.schema import RunConfig, SlurmLauncher
from sweeps.local.slot_pool import Board, Pool, slots_for
from sweeps.slurm.launcher import Cluster
from sweeps.slurm.scheduler import Slurm
from sweeps.slurm.submission import slurm_submit


def launcher_for(configs: Sequence[RunConfig], train_script: Path, board: Board) -> Pool | Cluster:
    """A launcher for these runs; both kinds have ``free``, ``start``, ``poll``, ``stop`` and ``signals``."""
    first = configs[0]
    if isinstance(first.launcher, SlurmLauncher):
        return Cluster(first.launcher, Path(first.machine.runs_dir), Slurm(), slurm_submit)
    return Pool(train_script, slots_for(configs), board)
