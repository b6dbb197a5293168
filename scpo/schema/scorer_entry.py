"""Scorer interface: base class of the settings, and the entry of an installed package's scorer.

In a file of its own, because the module of such a scorer imports it while ``scpo.schema.scorer``
is being imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from scpo.shaping.drive import Scorer
from scpo.strict import Strict


class ScorerSettings(Strict):
    """Settings of all scorers.

    ``identity`` names the scorer with all settings that change its scores. The scorer's process
    reports its own on start, and is refused if it differs.
    """

    kind: str
    name: str

    @property
    def identity(self) -> str:
        return self.name


@dataclass(frozen=True)
class ScorerEntry:
    """Entry of a scorer, which an installed package's entry point ``scpo.scorers`` names.

    Attributes:
        settings: Its settings; their ``kind``, a ``Literal``, is the scorer's.
        function: Builds it: ``f(settings, device, cache_dir) -> scorer``, where a model runs on
            ``device`` (as torch names it), and ``cache_dir`` is a folder or None.
    """

    settings: type[ScorerSettings]
    function: Callable[[Any, str, Path | None], Scorer]

    @property
    def name(self) -> str:
        """Its ``kind`` in configurations."""
        return str(get_args(self.settings.model_fields["kind"].annotation)[0])
