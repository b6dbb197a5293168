import importlib
import sys

import pytest

from scpo.errors import ConfigError, ScorerError
from scpo.schema.method import PROVIDES
from scpo.trainers import TRAINERS, train
from sweeps.compose.configuration import compose_run


def test_every_trainer_says_what_it_provides():
    assert PROVIDES.keys() == TRAINERS.keys() | {"verl_agent"}  # started in an environment of its own


def test_a_package_that_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    package = importlib.import_module("scpo.trainers.local")
    monkeypatch.setattr(
        "scpo.trainers.local", package
    )  # the import below binds another one there, for the tests after this
    monkeypatch.setitem(sys.modules, "torch", None)
    for loaded in [name for name in sys.modules if name.startswith("scpo.trainers.local")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(
        ConfigError, match=r"package torch is not installed; pip install -c constraints.txt -e '\.\[alfworld,local\]'"
    ):
        train(compose_run(["method=scpo"]), None, lambda: False)


def test_a_package_that_is_missed_in_the_middle_of_a_rollout_is_named_too(monkeypatch):
    def without_nltk(*_):
        raise ModuleNotFoundError("No module named 'nltk'", name="nltk")

    pytest.importorskip("torch", reason="needs torch: make setup")
    monkeypatch.setattr(importlib.import_module(TRAINERS["local"]), "train", without_nltk)
    with pytest.raises(
        ConfigError, match=r"package nltk is not installed; pip install -c constraints.txt -e '\.\[webshop,local\]'"
    ):
        train(compose_run(["env=webshop", "method=gigpo"]), None, lambda: False)


def test_what_verl_lacks_on_this_machine_is_said_before_the_hub_is_asked(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: make setup")
    launch = importlib.import_module(TRAINERS["verl"])
    monkeypatch.setattr(launch, "check_version", lambda: None)
    monkeypatch.setattr("scpo.trainers.find_scorer", lambda _: pytest.fail("the hub was asked"))
    with pytest.raises(ConfigError, match="torch sees no CUDA device here"):
        train(compose_run(["scale=paper", "machine.device=cpu"]), None, lambda: False)


def test_a_missing_reranker_is_said_before_anything_else_is_done(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    (tmp_path / "empty").mkdir()
    local = importlib.import_module(TRAINERS["local"])
    monkeypatch.setattr(local, "train", lambda *_: pytest.fail("the training began"))
    words = ["scorer=bge_reranker_v2_m3", f"scorer.path={tmp_path / 'empty'}"]
    with pytest.raises(ScorerError, match=r"needs config\.json, weights, tokenizer"):
        train(compose_run(["method=scpo", *words]), None, lambda: False)
    with pytest.raises(pytest.fail.Exception, match="the training began"):
        train(compose_run(["method=gigpo", *words]), None, lambda: False)  # never asks a scorer
