"""The configuration that Hydra composes from ``conf/`` and from installed packages."""

import contextlib
import copy
import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from scpo.schema.parts import CONF, check_names, configuration_folders


def composed(*overrides: str, env: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole configuration with these overrides, as Hydra composes it for ``train.py``.

    The whole is composed, not one file, because sections refer to each other: alpha, for example,
    depends on the environment. Composed once for equal overrides; each call returns a new dict.

    Args:
        overrides: Hydra's overrides.
        env: Recorded values of the environment's section, to which others refer.

    Raises:
        HydraException: An override names nothing.
        OmegaConfBaseException: A value cannot be resolved.
        ConfigError: A file has the name of another one.
    """
    config = _composed(*overrides)
    if env is not None:
        config = copy.deepcopy(config)
        config.env = OmegaConf.merge(config.env, dict(env))
    # Through JSON, as records of runs are read: keys are texts in both.
    return dict(json.loads(json.dumps(OmegaConf.to_container(config, resolve=True))))


@functools.lru_cache
def _composed(*overrides: str) -> DictConfig:
    """The configuration of ``composed``, unresolved; callers must not change it."""
    # Packages that register parts bring configuration folders of their own.
    searched = json.dumps([folder.as_uri() for folder in configuration_folders()])
    with (
        _apart_from_callers_hydra(),
        hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)),
    ):
        made = hydra.compose(
            "config",
            overrides=[f"hydra.searchpath={searched}", *overrides],
            return_hydra_config=True,
        )
    chosen = made.hydra.runtime.choices
    with open_dict(made):
        del made["hydra"]
    check_names(made, chosen)
    OmegaConf.set_struct(made, False)
    return made


@contextlib.contextmanager
def _apart_from_callers_hydra() -> Iterator[None]:
    """A notebook may have initialised Hydra for its own configurations."""
    callers = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        # Hydra may have made another instance.
        GlobalHydra.instance().hydra = callers
