"""Explain in one line why sbatch rejected a job, and which key of the site file to change."""

import re

from scpo.errors import ConfigError

# (pattern in sbatch's message, key of the site file, what to set). The first pattern that matches
# is used, so the order matters: messages about accounts, for example, also mention partitions.
KEYS = (
    ("account|association", "account", "account: <one of `sacctmgr show associations user=$USER`>"),
    ("qos", "qos", "qos: <one that your account has>"),
    ("partition", "partition", "partition: <one that `sinfo` shows>"),
    (
        "gres|generic resource|gpus",
        "gres",
        "gres: <as `sinfo -o %G` names the GPUs>, for example gpu:a800",
    ),
    ("feature|constraint", "constraint", "constraint: <one that `sinfo -o %f` shows>"),
    ("time limit|timelimit", "max_time_h", "max_time_h: <the partition's limit, `sinfo -o %l`>"),
    ("memory", "memory_gb", "memory_gb: null (the partition's default) or 0 (the whole node)"),
    (
        "node configuration|node count|cpu count",
        "partition",
        "partition: <one whose nodes have that much>",
    ),
)

# If a job asks for a type of GPU, "node configuration" means that no node has this type, or enough
# GPUs of it. Tried before the last entry of KEYS, which matches the same message.
GPUS_OF_NODES = (
    "node configuration",
    "gres",
    "gres: <as `sinfo -o %G` names the GPUs>, or partition: <one with so many>",
)
UNSURE = re.compile(
    r"timed out|unable to contact|connection refused|communication|slurm_persist", re.IGNORECASE
)
"""Errors of sbatch or srun when slurmctld does not answer: the job may be queued nevertheless."""


class RefusedError(ConfigError):
    """Slurm rejected a submission; none of its jobs is queued."""


def explain_refusal(message: str, asked: str, site: str) -> str:
    """One line: sbatch's message, the request, and the key of the site file to change.

    Args:
        message: Output of sbatch.
        asked: The rejected request, such as ``gres gpu:a800, 4 GPUs``.
        site: ``launcher.site``: the site file, or the name of a preset.
    """
    text = words_of(message)
    keys = list(KEYS)
    if "gres " in asked:
        keys.insert(len(keys) - 1, GPUS_OF_NODES)
    for pattern, key, fix in keys:
        if re.search(pattern, text, re.IGNORECASE):
            again = "and give the same command again"
            return f"sbatch: {text} ({asked}). {site}: {key}; set {fix}, {again}"
    return f"sbatch: {text} ({asked}). See {site} and launcher.*, and give the same command again"


def words_of(message: str) -> str:
    """A message of sbatch or srun in one line, without the command's name and repeated lines."""
    lines = []
    for line in message.splitlines():
        text = re.sub(r"^(sbatch|srun):( error:)?", "", line).strip()
        if text and text not in lines:
            lines.append(text)
    return "; ".join(lines) or "no reason given"
