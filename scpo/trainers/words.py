"""One value of a foreign trainer's configuration, with where it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One key of the trainer's Hydra configuration; ``added``: it has no such key of its own."""

    key: str
    value: Any
    source: str
    added: bool = False

    @property
    def word(self) -> str:
        """As the trainer's command line takes it."""
        return f"{'+' if self.added else ''}{self.key}={_literal(self.value)}"


def _literal(value: Any) -> str:
    """A value in Hydra's grammar; strings are quoted, for paths hold what it would read as syntax."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    return json.dumps(value)
