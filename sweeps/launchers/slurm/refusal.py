"""Explain in one line why sbatch rejected a job, with the key to change."""

import re

from scpo.errors import ConfigError

# (pattern in sbatch's message, key of the site's file, what to set). The first match wins: messages
# about accounts, for example, also mention partitions.
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

# The same pattern as the last one, for requests with a type of GPU: no node has that type, or not
# so many of them.
GPUS_OF_NODES = (
    "node configuration",
    "gres",
    "gres: <as `sinfo -o %G` names the GPUs>, or partition: <one with so many>",
)
UNSURE = re.compile(
    r"timed out|unable to contact|connection refused|communication|slurm_persist", re.IGNORECASE
)
"""Messages without an answer of slurmctld: the job may be queued all the same."""


class RefusedError(ConfigError):
    """Slurm did not take a submission; nothing of it is queued."""


def explain_refusal(message: str, asked: str, site: str) -> str:
    """One line: sbatch's message, the request, and the key of the site file to change."""
    text = words_of(message)
    keys = (*KEYS[:-1], GPUS_OF_NODES, KEYS[-1]) if "gres " in asked else KEYS
    for pattern, key, fix in keys:
        if re.search(pattern, text, re.IGNORECASE):
            again = "and give the same command again"
            return f"sbatch: {text} ({asked}). {site}: {key}; set {fix}, {again}"
    return f"sbatch: {text} ({asked}). See {site} and launcher.*, and give the same command again"


def words_of(message: str) -> str:
    """A message of sbatch or srun as one line, without the command's name."""
    lines = [
        re.sub(r"^(sbatch|srun):( error:)?", "", line).strip() for line in message.splitlines()
    ]
    return "; ".join(dict.fromkeys(line for line in lines if line)) or "no reason given"
