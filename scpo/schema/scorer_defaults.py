"""Default settings of a scorer: those of its configuration file."""

import functools
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from scpo.installed import REPOSITORY
from scpo.schema.scorer import INSTALLED, ScorerConfig


@functools.cache
def scorer_defaults(name: str) -> dict[str, Any]:
    """Section ``scorer`` as ``scorer=<name>`` makes it; callers must not change it.

    Empty if there is no such file, or not any more, and if a value of it refers to another section:
    only a whole configuration has a default for that.
    """
    folders = [REPOSITORY / "conf", *(part.conf for part in INSTALLED)]
    files = [folder / "scorer" / f"{name}.yaml" for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return {}
    try:
        section = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
        scorer = TypeAdapter(ScorerConfig).validate_python(section)
    except (OmegaConfBaseException, ValidationError):
        return {}
    return dict(scorer.model_dump(mode="json"))
