"""Estimators of other packages: a file, an entry point and two YAML files outside the checkout make a method."""

import re
import shutil
from pathlib import Path

import pytest

from scpo.advantages.registry import ESTIMATORS, HOSTS
from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.run_config import read_config
from tests.support.packages import python, write_package

ROOT = Path(__file__).resolve().parents[3]
ESTIMATOR = """
from typing import Literal
from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.grpo import episode_advantage

class DoubledSettings(GroupSettings):
    name: Literal["doubled"]
    factor: float

def doubled(batch, step_return_N, bonus_N, config):
    return config.factor * episode_advantage(batch, config, "mean_norm").astype("float32") + bonus_N

DOUBLED = Estimator(DoubledSettings, doubled, frozenset({"step_bonus"}), labels={"doubled": "Doubled"})
"""
SETTINGS = "{name: doubled, gamma: 0.95, invalid_penalty: 0.0, statistics: rows, std_floor: 0.0, factor: 2.0}"
METHOD = """
defaults: [/estimator@estimator: doubled, _self_]
kind: trained
name: doubled
shaper: null
sampling: null
clip_high: 0.2
"""
RATE = "# @package _global_\ntrainer: {optimizer: {learning_rate: 7.0e-3}}\n"
USE = """
import doubled  # first, as in a package's own tests
from analysis.names import METHODS
from scpo.credit.assign import assign
from scpo.advantages.registry import HOSTS
from sweeps.compose.configuration import compose_run
from tests.support.step_batches import make_batch

config = compose_run(["method=doubled", "method.estimator.factor=4.0"])
print(assign(make_batch((0, 0, "a", 1), (0, 1, "b", 0)), None, config.method)[0].tolist())
print(compose_run(["method.host=doubled"]).method.estimator.name, "doubled" in HOSTS, METHODS["doubled"].label)
print(compose_run(["method=doubled", "scale=study"]).trainer.optimizer.learning_rate)
"""


def install(folder, value="doubled:DOUBLED", estimator=ESTIMATOR):
    """Lay a package out as ``pip install`` leaves it."""
    files = {
        "doubled.py": estimator,
        "doubled-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: doubled\nVersion: 1.0\n",
        "doubled-1.0.dist-info/entry_points.txt": f"[scpo.estimators]\ndoubled = {value}\n",
        "conf/estimator/doubled.yaml": SETTINGS,
        "conf/method/doubled.yaml": METHOD,
        "conf/scale/method/study_doubled.yaml": RATE,
    }
    write_package(folder, files)


def test_an_estimator_outside_the_checkout_is_a_method_a_host_and_a_row(tmp_path):
    install(tmp_path)
    used = python(tmp_path, "-c", USE)
    assert used.stdout.splitlines() == ["[2.0, -2.0]", "doubled True Doubled", "0.007"], used.stderr


@pytest.mark.parametrize(
    ("value", "estimator", "reason"),
    [
        ("doubled:doubled", ESTIMATOR, "allowed: a scpo.advantages.estimator.Estimator"),
        ("doubled:DOUBLED", ESTIMATOR.replace('Literal["doubled"]', 'Literal["grpo"]'), "the name 'grpo' is taken"),
        ("doubled:DOUBLED", ESTIMATOR.replace('"Doubled"', '"GRPO"'), "and the method 'grpo' has the label 'GRPO'"),
        ("doubled:DOUBLED", ESTIMATOR.replace('"Doubled"', '"SCPO"'), "and the method 'scpo' has the label 'SCPO'"),
        ("doubled:DOUBLED", ESTIMATOR.replace('labels={"doubled"', 'labels={"rloo"'), "its labels have 'rloo': "),
        ("doubled:DOUBLED", ESTIMATOR.replace(": float", ": 'flaot'"), "its settings doubled.DoubledSettings cannot"),
        (
            "doubled:MISTY",
            ESTIMATOR,
            "cannot be loaded, AttributeError: module 'doubled' has no attribute 'MISTY'. C",
        ),
        (
            "doubled:DOUBLED",
            "def doubled(:",
            "cannot be loaded, SyntaxError: invalid syntax (doubled.py, line 1). C",
        ),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_refused_with_its_package(tmp_path, value, estimator, reason):
    install(tmp_path, value, estimator)
    refused = python(tmp_path, "-c", "import scpo.schema.method")
    assert refused.returncode
    assert f"entry point scpo.estimators of doubled, {value}" in refused.stderr
    assert reason in refused.stderr


@pytest.mark.parametrize(
    "command",
    [["sweep.py"], ["train.py", "method=grpo"], ["-m", "sweeps", "status"], ["-m", "analysis", "figures"]],
)
def test_a_command_ends_in_one_line_on_an_entry_point_that_cannot_be_loaded(tmp_path, command):
    install(tmp_path, "doubled:MISTY")
    ended = python(tmp_path, *command)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: entry point scpo.estimators of doubled, doubled:MISTY: cannot be loaded")
    assert line.endswith("or pip uninstall doubled")


def test_the_config_of_an_estimator_whose_package_is_missing_says_so(tmp_path):
    install(tmp_path)
    make = "from tests.support.fake_runs import make_run; print(make_run(sys.argv[1], 'method=doubled').path)"
    folder = python(tmp_path, "-c", f"import sys; {make}", str(tmp_path / "runs")).stdout.strip()
    with pytest.raises(RecordError, match=r"names the estimator 'doubled', which neither this code nor an installed"):
        read_config(RunFolder(folder))


LOAD = "from scpo.library import load_method; load_method('doubled')"


@pytest.mark.parametrize("words", [["train.py", "method=doubled"], ["-c", LOAD]], ids=["command", "library"])
def test_a_package_without_its_configurations_is_found_and_told_so(tmp_path, words):
    install(tmp_path)
    shutil.rmtree(tmp_path / "conf")
    refused = python(tmp_path, *words).stderr
    assert "entry point scpo.estimators of doubled, doubled:DOUBLED, was found, but the package brings" in refused
    assert f"{tmp_path}/conf/method/doubled.yaml is missing" in refused


CODE = """
from scpo.installed import REPOSITORY
from scpo.records.code_files import code_files, used_files
from sweeps.compose.configuration import compose_run

for method in ("doubled", "grpo"):
    files = used_files(compose_run([f"method={method}"]), REPOSITORY)
    print("doubled.py" in files, "scpo/advantages/grpo.py" in files)
print(code_files()["doubled.py"])
"""


def test_the_file_of_an_estimator_outside_the_checkout_is_code_of_its_runs_alone(tmp_path):
    install(tmp_path)
    first = python(tmp_path, "-c", CODE).stdout
    assert first.splitlines()[:2] == ["True True", "False True"]
    (tmp_path / "doubled.py").write_text(f"{ESTIMATOR}\n# edited\n")
    assert python(tmp_path, "-c", CODE).stdout not in ("", first)


def test_the_file_of_scpo_lists_all_of_its_hosts():
    """It listed six of nine; the README names it as the place of the whole list."""
    comment = (ROOT / "conf" / "method" / "scpo.yaml").read_text().partition("\ndefaults:")[0]
    assert set(HOSTS) == set(re.findall(r"\w+", comment.partition("method.host=hgpo")[2])) & set(ESTIMATORS)
    assert "(all: conf/method/scpo.yaml)" in (ROOT / "README.md").read_text()
