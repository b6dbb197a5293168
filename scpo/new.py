"""Write the files of a new part and register it: ``python -m scpo.new KIND NAME``.

Kinds: estimator, identity (of states), scorer, matcher, figure, experiment. The generated code
runs, passes ruff, its own test and the laws of its kind; TODO marks what the author must fill in.
The first version of an estimator is a row's score minus the mean of its group; of an identity,
equal sets of words; of a scorer, the share of common words; of a matcher, the reference's positions
in order; of a figure, one point per row; of an experiment, SCPO and GiGPO.
"""

import argparse
import ast
import builtins
import importlib.util
import keyword
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scpo import new_templates as texts
from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, ScpoError
from scpo.records.files import replace_file
from scpo.scoring import SCORERS
from scpo.shaping.matcher import MATCHERS
from scpo.states.registry import IDENTITIES
from scpo.suggestions import SuggestingParser

CHECKOUT = Path(__file__).resolve().parents[1]

# Run folders and code contain the name, so it must be a short, lower-case identifier.
NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")

# Words that YAML or the command line reads as a truth value, null or a number.
YAML_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf")

Edit = Callable[[str, dict[str, str]], str]
"""(content of a file of the checkout, words of the new part) -> the new content."""


@dataclass(frozen=True)
class Kind:
    """A kind of part.

    Attributes:
        article: Its name with an article, for messages.
        files: Path -> text of the new files, both with names in braces.
        next_steps: Instructions to the author.
        edits: Path -> edits of the files of the checkout that register it.
        taken: Names in use.
    """

    article: str
    files: dict[str, str]
    next_steps: tuple[str, ...]
    edits: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    taken: Collection[str] = ()


def _insert_import(line: str) -> Edit:
    """Add an import in its sorted place among the imports of the same package."""
    package = line[: line.index("{name}")]

    def edit(text: str, words: dict[str, str]) -> str:
        new = line.format(**words) + "\n"
        lines = text.splitlines(keepends=True)
        places = [number for number, old in enumerate(lines) if old.startswith(package)]
        # In ruff's order of imports, so that the edited file passes the check.
        place = next((number for number in places if lines[number] > new), places[-1] + 1)
        return "".join([*lines[:place], new, *lines[place:]])

    return edit


def _append_to(opening: str, entry: str, closing: str) -> Edit:
    """Add an entry at the end of the tuple, dict or union that begins with ``opening``."""

    def edit(text: str, words: dict[str, str]) -> str:
        start = text.index(opening) + len(opening)
        end = text.index(closing, start)
        # ruff writes a trailing comma only if the entries are one per line.
        before = text[:end].rstrip().removesuffix(",")
        return f"{before}{entry.format(**words)}{text[end:]}"

    return edit


