"""Follow the logs of runs, whichever attempt is on them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from scpo.errors import ScpoError
from scpo.records import RunFolder, State
from sweeps.launchers.run_process import tail
from sweeps.terminal import say

POLL_S = 0.5


@dataclass
class _Followed:
    """A run's newest log, and how much of it was shown."""

    folder: RunFolder
    path: Path | None = field(default=None)
    shown: int = 0

    def begin(self, lines: int) -> list[str]:
        """The end of what there is."""
        self.path = self._newest()
        self.shown = self.path.stat().st_size if self.path.exists() else 0
        return tail(self.path, lines)

    def new(self) -> list[str]:
        """Whole lines that came since; of a new attempt, all."""
        path = self._newest()
        if path != self.path:
            self.path, self.shown = path, 0
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self.shown)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.shown += len(whole)
        return whole.decode(errors="replace").splitlines()

    @property
    def over(self) -> bool:
        """Whether no more will come unless somebody starts it again."""
        try:
            return self.folder.read_status().state not in (State.RUNNING, State.PENDING)
        except ScpoError:
            return True

    def _newest(self) -> Path:
        return self.folder.latest.resolve() / "stdout.log"


def follow(console: Console, folders: Sequence[RunFolder], lines: int) -> None:
    """Show the ends of the logs and new lines, prefixed with the run id, until all runs end."""
    followed = [_Followed(folder) for folder in folders]
    for one in followed:
        _show(console, one, one.begin(lines))
    while True:
        over = all(
            one.over for one in followed
        )  # asked first: the last lines are written before the state
        for one in followed:
            _show(console, one, one.new())
        if over:
            return
        time.sleep(POLL_S)


def _show(console: Console, one: _Followed, lines: Sequence[str]) -> None:
    for line in lines:
        say(console, f"{one.folder.run_id}  {line}")
