"""Parse the job lines of squeue and sacct, between which a site may print lines of its own."""

import re
from collections.abc import Iterator, Sequence

from scpo.errors import ScpoError

# A job (103), the leader or a component of a heterogeneous job (104+1), an element of an array
# (102_3), or the waiting elements of an array as a group (102_[3,5-7,10-20:2%4]; %4: so many may
# run at a time).
JOB_ID = re.compile(r"\d+(\+\d+|_\d+)?|(?P<array>\d+)_\[(?P<parts>[^]%]+)(%\d+)?\]")
PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")

# Beginning of a line that is about a job: an id, or as much of it as was printed. The lines of a
# job's steps (103.batch) and notices ("3 nodes are down") begin otherwise.
ABOUT_A_JOB = re.compile(r"\s*\d+(_\[[^|\s]*|[_+][^|.\s]*)?\s*(\||$)")

# A state, and words after it as in "CANCELLED by 1000". Where the column is too narrow, Slurm ends
# the word with +.
STATE = re.compile(r"(?P<word>[A-Z_]+)\+?( .*)?")

# States of sacct in which a job is over. A requeued job is listed with its present state.
ENDS = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


class CutOffError(ScpoError, ValueError):
    """A job line is incomplete, so other lines may be missing too."""


def parse_job_lines(lines: Sequence[str], columns: int) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and further fields of each job line; lines that are not about a job are skipped.

    A line has several ids if it describes a group of waiting elements of an array.

    Args:
        lines: Lines of ``id|state|...``.
        columns: Number of fields of a line. The last one may contain the separator.

    Raises:
        CutOffError: A line begins as a job's and lacks fields, or its id or state is incomplete.
    """
    for line in lines:
        if not ABOUT_A_JOB.match(line):
            continue
        id_, *fields = line.strip().split("|", columns - 1)
        ids = _expand(id_.strip())
        if ids is None or len(fields) != columns - 1 or not STATE.fullmatch(fields[0].strip()):
            raise CutOffError(f"not a complete line about a job: {line!r}")
        yield ids, [field.strip() for field in fields]


def state_word(state: str) -> str:
    """The state without what follows it: CANCELLED for ``CANCELLED by 1000, exit status 1``."""
    found = STATE.match(state)
    return found["word"] if found else state


def is_end(state: str) -> bool:
    """True if a job in this state of sacct is over."""
    return state_word(state) in ENDS


def _expand(id_: str) -> list[str] | None:
    """The ids of a group, or the id itself; None if it is incomplete.

    Slurm shortens a long group (``102_[3,5,...]``), whose ids are then unknown.
    """
    found = JOB_ID.fullmatch(id_)
    if found is None:
        return None
    array = found["array"]
    if array is None:
        return [id_]
    ids = []
    for text in found["parts"].split(","):
        part = PART.fullmatch(text)
        if part is None:
            return None
        first, last, step = part.groups()
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            ids.append(f"{array}_{index}")
    return ids
