"""``slurm/site.yaml``: what differs between clusters."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import PositiveFloat, ValidationError

from scpo.errors import ConfigError
from scpo.strict import Strict
from sweeps.compose.explanations import explain_validation


class Site(Strict):
    """Settings of a cluster; None leaves one to the cluster's default. ``more`` holds further sbatch options."""

    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    gres: str | None
    memory_gb: PositiveFloat | None
    max_time_h: PositiveFloat
    setup: tuple[str, ...]
    more: dict[str, Any]


def read_site(path: Path) -> Site:
    """Read the settings; ConfigError that names the file and what is wrong with it."""
    try:
        return Site.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise ConfigError(f"launcher.site={path}: {error.strerror}; slurm/site.yaml is one to copy") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}:\n{explain_validation(error, Site)}") from error
