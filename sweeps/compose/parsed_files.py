"""conf/ as Hydra reads it, with each file parsed once in a process: parsing is a fifth of what composing takes.

Two of Hydra's plugins: where Hydra is to look into ``conf/``, it finds a source before it that keeps what it parsed.
"""

import copy
import functools
from pathlib import Path
from typing import Any

import hydra.conf
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from sweeps.compose.overrides import CONF

SCHEME = "parsed"
HYDRAS_CONF = Path(hydra.conf.__file__).parent


class ParsedFiles(ConfigSource):
    """A folder of configuration files."""

    @staticmethod
    def scheme() -> str:
        """What its paths begin with."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """A file of the folder; Hydra writes to what it gets."""
        path = self._file(config_path)
        if not path.is_file():
            raise ConfigLoadError(f"Config not found : {path}")
        state = path.stat()
        config, header = _parsed(path, state.st_mtime_ns, state.st_size)
        return ConfigResult(self.provider, self.full_path(), copy.deepcopy(config), dict(header))

    def is_group(self, config_path: str) -> bool:
        """Whether it is a folder."""
        return Path(self.path, config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        """Whether it is a file."""
        return self._file(config_path).is_file()

    def available(self) -> bool:
        """Whether there is such a folder."""
        return self.is_group("")

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Names of the files or folders in one of its folders."""
        names: list[str] = []
        for path in Path(self.path, config_path).iterdir():
            self._list_add_result(names, str(Path(config_path, path.name)), path.name, results_filter)
        return sorted(set(names))

    def _file(self, config_path: str) -> Path:
        return Path(self.path, self._normalize_file_name(config_path))


@functools.cache
def _parsed(path: Path, _changed_ns: int, _size: int) -> tuple[Any, dict[str, str | None]]:
    return OmegaConf.load(path), ConfigSource._get_header_dict(path.read_text(encoding="utf-8")[:512])


class ParsedConf(SearchPathPlugin):
    """Where a composition reads our ``conf/``, it and what Hydra brings are read as they were parsed."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Put a source before either folder."""
        if any(element.path == str(CONF) for element in search_path.get_path()):
            for provider, folder in (("hydra", HYDRAS_CONF), ("main", CONF)):
                search_path.prepend(f"{provider}, {SCHEME}", f"{SCHEME}://{folder}", anchor=provider)


@functools.cache
def keep_parsed_files() -> None:
    """Register both with Hydra, once in a process."""
    for plugin in (ParsedFiles, ParsedConf):
        Plugins.instance().register(plugin)
