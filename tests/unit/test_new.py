import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.new import CHECKOUT, KINDS, main, write_part
from scpo.records import code_files
from scpo.records.files import replace_file
from sweeps.compose.configuration import compose_run

COPIED = ("scpo", "sweeps", "analysis", "conf", "slurm", "tests/support", "tests/contract", "tests/unit/advantages")
COPIED_TOO = (
    "paper_figures/published",
    "tests/configs",
    "tests/unit/states",
    "tests/unit/shaping",
    "tests/unit/scoring",
    "tests/unit/analysis/figures",
    "bench",
)
FILES = ("tests/__init__.py", "tests/unit/__init__.py", "tests/unit/analysis/__init__.py", "tests/conftest.py")
# An override that zsh takes for a pattern of file names, in a command.
UNQUOTED = re.compile(r"python [^`\n]* [\w.+]+=\[")
LAWS = {  # of each kind: its own test, and what else must hold of it
    "estimator": (
        "tests/unit/advantages/test_mine.py",
        "tests/contract/test_estimators.py",
        "tests/configs",
        "-k",
        "mine",
    ),
    "identity": ("tests/unit/states/test_mine.py", "tests/unit/states/test_registry.py", "-k", "mine"),
    "scorer": ("tests/unit/scoring/test_mine.py", "tests/configs", "-k", "mine"),
    "matcher": (
        "tests/unit/shaping/test_mine_match.py",
        "tests/unit/shaping/test_matcher.py",
        "-k",
        "mine or uses_each",
    ),
    "figure": ("tests/unit/analysis/figures/test_fig_mine.py",),
    "experiment": ("tests/configs", "-k", "mine"),
}


@pytest.fixture
def checkout(tmp_path):
    """The parts of the checkout that the new files and their laws need."""
    for name in (*COPIED, *COPIED_TOO):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*FILES, "pyproject.toml", "train.py", "sweep.py"):
        shutil.copy(CHECKOUT / path, tmp_path / path)
    return tmp_path


def contents_of(checkout):
    return {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}


def python(checkout, *arguments):
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_clean(checkout, files):
    """Neither ruff's rules nor its format object to the new files and to those that register them."""
    edited = [checkout / path for kind in KINDS.values() for path in kind.edits]
    paths = [str(path) for path in (*files, *edited) if path.suffix == ".py"]
    python(checkout, "-m", "ruff", "check", "--no-cache", *paths)
    python(checkout, "-m", "ruff", "format", "--no-cache", "--check", *paths)


@pytest.mark.parametrize("kind", LAWS)
def test_a_new_part_passes_its_own_test_the_laws_and_ruff(kind, checkout):
    files = write_part(kind, "mine", checkout)
    is_clean(checkout, files)
    printed = python(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LAWS[kind])
    assert "no tests ran" not in printed
    python(checkout, "-c", "import sweeps.compose.configuration")  # nothing imports in a circle


def test_a_new_method_scorer_and_matcher_are_chosen_by_name(checkout):
    for kind in ("estimator", "scorer", "matcher"):
        write_part(kind, "mine", checkout)
    printed = python(checkout, "train.py", "method=mine", "--cfg", "job")
    assert "name: mine" in printed
    printed = python(checkout, "train.py", "method=scpo", "method.shaper.matcher=mine", "scorer=mine", "--cfg", "job")
    assert "matcher: mine" in printed
    assert "kind: mine" in printed
    assert Path(python(checkout, "-c", "import scpo; print(scpo.__file__)").strip()).is_relative_to(checkout)


@pytest.mark.parametrize("kind", ["estimator", "identity", "scorer", "matcher"])
def test_a_new_part_leaves_finished_runs_of_other_parts_under_the_same_code(kind, checkout, monkeypatch):
    monkeypatch.setattr(code_files, "REPOSITORY", checkout)
    before = code_files.code_files()
    write_part(kind, "mine", checkout)
    after = code_files.code_files()
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed
    for words in (["method=scpo"], ["method=crbc", "method.estimator.states=closure"]):
        assert not changed & code_files.used_files(compose_run(words), checkout)


def test_a_new_method_has_a_learning_rate_of_its_own_at_the_scale_of_the_study(checkout):
    write_part("estimator", "mine", checkout)
    printed = python(checkout, "train.py", "method=mine", "scale=study", "--cfg", "job")
    shared = python(checkout, "train.py", "method=gigpo", "scale=study", "--cfg", "job")
    assert "learning_rate: 0.002" in printed
    assert "learning_rate: 0.002" in shared


def test_a_new_experiment_is_a_matrix_of_runs_as_written(checkout):
    write_part("experiment", "mine", checkout)
    printed = python(checkout, "sweep.py", "+experiment=mine", "dry_run=true")
    assert "6 runs" in printed