KINDS = {
    "estimator": Kind(
        article="an estimator",
        files={
            "scpo/advantages/{name}.py": texts.ESTIMATOR,
            "conf/estimator/{name}.yaml": texts.ESTIMATOR_YAML,
            "conf/method/{name}.yaml": texts.METHOD_YAML,
            "conf/scale/method/study_{name}.yaml": texts.RATE_YAML,
            "tests/unit/advantages/test_{name}.py": texts.ESTIMATOR_TEST,
        },
        next_steps=(
            "scpo/advantages/{name}.py: the formula, its source, what it requires "
            '(CONTRIBUTING.md, "A baseline")',
            "tests/unit/advantages/test_{name}.py: a table worked by hand",
            "python -m pytest tests/unit/advantages/test_{name}.py "
            "tests/contract/test_estimators.py -k {name}   (the laws)",
            "python train.py method={name}    or with others: python sweep.py +experiment=one "
            "method=gigpo,{name}",
            "conf/scale/method/study_{name}.yaml: its learning rate at scale=study, not tuned as "
            "written: python sweep.py +experiment=one method={name} scale=study "
            "'seeds=[100,101,102]' trainer.optimizer.learning_rate=5e-4,1e-3,2e-3,4e-3",
        ),
        edits={
            "scpo/advantages/registry.py": (
                _insert_import("from scpo.advantages.{name} import {constant}"),
                _append_to("\nOURS = (", ", {constant}", ")"),
            )
        },
        taken=ESTIMATORS,
    ),
    "identity": Kind(
        article="an identity of states",
        files={
            "scpo/states/{name}.py": texts.IDENTITY,
            "tests/unit/states/test_{name}.py": texts.IDENTITY_TEST,
        },
        next_steps=(
            "scpo/states/{name}.py: what makes two visits one state (scpo/states/identity.py has "
            "what can be read)",
            "tests/unit/states/test_{name}.py: texts whose states are known",
            "python -m pytest tests/unit/states/test_{name}.py tests/unit/states/test_registry.py "
            "-k {name}   (the laws)",
            "python train.py method=crbc method.estimator.states={name}",
        ),
        edits={
            "scpo/states/registry.py": (
                _insert_import("from scpo.states.{name} import {constant}"),
                _append_to("\nOURS = (", ", {constant}", ")"),
            )
        },
        taken=IDENTITIES,
    ),
    "scorer": Kind(
        article="a scorer",
        files={
            "scpo/scoring/{name}.py": texts.SCORER,
            "scpo/schema/scorer/{name}.py": texts.SCORER_SETTINGS,
            "conf/scorer/{name}.yaml": texts.SCORER_YAML,
            "tests/unit/scoring/test_{name}.py": texts.SCORER_TEST,
        },
        next_steps=(
            "scpo/scoring/{name}.py: the similarity; scpo/schema/scorer/{name}.py: its "
            "settings, and conf/scorer/{name}.yaml",
            "tests/unit/scoring/test_{name}.py: pairs worked by hand",
            "python -m pytest tests/unit/scoring/test_{name}.py",
            "python train.py method=scpo scorer={name}    or with others: "
            "python sweep.py +experiment=one method=scpo scorer=exact,{name}",
        ),
        taken=(*SCORERS, "minilm", "bge_reranker_v2_m3"),
    ),
    "matcher": Kind(
        article="a matcher",
        files={
            "scpo/shaping/{name}_match.py": texts.MATCHER,
            "tests/unit/shaping/test_{name}_match.py": texts.MATCHER_TEST,
        },
        next_steps=(
            "scpo/shaping/{name}_match.py: the rule and its source",
            "tests/unit/shaping/test_{name}_match.py: credit worked by hand",
            "python -m pytest tests/unit/shaping   (the laws: test_matcher.py, test_drive.py)",
            "python train.py method=scpo method.shaper.matcher={name}    or with others: "
            "python sweep.py +experiment=one method=scpo method.shaper.matcher=kmp,{name}",
        ),
        taken=MATCHERS,
    ),
    "figure": Kind(
        article="a figure",
        files={
            "analysis/figures/fig_{name}.py": texts.FIGURE,
            "tests/unit/analysis/figures/test_fig_{name}.py": texts.FIGURE_TEST,
        },
        next_steps=(
            "analysis/figures/fig_{name}.py: what is drawn, and the caption",
            "python -m pytest tests/unit/analysis/figures/test_fig_{name}.py",
            "python -m analysis figures fig_{name}    then open the PNG",
        ),
    ),
    "experiment": Kind(
        article="an experiment",
        files={"conf/experiment/{name}.yaml": texts.EXPERIMENT_YAML},
        next_steps=(
            "conf/experiment/{name}.yaml: rows, axes, and the comparisons that are named before "
            "the runs",
            "python sweep.py +experiment={name} dry_run=true",
            "python -m sweeps doctor +experiment={name}",
        ),
    ),
}


def write_part(kind: str, name: str, root: Path = CHECKOUT) -> list[Path]:
    """Write the files of a new part and register it; returns the new files.

    Raises:
        ConfigError: The name is malformed, a word of Python or YAML, or taken, or ``root`` is not a
            checkout. Nothing was written.
    """
    part = KINDS[kind]
    name = _own_name(kind, name, root)
    # Class names in the templates: `my_rule` becomes `MyRule`.
    title = "".join(word.capitalize() for word in name.split("_"))
    words = {
        "name": name,
        "title": title,
        "constant": name.upper(),
        "label": name.upper().replace("_", " "),
    }
    _check_name(part, words)

    files = {root / path.format(name=name): text for path, text in part.files.items()}
    existing = [str(path.relative_to(root)) for path in files if path.exists()]
    if name in part.taken or existing:
        owner = f" by {existing[0]}" if existing else ""
        raise ConfigError(f"the name {name!r} is taken{owner}; choose another")
    if not (root / "scpo" / "new.py").exists() or not (root / "tests").is_dir():
        raise ConfigError(
            f"{root} is not a checkout of scpo; for a package of your own: CONTRIBUTING.md, "
            '"From another package"'
        )

    # Everything is built in memory first, so that a failure writes nothing.
    contents = _contents(part, files, words, root)
    try:
        for path, text in contents.items():
            replace_file(path, text.encode(), readable=True)
    except OSError:
        for path in files:
            path.unlink(missing_ok=True)
        raise
    return list(files)


