"""What a run logged, believed only as far as it is whole: for whoever makes numbers of it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from scpo.checksums import RunningSum
from scpo.errors import RecordError
from scpo.tracking.atomic import RUN_AGAIN, read_bytes
from scpo.tracking.folder import RunFolder
from scpo.tracking.jsonlines import JsonLines
from scpo.tracking.records import Status
from scpo.tracking.states import State


def read_whole(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` or ``timing.jsonl``; a last line that a kill has torn is left out.

    A run that goes on rewrites status and logs one after the other, so what does not fit is looked at once more.

    Raises:
        RecordError: Lines are damaged, lost or not those that the run wrote: none of its numbers can be believed.
    """
    try:
        return _read_once(folder, path)
    except RecordError:
        return _read_once(folder, path)


def _read_once(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    status = folder.read_status()
    data = read_bytes(path) if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    known = status.sums.get(path.name)
    if known is not None and RunningSum.of(whole).now() == known:
        # As they were written: there is nothing to look for.
        lines: list[dict[str, Any]] = json.loads(b"[" + whole[:-1].replace(b"\n", b",") + b"]")
    else:
        lines = JsonLines(path).parse(whole)  # first what says most: a line, a step, a sum
    if path == folder.metrics:
        _check_steps(folder, status, [line["step"] for line in lines])
    _check_sum(status, path, data)
    return lines


def _check_sum(status: Status, path: Path, data: bytes) -> None:
    known = status.sums.get(path.name)
    if known is None:
        return  # of an older version, or nothing is logged yet
    done = status.state is State.DONE
    if len(data) < known.bytes or (done and len(data) > known.bytes):
        raise RecordError(
            f"{path} holds {len(data)} bytes, the run has written {known.bytes}: lines were lost or added. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )
    if RunningSum.of(data[: known.bytes]).now() != known:
        raise RecordError(
            f"{path} does not hold what the run has written (sha256): it was edited or damaged. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )


def _check_steps(folder: RunFolder, status: Status, steps: list[int]) -> None:
    if any(after <= before for before, after in pairwise(steps)):
        raise RecordError(f"{folder.metrics}: steps do not ascend. {RUN_AGAIN}")
    last = steps[-1] if steps else 0
    if status.state is State.DONE and last != status.steps:
        raise RecordError(
            f"{folder.status} says DONE, but {folder.metrics} ends at step {last} of {status.steps}. {RUN_AGAIN}"
        )
    if status.state is not State.DONE and last < status.step:
        raise RecordError(
            f"{folder.metrics} ends at step {last}, and {folder.status} says {status.step}: lines were lost. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )
