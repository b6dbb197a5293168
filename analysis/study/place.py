"""Where a page and its archive are: links between them, and the command that writes the page."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Place:
    """The archive and the page of a command, and those that are tracked.

    Attributes:
        command: ``study`` or ``meaning``.
        archive: The archive that the page is written from.
        page: The page.
        tracked_archive: The command's own archive.
        tracked_page: The page of that archive.
    """

    command: str
    archive: Path
    page: Path
    tracked_archive: Path
    tracked_page: Path

    @property
    def tracked(self) -> bool:
        """True for the command's own archive, whose texts and figures are of that study."""
        return self.archive == self.tracked_archive

    def link(self, path: str | Path) -> str:
        """Target of a link from the page to a file or folder."""
        return quote(Path(os.path.relpath(path, self.page.parent)).as_posix())

    @property
    def command_line(self) -> str:
        """The command that writes the page from the archive, without adding runs."""
        words = ["python", "-m", "analysis", self.command]
        if not self.tracked:
            words += ["--archive", str(self.archive)]
        if self.page != self.tracked_page:
            words += ["--page", str(self.page)]
        return shlex.join(words)
