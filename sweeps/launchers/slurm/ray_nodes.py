"""Shell lines of a multi-node job that start Ray on each node before the run starts."""

import shlex
import sys
from pathlib import Path

from sweeps.estimates import Resources

FIRST_NODE = ("--nodes=1", "--ntasks=1", "--overlap")
"""Options of srun for the run itself: one process, which shares its node with Ray's."""
QUIET = '""'


def ray_lines(needed: Resources) -> list[str]:
    """Shell lines; none for a job of one node, whose run starts a Ray of its own.

    The port follows the job's number, for a node may hold jobs of several; Ray's own files lie on
    each node's disk, its token in the home folder, which the nodes share. Slurm's warning before
    the time limit reaches every process of the job: Ray lets it pass, so that the run can still
    write its checkpoint.
    """
    if needed.nodes == 1:
        return []
    ray = shlex.quote(str(Path(sys.executable).with_name("ray")))
    return [
        # Without a token, any user who reaches the node can run code in our name.
        "export RAY_AUTH_MODE=token",
        f"{ray} get-auth-token --generate >/dev/null",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export RAY_ADDRESS=$first:$((20000 + SLURM_JOB_ID % 20000))",
        f'srun {_on(1, needed)} --nodelist="$first" '
        f"{_start('--head --port=${RAY_ADDRESS#*:}', needed)} &",
        "ray_steps=$!",
        f'srun {_on(needed.nodes - 1, needed)} --exclude="$first" '
        f"{_start('--address=$RAY_ADDRESS', needed)} &",
        'ray_steps="$ray_steps $!"',
        "trap 'kill $ray_steps' EXIT",
    ]


def _on(nodes: int, needed: Resources) -> str:
    return (
        f"--nodes={nodes} --ntasks={nodes} --overlap --cpus-per-task={needed.cpus} "
        "--kill-on-bad-exit=0"
    )


def _start(how: str, needed: Resources) -> str:
    """``ray start`` with retries: other nodes may be ready before the first one opens its port."""
    ray = shlex.quote(str(Path(sys.executable).with_name("ray")))
    head = " --temp-dir=/tmp/ray-$SLURM_JOB_ID" if how.startswith("--head") else ""
    command = (
        f"{ray} start {how}{head} --num-gpus={needed.gpus} --num-cpus={needed.cpus} --block "
        "--disable-usage-stats"
    )
    tries = f"for try in 1 2 3 4 5 6; do {command} && exit; sleep 10; done; exit 1"
    return f"bash -c {shlex.quote(f'trap {QUIET} USR2; {tries}')}"
