from importlib import metadata

import pytest

from scpo.errors import ConfigError
from scpo.trainers.verl.versions import check_version


def test_the_supported_version_is_accepted(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.9.1")
    check_version()


def test_another_version_is_refused_with_the_supported_one(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.8.0")
    with pytest.raises(ConfigError, match=r"verl 0\.8\.0 is installed, supported: 0\.9\.1.*docs/verl\.md"):
        check_version()


def test_no_verl_at_all_says_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"verl is not installed; .*pip install -e '\.\[alfworld,verl\]'"):
        check_version()
