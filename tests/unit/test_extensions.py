"""Scorers, matchers and identities of other packages; tests/unit/advantages/test_registry.py has the estimators."""

import shutil
from pathlib import Path

import pytest

from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.run_config import read_config
from tests.support.packages import python, write_package

ROOT = Path(__file__).resolve().parents[2]
SCORER = """
from typing import Literal
import numpy as np
from scpo.schema.scorer_entry import ScorerEntry, ScorerSettings

class DiceSettings(ScorerSettings):
    kind: Literal["dice"]
    power: float

    @property
    def identity(self):
        return f"{self.name}(power={self.power})"

class Dice:
    def __init__(self, config):
        self.name, self.power = config.identity, config.power

    def score(self, pairs):
        return np.array([self._one(set(a.split()), set(b.split())) for a, b in pairs], np.float32)

    def _one(self, a, b):
        return (2 * len(a & b) / max(1, len(a) + len(b))) ** self.power

DICE = ScorerEntry(DiceSettings, lambda config, device, cache_dir: Dice(config))
"""
MATCHER = """
from scpo.shaping.matcher import Cell, Credited, MatchTrace

def last_match(rule, m, order):
    walk, credited = [], []
    for v in order:
        score = yield Cell("failed", m - 1, v)
        if score >= rule.theta:
            credited.append(Credited(m - 1, v, float(score), float(rule.credit(score))))
            walk.append((v, m - 1))
            break
        walk.append((v, -1))
    return MatchTrace(tuple(walk), tuple(credited))
"""
IDENTITY = """
from scpo.advantages.anchors import StateSettings  # which imports the registry of identities
from scpo.states.identity import Identity, key_ids

def initials(visits, comparison):
    return key_ids([text[:1] for text in visits.text_M])

INITIALS = Identity("initials", "equal first letters", initials)
"""
POINTS = {"scorers": "dice = dice.scorer:DICE", "matchers": "last = dice.matcher:last_match"}
POINTS["identities"] = "initials = dice.identity:INITIALS"


def install(folder, **points):
    """Lay a package out as ``pip install`` leaves it."""
    listed = "".join(f"[scpo.{kind}]\n{line}\n" for kind, line in (POINTS | points).items())
    files = {
        "dice/__init__.py": "from dice import identity, matcher, scorer",
        "dice/scorer.py": SCORER,
        "dice/matcher.py": MATCHER,
        "dice/identity.py": IDENTITY,
        "dice/conf/scorer/dice.yaml": "{kind: dice, name: dice, power: 1.0}",
        "dice-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: dice\nVersion: 1.0\n",
        "dice-1.0.dist-info/entry_points.txt": listed,
    }
    write_package(folder, files)


PARTS = ["method=scpo", "scorer=dice", "method.shaper.matcher=last", "method.estimator.states=initials"]
USE = """
import sys
import dice  # first, as in a package's own tests
from scpo.credit.assign import assign
from scpo.library import load_scorer
from scpo.scoring import make_scorer
from sweeps.compose.completion import candidates
from sweeps.compose.configuration import compose_run
from tests.support.step_batches import make_batch

print(load_scorer("dice", power=2.0).score([("open fridge", "open drawer")]).tolist())
config = compose_run([*sys.argv[1:], "scorer.power=2.0"])
print(config.scorer.identity, config.method.shaper.matcher, *(it.name for it in config.method.identities.values()))
batch = make_batch((0, 0, "a b", 1), (0, 1, "a c a b d", 0))
shaped = assign(batch, make_scorer(config.scorer), config.method)[1]
print((shaped.bonus_N > 0).tolist())
print(candidates("method.shaper.matcher=l"), "torch" in sys.modules)
"""


def test_a_scorer_a_matcher_and_an_identity_outside_the_checkout_shape_a_batch(tmp_path):
    install(tmp_path)
    used = python(tmp_path, "-c", USE, *PARTS)
    assert used.stdout.splitlines() == [
        "[0.25]",
        "dice(power=2.0) last initials",
        "[False, False, False, False, False, True, False]",
        "['method.shaper.matcher=last'] False",
    ], used.stderr


@pytest.mark.parametrize("first", ["scpo.shaping.matcher", "scpo.states.registry", "scpo.schema.scorer", "sweep"])
def test_the_parts_are_found_whichever_module_is_imported_first(tmp_path, first):
    install(tmp_path)
    find = "from scpo.schema.parts import PACKAGES; print(sorted(name for _, name in PACKAGES))"
    found = python(tmp_path, "-c", f"import {first}; {find}")
    assert found.stdout.strip() == "['dice', 'initials', 'last']", found.stderr


def test_a_matcher_outside_the_checkout_matches_without_a_configuration(tmp_path):
    install(tmp_path)
    use = (
        "import numpy as np; from scpo.shaping.matcher import match_dense; "
        "print(match_dense(np.eye(2), np.eye(2), 0.6, 0.4, order=range(2), matcher='last').tolist())"
    )
    used = python(tmp_path, "-c", use)
    assert used.stdout.strip() == "[0.0, 1.0]", used.stderr


