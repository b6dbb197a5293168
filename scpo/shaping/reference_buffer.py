"""Buffer of each task's last success, as a reference for groups in which every sibling fails.

The paper gives such groups no credit. A stored reference was played by an earlier policy, so it
expires after ``max_age`` training steps. If no task is played twice it has no use: the paper's 150
steps of 16 tasks go through 2,400 of 3,553 games once.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

from scpo.errors import RecordError

Remembering = Literal["off", "last_success"]

# More than ALFWorld has training games. The texts take 2 kB per task, WebShop's pages 10 kB.
TASKS = 4096
FILE = "references.json.gz"
"""Name of the buffer's file in a checkpoint."""


class Remembered(NamedTuple):
    """Filtered step texts of a success, in reference order, and the training step it is from."""

    step: int
    texts: tuple[str, ...]


class ReferenceBuffer:
    """References by task id.

    Args:
        max_age: Training steps after which a reference expires; None: never.
        tasks: Largest number of tasks; beyond it the task with the oldest success is dropped.
    """

    def __init__(self, max_age: int | None, tasks: int = TASKS) -> None:
        self._max_age = max_age
        self._tasks = tasks
        # Ordered by age: the latest success is last.
        self._kept: dict[str, Remembered] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, task: str, step: int) -> Remembered | None:
        """Reference of a task in training step ``step``; None if it is missing or expired."""
        kept = self._kept.get(task)
        if kept is None or self._too_old(kept, step):
            return None
        return kept

    def keep(self, task: str, step: int, texts: Sequence[str]) -> None:
        """Store a success in place of the task's earlier one; drop expired and excess entries.

        The latest success replaces even a longer one, which an older policy played.

        Args:
            task: Task id, the same in every training step.
            step: Training step in which it was played.
            texts: Filtered step texts, in reference order.
        """
        # Removed first, so that the task moves to the end: the dict is ordered by age.
        self._kept.pop(task, None)
        self._kept[task] = Remembered(step, tuple(texts))
        # At the latest, the loop ends at the entry just stored, which is not too old.
        while len(self._kept) > self._tasks or self._too_old(self._oldest, step):
            del self._kept[next(iter(self._kept))]

    @property
    def _oldest(self) -> Remembered:
        return next(iter(self._kept.values()))

    def _too_old(self, kept: Remembered, step: int) -> bool:
        return self._max_age is not None and step - kept.step > self._max_age

    def dump(self) -> bytes:
        """Content for the checkpoint: gzipped JSON, the same bytes for the same content.

        Without ``mtime=0`` gzip would write the time into its header, and the checkpoints of a
        resumed run would differ from those of an uninterrupted one.
        """
        content = {task: [kept.step, kept.texts] for task, kept in self._kept.items()}
        return gzip.compress(json.dumps(content, ensure_ascii=False).encode(), mtime=0)

    def load(self, content: bytes) -> None:
        """Replace the content by that of a :meth:`dump`.

        Raises:
            RecordError: ``content`` is not a dump.
        """
        try:
            # JSON keeps the order of keys, which is the order by age.
            found = json.loads(gzip.decompress(content)).items()
            self._kept = {
                str(task): Remembered(int(step), tuple(texts)) for task, (step, texts) in found
            }
        except (OSError, EOFError, ValueError, TypeError, AttributeError, zlib.error) as error:
            raise RecordError(
                f"{FILE} of the checkpoint holds no references ({error}); remove the checkpoint's "
                "folder to continue from the one before"
            ) from error