def test_lines_with_the_longest_name_are_folded(checkout):
    files = [path for kind in KINDS for path in write_part(kind, "a_name_of_thirty_letters_in_al", checkout)]
    long = [line for path in files for line in path.read_text().splitlines() if len(line) > 120]
    assert not long
    is_clean(checkout, files)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_named_with_the_next_steps(kind, monkeypatch, capsys):
    monkeypatch.setattr("scpo.new.write_part", lambda kind, name: [CHECKOUT / "written.py"])
    assert main([kind, "mine"]) == 0
    printed = capsys.readouterr().out
    assert "written.py" in printed
    assert "mine" in printed
    assert "{" not in printed
    assert not UNQUOTED.search(printed)


def test_brackets_are_quoted_in_every_command_of_the_pages():
    pages = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").rglob("*.md")]
    found = {page.name: UNQUOTED.findall(page.read_text()) for page in pages}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("identity", "entities"), ("scorer", "exact"), ("matcher", "kmp"), ("figure", "learning"), ("experiment", "demo")],
)
def test_a_name_in_use_is_not_overwritten(kind, name):
    with pytest.raises(ConfigError, match=f"the name '{name}' is taken"):
        write_part(kind, name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fig_learning", "^the name 'learning' is taken by analysis/figures/fig_learning.py; choose another$"),
        ("tab_main", "^the name 'tab_main' is taken by analysis/tables/tab_main.py; scpo.new writes figures only: "),
        ("tab_mine", r"^'tab_mine' is the name of a table; .* write analysis/tables/tab_mine.py by hand \(CONTRIB"),
    ],
)
def test_a_figure_with_the_prefix_of_a_file_is_no_second_one(name, message):
    with pytest.raises(ConfigError, match=message):
        write_part("figure", name)


def test_a_new_figure_is_called_without_the_prefix_of_its_file(checkout, monkeypatch, capsys):
    monkeypatch.setattr("scpo.new.CHECKOUT", checkout)
    monkeypatch.setattr("scpo.new.write_part", lambda kind, name: write_part(kind, name, checkout))
    assert main(["figure", "fig_mine"]) == 0
    printed = capsys.readouterr().out
    assert "python -m analysis figures fig_mine " in printed
    assert "fig_fig" not in printed
    assert (checkout / "analysis/figures/fig_mine.py").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gigpo", "is taken"),
        ("MyMethod", "not a valid name for an estimator"),
        ("1x", "not a valid name"),
        ("x" * 31, "up to 29"),
    ],
)
def test_names_that_cannot_be_are_refused_before_anything_is_written(tmp_path, name, message):
    with pytest.raises(ConfigError, match=message):
        write_part("estimator", name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        *(("estimator", name, f"{name} is a word of Python") for name in ("lambda", "class", "return", "max")),
        *(("estimator", name, "YAML or the command line reads it") for name in ("off", "no", "null", "nan")),
        ("estimator", "true", "True is a word of Python; choose another, such as true_1"),
        ("scorer", "none", "None is a word of Python"),
        ("experiment", "on", "YAML or the command line reads it"),
        ("estimator", "np", "is taken by np in tests/unit/advantages/test_np.py"),
        ("estimator", "batch", "is taken by batch in scpo/advantages/batch.py"),
        ("estimator", "group", "is taken by GroupSettings in scpo/advantages/group.py"),
        ("estimator", "ours", "is taken by OURS in scpo/advantages/registry.py"),
        ("scorer", "sequence", "is taken by Sequence in scpo/scoring/sequence.py"),
    ],
)
def test_words_that_mean_something_else_are_refused_before_anything_is_written(checkout, kind, name, message):
    before = contents_of(checkout)
    with pytest.raises(ConfigError, match=message):
        write_part(kind, name, checkout)
    assert contents_of(checkout) == before


def test_a_failure_on_the_way_leaves_nothing(checkout, monkeypatch):
    before = contents_of(checkout)

    def full(path, *content, **options):
        if path.name == "registry.py":
            raise OSError("disk full")
        replace_file(path, *content, **options)

    monkeypatch.setattr("scpo.new.replace_file", full)
    with pytest.raises(OSError, match="disk full"):
        write_part("estimator", "mine", checkout)
    monkeypatch.setattr("scpo.new.replace_file", replace_file)
    monkeypatch.setattr("scpo.new._formatted", lambda path, text, root: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_part("estimator", "mine", checkout)
    assert contents_of(checkout) == before


def test_another_folder_is_no_checkout(tmp_path):
    with pytest.raises(ConfigError, match="is not a checkout"):
        write_part("estimator", "mine", tmp_path)
