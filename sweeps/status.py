"""Where each run stands, as `python -m sweeps status` tells it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from scpo.errors import RecordError
from scpo.tracking import RunFolder
from sweeps.slurm.observer import Look


@dataclass(frozen=True)
class Standing:
    """One line of the table. ``state`` is what `reconcile` shows, or DAMAGED with the reason as the remark."""

    run_id: str
    state: str
    step: int = 0
    steps: int = 0
    attempt: int = 0
    commit: str | None = None
    remark: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def standings(folders: Iterable[RunFolder], look: Look) -> list[Standing]:
    """One for each run."""
    return [_standing(folder, look) for folder in folders]


def _standing(folder: RunFolder, look: Look) -> Standing:
    try:
        seen, status = look.at(folder), folder.read_status()
        remarks = [status.reason or "", look.remark(folder, seen)]
    except RecordError as error:
        return Standing(folder.run_id, "DAMAGED", remark=str(error))
    return Standing(
        run_id=folder.run_id,
        state=seen.shown,
        step=status.step,
        steps=status.steps,
        attempt=status.attempt,
        commit=status.commit,
        remark="; ".join(filter(None, remarks)),
    )
