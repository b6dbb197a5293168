import sys

import pytest

from scpo.errors import ConfigError
from scpo.schema import PROVIDES
from scpo.trainers import TRAINERS, train
from sweeps.compose import compose_run


def test_every_trainer_says_what_it_provides():
    assert PROVIDES.keys() == TRAINERS.keys()


def test_a_package_that_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for loaded in [name for name in sys.modules if name.startswith("scpo.trainers.local")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(ConfigError, match=r"package torch is not installed; pip install 'scpo\[alfworld,local\]'"):
        train(compose_run(["method=scpo"]), None, lambda: False)