def _own_name(kind: str, name: str, root: Path) -> str:
    """The name of a part without the prefix of its file: ``learning`` for ``fig_learning``.

    Raises:
        ConfigError: The name of a figure is that of a table.
    """
    if kind != "figure":
        return name
    if name.startswith("tab_"):
        path = f"analysis/tables/{name}.py"
        which = f"{name!r} is the name of a table"
        how = f"write {path} by hand"
        if (root / path).exists():
            which = f"the name {name!r} is taken by {path}"
            how = "write a table by hand"
        raise ConfigError(
            f'{which}; scpo.new writes figures only: {how} (CONTRIBUTING.md, "A figure or a table")'
        )
    return name.removeprefix("fig_")


def _contents(
    part: Kind, files: dict[Path, str], words: dict[str, str], root: Path
) -> dict[Path, str]:
    """Path -> content of the new files, then of the edited files, which import the new ones.

    Raises:
        ConfigError: The name is also that of an import or a variable in one of the files.
    """
    contents = {path: text.format(**words) for path, text in files.items()}
    for edited, edits in part.edits.items():
        text = (root / edited).read_text()
        for edit in edits:
            text = edit(text, words)
        contents[root / edited] = text

    for path, text in contents.items():
        if path.suffix == ".py":
            _check_bindings(path.relative_to(root), text, words)
            contents[path] = _formatted(path, text, root)
    return contents


def _check_name(part: Kind, words: dict[str, str]) -> None:
    """Refuse malformed names, and words of Python, YAML or the command line.

    Raises:
        ConfigError: The name is refused; the message says what is allowed or suggests another.
    """
    name = words["name"]
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid name for {part.article}; allowed: a lower-case letter, then "
            "up to 29 of a-z, 0-9 and _"
        )
    # The title is checked, too: the class of a scorer `none` would be `None`.
    for word in (name, words["title"]):
        if keyword.iskeyword(word) or hasattr(builtins, word):
            raise ConfigError(
                f"{name!r} is not a valid name for {part.article}: {word} is a word of Python; "
                f"choose another, such as {name}_1"
            )
    if name in YAML_WORDS:
        raise ConfigError(
            f"{name!r} is not a valid name for {part.article}: YAML or the command line reads it "
            f"as a value; choose another, such as {name}_1"
        )


def _check_bindings(path: Path, text: str, words: dict[str, str]) -> None:
    """Refuse a name that the new file also gives to an import or a variable (`np`, `batch`).

    Raises:
        ConfigError: The name is bound twice; the message names the file.
    """
    count = Counter(_bound(ast.parse(text)))
    name, title = words["name"], words["title"]
    for word in (name, title, words["constant"], f"{name}_match", f"{title}Settings"):
        if count[word] > 1:
            raise ConfigError(f"the name {name!r} is taken by {word} in {path}; choose another")


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that a file binds, once for each binding."""
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _formatted(path: Path, text: str, root: Path) -> str:
    """Format a file with ruff, if installed, since its line lengths depend on the name."""
    if importlib.util.find_spec("ruff") is None:
        return text
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet"]
    done = subprocess.run(
        [*ruff, "--stdin-filename", str(path), "-"],
        cwd=root,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = SuggestingParser(
        prog="python -m scpo.new",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name", help="in configurations and file names, such as graphgpo")
    options = parser.parse_args(arguments)
    part = KINDS[options.kind]
    try:
        files = write_part(options.kind, options.name)
    except ScpoError as error:
        sys.stderr.write(f"error: {error}\n")
        # The exit status of argparse for a refused command line.
        return 2

    name = _own_name(options.kind, options.name, CHECKOUT)
    lines = ["Written:", *(f"  {path.relative_to(CHECKOUT)}" for path in files)]
    if part.edits:
        lines.append(f"Registered in {', '.join(part.edits)}.")
    lines.append("It runs already; next:")
    for number, step in enumerate(part.next_steps, start=1):
        lines.append(f"  {number}. {step.format(name=name)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
