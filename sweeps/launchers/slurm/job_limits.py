"""The cluster's limits on arrays and jobs, and how submissions keep within them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scpo.errors import ConfigError


@dataclass(frozen=True)
class JobLimits:
    """Limits of the cluster and of the user's account; None: no limit, or Slurm does not know one.

    Attributes:
        array_size: Jobs of one array (slurm.conf's MaxArraySize).
        submitted: Jobs of the user that may be queued or running at a time (MaxSubmitJobs).
        running: Jobs of the user that may run at a time (MaxJobs).
    """

    array_size: int | None = None
    submitted: int | None = None
    running: int | None = None


def smallest(limits: Sequence[int | None]) -> int | None:
    """The smallest of the known limits; None without any."""
    return min((limit for limit in limits if limit is not None), default=None)


def array_size_of(config_lines: Sequence[str]) -> int | None:
    """MaxArraySize of ``scontrol show config``; None if it is not listed.

    0 there means that arrays are disabled: every job is then an array of one.
    """
    for line in config_lines:
        key, _, value = line.partition("=")
        if key.strip() == "MaxArraySize" and value.strip().isdigit():
            return max(1, int(value))
    return None


def split(names: Sequence[str], array_size: int | None) -> list[list[str]]:
    """Split runs into parts of nearly equal size, each small enough for one array."""
    if array_size is None or len(names) <= array_size:
        return [list(names)]
    parts = math.ceil(len(names) / array_size)
    size = math.ceil(len(names) / parts)
    return [list(names[start : start + size]) for start in range(0, len(names), size)]


def shares(sizes: Sequence[int], running: int, array_size: int | None = None) -> list[int]:
    """Distribute ``running`` concurrent jobs over arrays in proportion to their sizes.

    Each array gets at least one.

    Args:
        sizes: Jobs of each array.
        running: Jobs that may run at a time.
        array_size: The cluster's limit, which split the runs into arrays, for the message.

    Raises:
        ConfigError: There are more arrays than jobs that may run.
    """
    if not sizes:
        return []
    if len(sizes) > running:
        limit = "" if array_size is None else f" (the cluster's MaxArraySize is {array_size})"
        raise ConfigError(
            f"launcher.parallelism={running} jobs may run at a time, and these runs make "
            f"{len(sizes)} arrays{limit}, of which each must run one; allowed: {len(sizes)} and "
            "more, or fewer rows in a call"
        )

    # Give one slot at a time to the array with the most runs per slot.
    given = [1] * len(sizes)
    for _ in range(running - len(sizes)):
        pairs = zip(sizes, given, strict=True)
        waiting = [size / share if share < size else 0.0 for size, share in pairs]
        if not any(waiting):
            break
        given[waiting.index(max(waiting))] += 1
    return given


def parse_fields(lines: Sequence[str], names: Sequence[str]) -> list[Mapping[str, str]]:
    """Rows of ``sacctmgr --parsable2`` by the names of their columns.

    Lines with another number of fields are left out: notices of the site, and rows that are cut
    off, of which a limit may have lost digits.
    """
    rows: list[Mapping[str, str]] = []
    for line in lines:
        fields = line.split("|")
        if len(fields) == len(names):
            rows.append(dict(zip(names, fields, strict=True)))
    return rows


def number(text: str | None) -> int | None:
    """Parse a limit as sacctmgr prints it: empty means no limit."""
    return int(text) if text and text.isdigit() else None
