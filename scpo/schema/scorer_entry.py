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
    reports the identity of what it loaded on start, and is refused if it differs.
    """

    kind: str
    name: str

    @property
    def identity(self) -> str:
        return self.name


def kind_of(settings: type[ScorerSettings]) -> str:
    """The ``kind`` of a class of settings, which declares it as a ``Literal`` of one value."""
    return str(get_args(settings.model_fields["kind"].annotation)[0])


@dataclass(frozen=True)
class ScorerEntry:
    """Entry of a scorer, to which an installed package's entry point ``scpo.scorers`` points.

    Attributes:
        settings: Class of its settings; their ``kind`` is the scorer's.
        function: ``f(settings, device, cache_dir) -> scorer``, which builds it; a model runs on
            ``device`` (as torch names it), and ``cache_dir`` is a folder or None.
    """

    settings: type[ScorerSettings]
    function: Callable[[Any, str, Path | None], Scorer]

    @property
    def name(self) -> str:
        """Its ``kind`` in configurations."""
        return kind_of(self.settings)
