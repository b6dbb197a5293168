from scpo import envs
from scpo.preflight import data, environment
from sweeps.compose.configuration import compose_run


class Corridor:
    """An environment whose folder, this one, has no data_check.py."""


def test_an_environment_without_files_to_download_needs_no_data_check(monkeypatch):
    config = compose_run(["env=alfworld"])
    assert data(config)["findings"]
    monkeypatch.setitem(envs.ENVIRONMENTS, "alfworld", Corridor)
    assert data(config) == {"findings": []}
    assert environment(config) == {"findings": []}
