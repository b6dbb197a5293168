"""The configuration that Hydra composes from ``conf/`` and from installed packages."""

import functools
import json
from typing import Any

import hydra
from omegaconf import OmegaConf, open_dict

from scpo.schema.parts import CONF, check_names, configuration_folders


def composed(*overrides: str) -> dict[str, Any]:
    """The whole configuration with these overrides, as Hydra composes it for ``train.py``.

    The whole is composed, not one file, because sections refer to each other: alpha, for example,
    depends on the environment. Composed once for equal overrides; each call returns a new dict.

    Raises:
        HydraException: An override names nothing.
        OmegaConfBaseException: A value cannot be resolved.
        ConfigError: A file has the name of another one.
    """
    # The cache must not hand out a dict that a caller changes.
    return dict(json.loads(_composed_text(*overrides)))


@functools.lru_cache
def _composed_text(*overrides: str) -> str:
    """The configuration of ``composed`` as JSON."""
    # Packages that register parts bring configuration folders of their own.
    searched = json.dumps([folder.as_uri() for folder in configuration_folders()])
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        made = hydra.compose(
            "config",
            overrides=[f"hydra.searchpath={searched}", *overrides],
            return_hydra_config=True,
        )
    chosen = made.hydra.runtime.choices
    with open_dict(made):
        del made["hydra"]
    check_names(made, chosen)
    return json.dumps(OmegaConf.to_container(made, resolve=True))
