"""``python -m scpo.new estimator NAME`` or ``identity NAME``: all files of a new baseline or state identity.

They run and pass the laws. An estimator starts as a row's score less the mean of its group, which every group-based one
is made of; an identity as equality of the words of a text, whatever their order.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, ScpoError
from scpo.records.files import replace_file
from scpo.states.registry import IDENTITIES

CHECKOUT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[a-z][a-z0-9_]*")

FUNCTION = '''"""{label}: TODO one line and the source, such as arXiv 2402.14740, section 3.3."""

from typing import Literal

from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.groups import as_advantage, group_ids
from scpo.advantages.outcomes import row_scores, score_moments
from scpo.steps import FloatArray, StepBatch


class {title}Settings(GroupSettings):
    name: Literal["{name}"]


def {name}(batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: {title}Settings) -> FloatArray:
    """A_i = s_i - mean(s) over the group's values; TODO the paper's formula, its units, and where it is silent.

    s = episode return - penalty * [invalid], in the unit of the rewards. Step returns and bonus are not read.
    """
    id_N = group_ids(batch.group_N)
    score_N = row_scores(batch, config)
    return as_advantage(score_N - score_moments(batch, score_N, id_N, config).mean_G[id_N])


{constant} = Estimator({title}Settings, {name}, requires=frozenset(), labels={{"{name}": "{label}"}})
'''
ESTIMATOR_YAML = """# {label}: TODO what it is and its source. Every value with where it comes from.
name: {name}
gamma: 0.95 # Table 3
invalid_penalty: 0.1 # Table 3
statistics: rows # ledger 4
std_floor: 1.0e-5 # ours, see estimator/grpo.yaml
"""
METHOD_YAML = """# {label}: TODO in one line, with PPO's clipped update as in verl-agent.
defaults:
  - /estimator@estimator: {name}
  - _self_

kind: trained
name: {name}
shaper: null
sampling: null # siblings in groups, once
clip_high: 0.2 # verl-agent's default
"""
TEST = """import numpy as np

from scpo.advantages.{name} import {name}
from tests.support.step_batches import make_batch, settings_of


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return {name}(batch, zero_N, zero_N, settings_of("{name}", **changes))


def test_hand_worked_group():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0))  # scores 1 1 1 0, mean 3/4
    assert np.allclose(advantages(batch), [0.25, 0.25, 0.25, -0.75])
"""
IDENTITY = '''"""States are equal if TODO one line and the source."""

from scpo.states.identity import Comparison, Identity
from scpo.states.visits import Visits, key_ids
from scpo.steps import IntArray


def {name}(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each set of words; TODO what is compared, and what that misses."""
    return key_ids(frozenset(text.lower().split()) for text in visits.text_M)


{constant} = Identity("{name}", "{label}", {name})
'''
IDENTITY_TEST = """from scpo.states.registry import IDENTITIES, identify
from tests.support.step_batches import make_batch


def test_hand_worked_group():
    batch = make_batch(*[(0, k, "x", 0) for k in range(3)], anchor_N=["a mug", "mug a", "a pen"])
    source_N = identify(batch, "anchor", IDENTITIES["{name}"]).source_N
    assert source_N[0] == source_N[1] != source_N[2]
"""
NEXT_IDENTITY = """Written:
{files}
and its line in scpo/states/registry.py. It runs already; next:
  1. scpo/states/{name}.py: what makes two visits one state (scpo/states/visits.py has what can be read)
  2. tests/unit/states/test_{name}.py: texts whose states are known
  3. python -m pytest tests/unit/states/test_{name}.py tests/unit/states/test_registry.py -k {name}   (the laws)
  4. python train.py method=crbc method.estimator.states={name}
"""
NEXT = """Written:
{files}
and its line in scpo/advantages/registry.py. It runs already; next:
  1. scpo/advantages/{name}.py: the formula, its source, what it requires (CONTRIBUTING.md, "A new baseline")
  2. tests/unit/advantages/test_{name}.py: a table worked by hand
  3. python -m pytest tests/unit/advantages/test_{name}.py tests/contract/test_estimators.py -k {name}   (the laws)
  4. python train.py method={name}    or beside others: python sweep.py +experiment=one method=gigpo,{name}
"""


def new_estimator(name: str, root: Path = CHECKOUT) -> list[Path]:
    """Write the files of an estimator and enter it into the registry; returns the files.

    Raises:
        ConfigError: The name is none, or is taken, or this is no checkout.
    """
    _check_name(name, "an estimator")
    files = {
        root / "scpo" / "advantages" / f"{name}.py": FUNCTION,
        root / "conf" / "estimator" / f"{name}.yaml": ESTIMATOR_YAML,
        root / "conf" / "method" / f"{name}.yaml": METHOD_YAML,
        root / "tests" / "unit" / "advantages" / f"test_{name}.py": TEST,
    }
    return _write(root, "advantages", name, files, taken=name in ESTIMATORS)


def new_identity(name: str, root: Path = CHECKOUT) -> list[Path]:
    """Write the files of a state identity and enter it into the registry; returns the files.

    Raises:
        ConfigError: The name is none, or is taken, or this is no checkout.
    """
    _check_name(name, "an identity")
    files = {
        root / "scpo" / "states" / f"{name}.py": IDENTITY,
        root / "tests" / "unit" / "states" / f"test_{name}.py": IDENTITY_TEST,
    }
    return _write(root, "states", name, files, taken=name in IDENTITIES)


def _check_name(name: str, kind: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of {kind}; allowed: a letter, then letters, digits and _, small")


def _write(root: Path, package: str, name: str, files: dict[Path, str], *, taken: bool) -> list[Path]:
    there = [str(path.relative_to(root)) for path in files if path.exists()]
    if taken or there:
        raise ConfigError(f"the name {name!r} is taken{f' by {there[0]}' if there else ''}; choose another")
    registry = root / "scpo" / package / "registry.py"
    if not registry.exists() or not (root / "tests").is_dir():
        raise ConfigError(f"{root} is no checkout of scpo; from outside one: CONTRIBUTING.md, entry points")
    words = {"name": name, "title": _title(name), "constant": name.upper(), "label": name.upper().replace("_", " ")}
    for path, template in files.items():
        replace_file(path, template.format(**words).encode(), readable=True)
    replace_file(registry, _registered(registry.read_text(), package, name).encode(), readable=True)
    return list(files)


def _registered(text: str, package: str, name: str) -> str:
    """The registry with the entry's import in its place and its name after the others."""
    lines = text.splitlines(keepends=True)
    imports = [k for k, line in enumerate(lines) if line.startswith(f"from scpo.{package}.")]
    line = f"from scpo.{package}.{name} import {name.upper()}\n"
    place = next((k for k in imports if lines[k] > line), imports[-1] + 1)
    text = "".join([*lines[:place], line, *lines[place:]])
    return re.sub(r"^(OURS = \([^)]*?),?\)", rf"\1, {name.upper()})", text, count=1, flags=re.MULTILINE)


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the command line."""
    parser = argparse.ArgumentParser(prog="python -m scpo.new", description=__doc__)
    parser.add_argument("what", choices=["estimator", "identity"])
    parser.add_argument("name", help="in configurations and file names, such as graphgpo")
    options = parser.parse_args(arguments)
    try:
        files = new_estimator(options.name) if options.what == "estimator" else new_identity(options.name)
    except ScpoError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    listed = "\n".join(f"  {path.relative_to(CHECKOUT)}" for path in files)
    following = NEXT if options.what == "estimator" else NEXT_IDENTITY
    sys.stdout.write(following.format(files=listed, name=options.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
