"""Explain in one line why sbatch rejected a job, and which key to change or what to do."""

import re

from scpo.errors import ConfigError

AGAIN = "give the same command again"

# (pattern in sbatch's message, what to do). Limits and states, which no key of the site file names
# by itself. Before the message of a limit, sbatch prints the limit's name, such as
# QOSMaxSubmitJobPerUserLimit or AssocMaxWallDurationPerJobLimit.
LIMITS = (
    (
        "SubmitJob|MaxJobCount",
        "A limit on the jobs that are queued and running: {again} when some have ended, or with a "
        "qos in {site} that allows more (`sacctmgr show qos format=name,maxsubmitpu,grpsubmit`, "
        "`sacctmgr show associations user=$USER`)",
    ),
    (
        "WallDuration|WallPerJob",
        "A limit on the time of a job: set max_time_h in {site} (or launcher.time_h) to at most "
        "that limit (`sacctmgr show qos format=name,maxwall`), or another qos, and {again}",
    ),
    (
        r"\b(QOS|Assoc|Max|Min|Grp)\w*(GRES|TRES|CPU|Mem|Node)",
        "A limit on the size of a job or on what is in use: set launcher.gpus, launcher.cpus or, "
        "in {site}, memory_gb within it, or another qos (`sacctmgr show qos "
        "format=name,maxtres,maxtrespu,mintres,grptres`), and {again}",
    ),
    (
        "violates accounting",
        "A limit of the QOS or the account, whose name sbatch did not give: {again} when jobs have "
        "ended, or set max_time_h, qos or account in {site} (`sacctmgr show qos`, "
        "`sacctmgr show associations user=$USER`)",
    ),
    (
        "rate limit exceeded|submissions disabled",
        "Slurm takes no jobs at the moment: {again} later",
    ),
)

# (pattern in sbatch's message, key of the site file, what to set). The first pattern that matches
# is used, so the order matters: messages about accounts, for example, also mention partitions.
KEYS = (
    ("qos usage threshold", "qos", "qos: <another one>; the account has used up this one"),
    ("account|association", "account", "account: <one of `sacctmgr show associations user=$USER`>"),
    ("qos", "qos", "qos: <one that your account has>"),
    (
        "user's group|permission denied",
        "partition",
        "partition: <one that your groups and account may use, `scontrol show partition`>",
    ),
    ("partition", "partition", "partition: <one that `sinfo` shows>"),
    (
        r"gres|generic resource|\bgpus?\b",
        "gres",
        "gres: <as `sinfo -o %G` names the GPUs>, for example gpu:a800",
    ),
    ("feature|constraint", "constraint", "constraint: <one that `sinfo -o %f` shows>"),
    ("time limit|timelimit", "max_time_h", "max_time_h: <the partition's limit, `sinfo -o %l`>"),
    ("memory", "memory_gb", "memory_gb: null (the partition's default) or 0 (the whole node)"),
    ("licen[sc]e", "more", "more: {licenses: <as `scontrol show licenses` names them>}"),
    ("reservation", "more", "more: {reservation: <one of `scontrol show reservation`>}"),
    ("wckey", "more", "more: {wckey: <one of `sacctmgr show wckey`>}"),
    (
        "node configuration|node count|cpu count|more processors",
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
    """One line: sbatch's message, the request, and the site file's key to change or what to do.

    Args:
        message: Output of sbatch.
        asked: The rejected request, such as ``gres gpu:a800, 4 GPUs``.
        site: ``launcher.site``: the site file, or the name of a preset.
    """
    text = words_of(message)
    for pattern, answer in LIMITS:
        if re.search(pattern, text, re.IGNORECASE):
            return f"sbatch: {text} ({asked}). {answer.format(site=site, again=AGAIN)}"
    keys = list(KEYS)
    if "gres " in asked:
        keys.insert(len(keys) - 1, GPUS_OF_NODES)
    for pattern, key, fix in keys:
        if re.search(pattern, text, re.IGNORECASE):
            return f"sbatch: {text} ({asked}). {site}: {key}; set {fix}, and {AGAIN}"
    return f"sbatch: {text} ({asked}). See {site} and launcher.*, and {AGAIN}"


def words_of(message: str) -> str:
    """A message of sbatch or srun in one line, without the command's name and repeated lines."""
    lines = []
    for line in message.splitlines():
        text = re.sub(r"^(sbatch|srun):( error:)?", "", line).strip()
        if text and text not in lines:
            lines.append(text)
    return "; ".join(lines) or "no reason given"