@pytest.mark.parametrize(
    ("kind", "line", "reason"),
    [
        ("scorers", "dice = dice.scorer:Dice", "allowed: a scpo.schema.scorer_entry.ScorerEntry"),
        ("scorers", "dice = dice.scorer:MISTY", "cannot be loaded, AttributeError: module 'dice.scorer' has no att"),
        ("matchers", "last = my-dice.last:last_match", "cannot be loaded, AttributeError: "),
        ("matchers", "last = dice.scorer:DICE", "allowed: a function f(rule, m, order)"),
        ("matchers", "kmp = dice.matcher:last_match", "the name 'kmp' is taken"),
        ("matchers", "Last-1 = dice.matcher:last_match", "'Last-1' is not a valid name"),
        ("identities", "initials = dice.identity:initials", "allowed: a scpo.states.identity.Identity"),
    ],
)
def test_an_entry_point_that_cannot_be_used_ends_a_command_in_one_line(tmp_path, kind, line, reason):
    install(tmp_path, **{kind: line})
    ended = python(tmp_path, "sweep.py")
    (message,) = ended.stderr.splitlines()
    assert message.startswith(f"error: entry point scpo.{kind} of dice, {line.partition(' = ')[2]}")
    assert reason in message


UNRESOLVED = {
    "type imported for type checkers only": (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from decimal import Decimal\n",
        "Decimal",
    ),
    "misspelt": ("", "'flaot'"),
    "misspelt in a part": ("from scpo.strict import Strict\nclass P(Strict):\n    p: 'Decmal'\n", "P"),
}


@pytest.mark.parametrize(("imports", "wrong"), UNRESOLVED.values(), ids=UNRESOLVED)
@pytest.mark.parametrize("command", [["sweep.py"], ["train.py", "method=scpo", "--cfg", "job"]])
def test_settings_with_a_type_that_is_not_defined_end_a_command_in_one_line(tmp_path, imports, wrong, command):
    """Every command that composes ended with a PydanticUserError of RunConfig, without the package."""
    install(tmp_path)
    scorer = SCORER.replace("power: float", f"power: {wrong}")
    (tmp_path / "dice/scorer.py").write_text(imports + scorer)
    ended = python(tmp_path, *command)
    assert ended.returncode == 1
    (message,) = ended.stderr.splitlines()
    name = {"P": "Decmal"}.get(wrong, wrong.strip("'"))
    assert message == (
        "error: entry point scpo.scorers of dice, dice.scorer:DICE: its settings dice.scorer.DiceSettings cannot be "
        f"used, they have the type '{name}', which is not defined. Correct its spelling, or import it outside of "
        "`if TYPE_CHECKING:`, or pip uninstall dice"
    )


def test_settings_may_name_types_that_their_module_defines_later(tmp_path):
    install(tmp_path)
    scorer = SCORER.replace("power: float", "power: 'Power'")
    (tmp_path / "dice/scorer.py").write_text(f"{scorer}\nPower = float\n")
    used = python(tmp_path, "train.py", "method=scpo", "scorer=dice", "--cfg", "job")
    assert used.returncode == 0, used.stderr


def test_a_method_of_a_package_cannot_be_known_by_the_name_of_another(tmp_path):
    """Copied with ``name: scpo``, it ran, and `load_runs` pooled its runs with SCPO's."""
    install(tmp_path)
    method = tmp_path / "dice/conf/method/any_scpo.yaml"
    method.parent.mkdir()
    method.write_text("defaults: [scpo, _self_]\nname: scpo\n")
    refused = python(tmp_path, "train.py", "method=any_scpo", "--cfg", "job")
    assert refused.returncode == 2
    assert "method=any_scpo: its file method/any_scpo.yaml has name: scpo; records and tables" in refused.stderr
    method.write_text("defaults: [scpo, _self_]\nname: any_scpo\n")
    assert python(tmp_path, "train.py", "method=any_scpo", "--cfg", "job").returncode == 0


@pytest.mark.parametrize(
    ("file", "text", "words", "message"),
    [
        (
            "scorer/verbs.yaml",
            "{kind: dice, name: exact, power: 1.0}",
            ["scorer=verbs"],
            "scorer=verbs: its file scorer/verbs.yaml has name: exact; records and tables know a scorer by this name",
        ),
        (
            "estimator/mine.yaml",
            "defaults: [gigpo, _self_]",
            ["method=scpo", "estimator@method.estimator=mine"],
            "estimator=mine: its file estimator/mine.yaml has name: gigpo; records and tables know an estimator by",
        ),
        (
            "model/mine.yaml",
            "defaults: [qwen2_5_7b, _self_]",
            ["model=mine"],
            "model=mine: its file model/mine.yaml has name: 7B, as model/qwen2_5_7b.yaml has; records and tables know",
        ),
    ],
)
def test_a_file_with_the_name_of_another_is_refused(tmp_path, file, text, words, message):
    """With such a scorer, captions named the wrong one."""
    install(tmp_path)
    path = tmp_path / "dice/conf" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    group, name = file.removesuffix(".yaml").split("/")
    for command in (["train.py", *words, "--cfg", "job"], ["sweep.py", "+experiment=one", *words, "dry_run=true"]):
        refused = python(tmp_path, *command)
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert message in line
    if group == "scorer":
        refused = python(tmp_path, "-c", f"import scpo; scpo.load_scorer({name!r})")
        assert f"ConfigError: {message}" in refused.stderr
    if group != "estimator":
        given = python(tmp_path, "train.py", *words, f"{group}.name=its_own", "++trainer.steps=2", "--cfg", "job")
        assert given.returncode == 0, given.stderr


FILES = ["method/gigpo", "estimator/gigpo", "scorer/exact", "scale/method/study_gigpo", "experiment/ablation"]


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_a_package_with_a_taken_name_ends_a_command_in_one_line(tmp_path, file):
    """It was ignored in silence, and the project's own file was read."""
    install(tmp_path)
    path = tmp_path / f"dice/conf/{file}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: mine\n")
    for words in (["sweep.py"], ["train.py", "method=gigpo", "--cfg", "job"], ["-m", "sweeps", "status"]):
        ended = python(tmp_path, *words)
        assert ended.returncode != 0
        (message,) = ended.stderr.splitlines()
        assert message.startswith("error: entry point scpo.")
        assert f"of dice, dice.scorer:DICE: the name of its file {path} is taken by conf/{file}.yaml," in message


def test_a_file_that_two_packages_have_is_refused(tmp_path):
    install(tmp_path)
    other = {
        "other/__init__.py": "",
        "other/scorer.py": SCORER.replace('"dice"', '"other"'),
        "other/conf/scorer/dice.yaml": "{kind: other, name: dice, power: 1.0}",
        "other-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n",
        "other-1.0.dist-info/entry_points.txt": "[scpo.scorers]\nother = other.scorer:DICE\n",
    }
    write_package(tmp_path, other)
    (message,) = python(tmp_path, "sweep.py").stderr.splitlines()
    taken = f"{tmp_path}/other/conf/scorer/dice.yaml is taken by {tmp_path}/dice/conf/scorer/dice.yaml"
    assert f"entry point scpo.scorers of other, other.scorer:DICE: the name of its file {taken}" in message


@pytest.mark.parametrize(
    "words", [["train.py", "method=scpo", "scorer=dice"], ["-c", "import scpo; scpo.load_scorer('dice')"]]
)
def test_a_scorer_without_its_configuration_is_found_and_told_so(tmp_path, words):
    install(tmp_path)
    shutil.rmtree(tmp_path / "dice/conf")
    refused = python(tmp_path, *words).stderr
    assert "entry point scpo.scorers of dice, dice.scorer:DICE, was found, but the package brings" in refused
    assert f"{tmp_path}/dice/conf/scorer/dice.yaml is missing" in refused


CODE = """
import sys
from scpo.installed import REPOSITORY
from scpo.records.code_files import code_files, used_files
from sweeps.compose.configuration import compose_run

for words in (sys.argv[1:], ["method=scpo"]):
    used = used_files(compose_run(words), REPOSITORY)
    print(*(name for name in sorted(used) if name.startswith("dice")))
print(code_files()["dice/matcher.py"])
"""


@pytest.mark.parametrize("part", PARTS[1:])
def test_the_files_of_a_part_outside_the_checkout_are_code_of_its_runs(tmp_path, part):
    install(tmp_path)
    (tmp_path / "dice/__init__.py").write_text("")
    file = {"scorer": "scorer", "matcher": "matcher", "states": "identity"}[part.partition("=")[0].rpartition(".")[2]]
    *used, before = python(tmp_path, "-c", CODE, "method=scpo", part).stdout.splitlines()
    assert used == [f"dice/__init__.py dice/{file}.py", ""]
    (tmp_path / "dice/matcher.py").write_text(f"{MATCHER}\n# edited\n")
    assert python(tmp_path, "-c", CODE, "method=scpo", part).stdout.splitlines()[-1] != before


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (PARTS[:2], "scorer 'dice'"),
        (PARTS[:1] + PARTS[2:3], "matcher 'last'"),
        (PARTS[:1] + PARTS[3:], "identity of states 'initials'"),
    ],
)
def test_the_config_of_a_part_whose_package_is_missing_says_so(tmp_path, words, what):
    install(tmp_path)
    make = "from tests.support.fake_runs import make_run; print(make_run(*sys.argv[1:]).path)"
    folder = python(tmp_path, "-c", f"import sys; {make}", str(tmp_path / "runs"), *words).stdout.strip()
    with pytest.raises(RecordError, match=rf"names the {what}, which neither this code nor an installed package"):
        read_config(RunFolder(folder))
