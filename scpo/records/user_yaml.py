"""YAML files that users write by hand: site files, health rules."""

from pathlib import Path
from typing import Any

import yaml

from scpo.errors import ConfigError
from scpo.records.files import yaml_problem


class UniqueKeyLoader(yaml.SafeLoader):
    """Loader that refuses a mapping with the same key twice; PyYAML keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; a key that a merge (``<<``) also brings is no duplicate."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                # The key is shown without its values, one of which may be a secret.
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping",
                    node.start_mark,
                    f"found duplicate key {key.value}",
                    key.start_mark,
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


def read_user_yaml(path: Path, loader: type[UniqueKeyLoader] = UniqueKeyLoader) -> Any:
    """Read a YAML file.

    Raises:
        ConfigError: The file is not UTF-8 text or not YAML, or a mapping has a key twice.
        OSError: The file cannot be read.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(yaml_problem(path, error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8") from error
    except ValueError as error:
        # For example a date that does not exist: 2026-13-01.
        raise ConfigError(f"{path}: no YAML: {error}") from error
