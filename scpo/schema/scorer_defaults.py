"""Default settings of a scorer: those of its configuration file."""

import functools
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from scpo.installed import REPOSITORY
from scpo.schema.scorer import INSTALLED, ScorerConfig


@functools.cache
def scorer_defaults(name: str) -> dict[str, Any]:
    """Section ``scorer`` as ``scorer=<name>`` makes it; callers must not change it.

    Empty if there is no such file; if it is damaged; and if it needs other files: a value refers to
    another section, or the file has a defaults list.
    """
    folders = [REPOSITORY / "conf", *(part.conf for part in INSTALLED)]
    files = [path for folder in folders for path in (folder / "scorer").glob("*.yaml")]
    # Compared with the files' names, because the name may come from a damaged or foreign record.
    file = next((path for path in files if path.stem == name), None)
    if file is None:
        return {}
    try:
        section = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
        scorer = TypeAdapter(ScorerConfig).validate_python(section)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException, ValidationError):
        return {}
    return dict(scorer.model_dump(mode="json"))
