import sys

import pytest

from scpo.errors import ConfigError
from scpo.trainers import TRAINERS, train
from sweeps.compose import compose_run, options

METHODS = [name for name in options("method") if name not in ("plain", "react", "reflexion")]


def test_a_method_that_the_trainer_cannot_run_is_refused_before_anything_is_loaded(monkeypatch):
    lacking = type(TRAINERS["local"])("a.module.that.is.never.imported", provides=frozenset())
    monkeypatch.setitem(TRAINERS, "local", lacking)
    with pytest.raises(ConfigError, match="'ppo' needs independent_sampling, value, which trainer 'local' does not"):
        train(compose_run(["method=ppo"]), None, lambda: False)
    assert lacking.module not in sys.modules


def test_a_package_that_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for loaded in [name for name in sys.modules if name.startswith("scpo.trainers.local")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(ConfigError, match=r"package torch is not installed; pip install 'scpo\[alfworld,local\]'"):
        train(compose_run(["method=scpo"]), None, lambda: False)


def test_trainers_speak_the_words_of_what_methods_require():
    from scpo.credit import required

    words = frozenset().union(*(required(compose_run([f"method={name}"]).method) for name in METHODS))
    assert all(trainer.provides <= words for trainer in TRAINERS.values())
