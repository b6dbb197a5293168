import contextlib
import os

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError
from omegaconf import OmegaConf

from scpo.errors import ConfigError
from sweeps.compose.configuration import compose_raw
from sweeps.compose.overrides import parse_all
from sweeps.compose.parsed_files import ParsedFiles


@pytest.fixture
def source(tmp_path):
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "a.yaml").write_text("# @package _global_\nx: 1\n")
    (tmp_path / "b.yaml").write_text("y: [é]\n", encoding="utf-8")
    return ParsedFiles("test", f"parsed://{tmp_path}")


def test_a_file_is_parsed_once_and_what_is_written_to_it_is_not_kept(source, monkeypatch):
    source.load_config("group/a").config.x = 5
    monkeypatch.setattr(OmegaConf, "load", None)
    again = source.load_config("group/a")
    assert (again.config, again.header) == ({"x": 1}, {"package": "_global_"})


def test_a_file_that_changed_is_parsed_again(source, tmp_path):
    assert source.load_config("b.yaml").config == {"y": ["é"]}
    (tmp_path / "b.yaml").write_text("y: 2\n")
    os.utime(tmp_path / "b.yaml", ns=(1, 1))
    assert source.load_config("b").config == {"y": 2}


def test_it_says_what_there_is(source, tmp_path):
    assert source.list("", None) == ["b", "group"]
    assert source.list("", ObjectType.GROUP) == ["group"]
    assert source.list("group", ObjectType.CONFIG) == ["a"]
    assert (source.is_group("group"), source.is_group("b"), source.is_config("b")) == (True, False, True)
    assert (source.available(), ParsedFiles("test", f"parsed://{tmp_path}/no").available()) == (True, False)
    with pytest.raises(ConfigLoadError, match=r"Config not found : .*c\.yaml"):
        source.load_config("c")


def test_a_second_composition_parses_no_file(monkeypatch):
    compose_raw(parse_all(["+machine.more=1"]))
    monkeypatch.setattr(OmegaConf, "load", None)
    assert compose_raw(parse_all(["+machine.more=2"])).machine.more == 2


def test_hydra_has_its_own_settings_whole_again_after_a_composition_and_after_one_that_fails():
    for words in (["+machine.more=3"], ["~nothing"]):
        with contextlib.suppress(ConfigError):
            compose_raw(parse_all(words))
        assert {"launcher": "basic"} in ConfigStore.instance().load("hydra/config.yaml").node.defaults
