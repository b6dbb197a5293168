from pathlib import Path

import pytest

from scpo.errors import ConfigError
from sweeps.slurm.cluster_settings import read_site

SHIPPED = Path(__file__).parents[4] / "slurm" / "site.yaml"


def test_the_shipped_settings_leave_all_to_the_cluster():
    site = read_site(SHIPPED)
    assert (site.partition, site.setup, site.more, site.max_time_h) == (None, (), {}, 24)


BAD = {
    "misspelt": ("partition", "partitoin", "unknown key partitoin"),
    "wrong type": ("max_time_h: 24", "max_time_h: long", "max_time_h: got 'long'"),
    "no YAML": ("partition: null", "partition: [", "is no YAML"),
}


@pytest.mark.parametrize(("old", "new", "message"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_with_the_file(tmp_path, old, new, message):
    path = tmp_path / "site.yaml"
    path.write_text(SHIPPED.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_site(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_site(tmp_path / "none.yaml")
