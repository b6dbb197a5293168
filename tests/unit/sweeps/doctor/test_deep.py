"""The doctor's slow checks against planted defects, one test each."""

import os
import subprocess

import pytest

from scpo.envs.webshop.catalogue.catalogue import SMALL
from scpo.installed import REPOSITORY
from scpo.records import run_config
from scpo.records.files import write_json
from sweeps.doctor import deep
from tests.support.doctor_findings import assert_finds

SHOP = ("env=webshop", "env.generated.products=60", "env.test_goals=10", "env.validation_panels.test.goals=10",
        "env.train_panel.goals=10", "env.validation_panels.train_games.goals=10")  # fmt: skip


def test_a_scorer_that_credits_next_to_nothing(subject):
    found = deep.check_loaded_scorer(subject("scorer=exact"))
    assert_finds(found, "warning", "0% of a sample's pairs score at least theta=0.6", "lower method.shaper.theta")


@pytest.mark.parametrize(("given", "kept"), [("/mine", ["/mine"]), (None, [])])
def test_the_child_finds_packages_on_the_users_own_path(subject, monkeypatch, given, kept):
    if given is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", given)
    called = []

    def run(*words, env, **options):
        called.append(env["PYTHONPATH"])
        return subprocess.CompletedProcess(words, 0, stdout="{}", stderr="")

    monkeypatch.setattr(deep.subprocess, "run", run)
    assert deep._ask("scorer", subject("scorer=exact").first) == {}
    assert called == [os.pathsep.join([str(REPOSITORY), *kept])]


@pytest.mark.slow
def test_a_scorer_that_cannot_be_loaded(subject):
    found = deep.check_loaded_scorer(subject("scorer.path=/no/such/scorer"))
    assert_finds(found, "error", "/no/such/scorer", "scorer=minilm")


def test_goals_that_training_shares_with_the_test(subject):
    found = deep.check_environment(subject(*SHOP, "env.order=verl_agent"))
    assert_finds(found, "warning", "of the test goals", "env.order=fixed")


def test_panels_that_an_earlier_run_was_not_given(subject):
    what = subject(*SHOP)
    folder = run_config.ensure(what.first)
    write_json(folder.panels, {"train": {"sha256": "ab" * 32, "tasks": []}})
    found = deep.check_panels(what)
    assert_finds(found, "error", f"other tasks than run {folder.run_id} was given", "restore the games")


def test_a_checksum_that_is_not_the_official_one(subject, tmp_path):
    (tmp_path / SMALL[1]).write_text("[]")
    words = (*SHOP, "env.catalogue=official", f"machine.data.webshop={tmp_path}")
    found = [one for one in deep.check_environment(subject(*words)) if one.check.startswith("file")]
    assert_finds(found, "error", "differs from the official file", "download it again")


def test_data_that_the_environment_says_is_missing(subject):
    found = deep.check_data(subject("env.games=official", "machine.data.alfworld=null"))
    assert_finds(found, "error", "ALFWORLD_DATA is not set", "alfworld-download")
