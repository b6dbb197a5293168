import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache, and so one warm start, for all runs."""
    return tmp_path_factory.mktemp("cache")
