"""Provenance of an attempt: code, packages, machine; no environment variables, no command lines.

The code is also recorded as a hash of each file, so that a run is resumed only by the code that
began it. The commit is not sufficient: a commit may change only a text, an uncommitted edit may
change numbers, and some checkouts have no git. ``conf/`` and slurm/site.yaml are left out, because
a run keeps its whole configuration.
"""

import hashlib
import importlib.metadata
import importlib.util
import itertools
import platform
import re
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scpo.advantages.registry import ESTIMATORS, PACKAGES
from scpo.errors import ConfigError
from scpo.installed import REPOSITORY
from scpo.records import redaction
from scpo.records.files import (
    Count,
    Record,
    file_sum,
    read_json,
    read_record,
    text_sum,
    write_bytes,
    write_json,
)
from scpo.records.installed_code import files_of_module, imported_files, installed_files
from scpo.records.memory import installed_gpus
from scpo.records.run_config import read_config
from scpo.records.run_folders import Provenance, RunFolder, now
from scpo.schema.run import RunConfig
from scpo.shaping.matcher import MATCHERS

# File of a snapshot of the code with its commit and uncommitted changes, as there is no .git.
SNAPSHOT_RECORD = "snapshot.json"
COMMAND_TIMEOUT_S = 20

# File of an attempt's folder with the changes of its code that were in no commit.
UNCOMMITTED = "uncommitted.diff"

# Largest untracked file whose text is in the diff; a larger one, no code, has its checksum there.
SHOWN_BYTES = 1 << 20

# File of a run folder with the hashes of the code that wrote its steps.
CODE_RECORD = "code.json"
CODE_PARTS = ("scpo", "sweeps", "train.py")

# Suffixes of code; other files may be written next to it by tools.
CODE_SUFFIXES = (".py", ".yaml")

# Largest number of files that a message lists.
SHOWN_FILES = 6

# Modules that list all estimators or identities of states, of which a run uses few.
REGISTRIES = ("scpo/advantages/registry.py", "scpo/states/registry.py")
_ENTRY = re.compile(
    r"^from scpo\.(?:advantages|states)\.\w+ import [A-Z][A-Z0-9_]*\n", re.MULTILINE
)
_ENTRIES = re.compile(r"^OURS = \([^)]*\)", re.MULTILINE)


class CodeVersion(Record):
    """Path of each code file -> hash of its content; the code of the steps after ``after_step``."""

    files: dict[str, str]
    after_step: Count = 0


class CodeRecord(CodeVersion):
    """code.json: the code of the last steps and, of a run resumed across versions, the earlier."""

    earlier: tuple[CodeVersion, ...] = ()

    @property
    def versions(self) -> tuple[CodeVersion, ...]:
        """All versions of the code that wrote steps of the run, in their order."""
        return (*self.earlier, self)


def git_commit() -> str | None:
    """Commit of the running code; None if unknown."""
    snapshot = _snapshot()
    if snapshot:
        commit: str | None = snapshot["commit"]
        return commit
    printed = output("git", "rev-parse", "HEAD")
    return printed.decode().strip() if printed else None


def code_state(secret_names: Collection[str] = ()) -> dict[str, Any]:
    """{commit, uncommitted}: the running code and its uncommitted changes, secrets redacted.

    The changes are a diff, with untracked code and configuration that git does not ignore as new
    files.

    Args:
        secret_names: Environment variables that are secret although their names do not show it.
    """
    snapshot = _snapshot()
    if snapshot:
        return snapshot
    changes = output("git", "diff", "HEAD", "--no-ext-diff") or b""
    diff = b"".join((changes, *_untracked())).decode(errors="replace")
    return {"commit": git_commit(), "uncommitted": redaction.redact(diff, names=secret_names)}


def _untracked() -> Iterator[bytes]:
    """Yield a diff for each untracked file of the code or the configuration.

    ``python -m scpo.new`` leaves such files, and a run uses those that are found by their names.
    Other untracked files, such as data, are not even listed.
    """
    listed = output(
        "git", "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE_PARTS, "conf"
    )
    for name in (listed or b"").decode(errors="surrogateescape").split("\0"):
        path = REPOSITORY / name
        if path.suffix not in CODE_SUFFIXES or not path.is_file():
            continue
        if path.stat().st_size > SHOWN_BYTES:
            yield f"{name}: not in git, SHA-256 {file_sum(path).sha256}\n".encode()
            continue
        # Against an empty file: to diff it with a commit, it would have to enter the user's index.
        command = ("git", "diff", "--no-ext-diff", "--no-index", "--", "/dev/null", name)
        yield output(*command, statuses=(0, 1)) or b""


def key_variables(configs: Iterable[RunConfig]) -> set[str]:
    """The environment variables that hold the keys of these runs' endpoints."""
    variables = set()
    for config in configs:
        if config.model.kind == "api" and config.model.key_variable is not None:
            variables.add(config.model.key_variable)
    return variables


def _snapshot() -> dict[str, Any]:
    """The record of a code snapshot; empty in a checkout."""
    path = REPOSITORY / SNAPSHOT_RECORD
    return dict(read_json(path)) if path.exists() else {}


def record(folder: RunFolder, config: RunConfig, attempt: int) -> None:
    """Add an attempt to provenance.json, and the uncommitted changes to the attempt's folder."""
    code = code_state(key_variables([config]))
    diff = code["uncommitted"].encode()
    if diff:
        write_bytes(folder.attempt(attempt) / UNCOMMITTED, diff)
    attempts = _attempts(folder)
    attempts[str(attempt)] = {
        "started_at": now(),
        "commit": code["commit"],
        "dirty": bool(diff),
        # Two attempts with the same commit and hash ran the same code of the checkout.
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "seed": config.seed,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "torch_capability": _torch_capability() if config.method.kind == "trained" else None,
        "gpus": [name for name, _ in installed_gpus()],
        "python": platform.python_version(),
        "packages": _packages(),
    }
    write_json(folder.provenance, {"attempts": attempts})


def _attempts(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Provenance of a run's attempts, by their numbers; empty before the first."""
    if not folder.provenance.exists():
        return {}
    return read_record(folder.provenance, Provenance, "record of attempts").attempts


def _packages() -> dict[str, str]:
    versions = {}
    for distribution in importlib.metadata.distributions():
        # `distribution.version` would parse the metadata again.
        metadata = distribution.metadata
        versions[str(metadata["Name"]).lower()] = str(metadata["Version"])
    return dict(sorted(versions.items()))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _torch_capability() -> str | None:
    """The vector instructions that torch's CPU kernels use, e.g. AVX512; None without torch.

    They determine the rounding of sums. They may differ between processors of one name, and with
    ATEN_CPU_CAPABILITY.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    # A slow import, but a run that trains needs it anyway.
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def output(*command: str, statuses: Collection[int] = (0,)) -> bytes | None:
    """Output of a command in the repository; None if it fails, times out or is not installed.

    Args:
        command: Its words.
        statuses: Exit statuses that are no failure; `git diff --no-index` has 1 for a difference.
    """
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in statuses else None


def code_files() -> dict[str, str]:
    """Path -> hash of each file of the running code; the same in a checkout and its snapshot.

    With the files of installed packages whose estimators are registered.
    """
    hashes = {}
    for part in CODE_PARTS:
        top = REPOSITORY / part
        paths = [top] if top.is_file() else top.rglob("*")
        for path in paths:
            if path.suffix in CODE_SUFFIXES and path.is_file():
                name = str(path.relative_to(REPOSITORY))
                content = path.read_bytes()
                if name in REGISTRIES:
                    content = without_entries(content.decode()).encode()
                hashes[name] = text_sum(content)
    for name, path in installed_files().items():
        hashes[name] = text_sum(path.read_bytes())
    return dict(sorted(hashes.items()))


def read_code(folder: RunFolder) -> CodeRecord | None:
    """Read the record of the code that wrote a run's steps; None before the first attempt."""
    path = folder.path / CODE_RECORD
    if not path.exists():
        return None
    return read_record(path, CodeRecord, "record of the code")


def check_resume(
    folder: RunFolder,
    config: RunConfig,
    *,
    across: bool,
    commits: tuple[str | None, str | None],
) -> None:
    """Check that a checkpoint was written by the present code, then record the present code.

    A curve with steps of two versions of the code would be a result of neither. Files that the run
    does not use may have changed. If the check is skipped, the record keeps the earlier versions.

    Args:
        folder: The run.
        config: Its configuration, which determines the files that it uses.
        across: ``machine.resume_across_versions``: skip the check.
        commits: The commit under which the run stopped, and the present one.

    Raises:
        ConfigError: The code has changed; the message names the files.
    """
    present = code_files()
    checkpoints = folder.complete_checkpoints()
    step = checkpoints[-1] if checkpoints else 0
    record = read_code(folder)
    # A version that wrote no checkpoint left no step: its lines are dropped on resume.
    written = (
        [version for version in record.versions if version.after_step < step] if record else []
    )
    if written:
        changed = _changed(written[-1], present, config)
    elif checkpoints and commits[0] != commits[1]:
        # Without a record of the files, only the commits can be compared.
        changed = [f"commit {commits[0]}, now {commits[1]}"]
    else:
        changed = []
    if changed and not across:
        which = "it" if len(changed) == 1 else "them"
        raise ConfigError(
            f"{folder.run_id} stopped at step {step} under other code. Changed since: "
            f"{shown_files(changed)}. Restore {which} "
            f"({_earlier_and_present(folder, commits, changed)}), or add "
            f"machine.resume_across_versions=true, or delete {folder.path} to start again"
        )
    # Changes of files that the run does not use begin no version.
    after_step = step if changed or not written else written.pop().after_step
    earlier = [CodeVersion(files=old.files, after_step=old.after_step) for old in written]
    now_used = CodeRecord(files=present, after_step=after_step, earlier=tuple(earlier))
    write_json(folder.path / CODE_RECORD, now_used.model_dump(mode="json"))


def _earlier_and_present(
    folder: RunFolder, commits: tuple[str | None, str | None], changed: Sequence[str]
) -> str:
    """The code under which a run stopped and the present code, for a message.

    The commits alone would mislead: often only the uncommitted changes differ.
    """
    earlier = f"the run stopped under commit {commits[0]}"
    attempts = _attempts(folder)
    if attempts:
        diff = folder.attempt(max(map(int, attempts))) / UNCOMMITTED
        if diff.exists():
            earlier += f" with uncommitted changes, {diff}"
    present = f"now it is commit {commits[1]}"
    if code_state()["uncommitted"]:
        present += " with uncommitted changes"
    outside = sorted(installed_files().keys() & set(changed))
    if outside:
        present += f"; {shown_files(outside)}: of an installed package, which neither records"
    return f"{earlier}; {present}"


def changed_files(
    folder: RunFolder, config: RunConfig, present: Mapping[str, str] | None = None
) -> list[str]:
    """Files that a run uses and that have changed since it wrote its steps, the last or others.

    Args:
        folder: The run.
        config: Its configuration, which determines the files that it uses.
        present: ``code_files()``; None: compute it here.
    """
    record = read_code(folder)
    if record is None:
        # The run has made no attempt, or is older than this record.
        return []
    present = code_files() if present is None else present
    changed: set[str] = set()
    for version in record.versions:
        changed.update(_changed(version, present, config))
    return sorted(changed)


def _changed(earlier: CodeVersion, present: Mapping[str, str], config: RunConfig) -> list[str]:
    names = earlier.files.keys() | present.keys()
    changed = {name for name in names if earlier.files.get(name) != present.get(name)}
    if not changed:
        # Skip `used_files`, which takes half a second.
        return []
    return sorted(changed & used_files(config, REPOSITORY))


def resumes_by_other_code(folder: RunFolder) -> list[str]:
    """Resumes of a run by other code, e.g. ``resumed at step 2 by other code: scpo/steps.py``.

    Raises:
        RecordError: A record of the run is damaged.
    """
    record = read_code(folder)
    if record is None or not record.earlier:
        return []
    config = read_config(folder)
    found = []
    for before, after in itertools.pairwise(record.versions):
        files = shown_files(_changed(before, after.files, config))
        found.append(f"resumed at step {after.after_step} by other code: {files}")
    return found


def differing_files(runs: Iterable[tuple[RunFolder, RunConfig]]) -> list[str]:
    """Files that these runs use, and that were not the same in all their steps."""
    return list(file_versions(runs))


def file_versions(
    runs: Iterable[tuple[RunFolder, RunConfig]], present: Mapping[str, str] | None = None
) -> dict[str, dict[Path, frozenset[str | None]]]:
    """File that these runs use and that was not the same in all their steps -> run -> its hashes.

    A run that was resumed under other code may have several. Runs without a record of their code
    are left out: old ones, and those of an archive.

    Args:
        runs: Folders and configurations.
        present: ``code_files()``, if files that have changed since are wanted, too.
    """
    known: list[tuple[Path, CodeRecord, RunConfig]] = []
    for folder, config in runs:
        record = read_code(folder)
        if record is not None:
            known.append((folder.path, record, config))
    codes = [version.files for _, record, _ in known for version in record.versions]
    codes += [] if present is None else [dict(present)]
    if all(files == codes[0] for files in codes):
        return {}

    found: dict[str, dict[Path, frozenset[str | None]]] = {}
    # Found once for all seeds of a row, which use the same files: it takes half a second.
    used: dict[tuple[str, ...], set[str]] = {}
    for path, record, config in known:
        kind = (*_parts(config), _trainer(config), config.env.name)
        if kind not in used:
            used[kind] = used_files(config, REPOSITORY)
        for name in used[kind]:
            hashes = (version.files.get(name) for version in record.versions)
            found.setdefault(name, {})[path] = frozenset(hashes)
    several = {}
    for name, by_run in sorted(found.items()):
        now = frozenset() if present is None else {present.get(name)}
        if len(frozenset().union(now, *by_run.values())) > 1:
            several[name] = by_run
    return several


def shown_files(names: Sequence[str]) -> str:
    """The first few of these files and the number of the others, for a message."""
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")


def without_entries(text: str) -> str:
    """A registry's code without its entries; the entry that a run uses is compared as a file."""
    return _ENTRIES.sub("OURS = ()", _ENTRY.sub("", text))


def used_files(config: RunConfig, root: Path) -> set[str]:
    """Paths, as in ``code_files``, of the files whose change could change a run's numbers.

    These are the files that the trainer imports, at the top of a file or inside a function, and all
    files of the run's environment. An estimator of an installed package has the files that it
    imports of its package, too. Other estimators and identities of states in the registries, and
    other matchers and scorers in files of their own, are left out, so that a new baseline does not
    prevent runs from being resumed. So are sweeps, the doctor and the commands of this project.

    Args:
        config: The run's configuration.
        root: Folder of this project's code.
    """
    installed = installed_files()
    packages = frozenset({"scpo", *(name.split("/")[0].removesuffix(".py") for name in installed)})
    waiting = ["scpo/trainers/__init__.py", *_parts(config)]
    for folder in (f"scpo/trainers/{_trainer(config)}", f"scpo/envs/{config.env.name}"):
        waiting += [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*.py"))]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = installed.get(name, root / name)
        if name in used or not path.is_file():
            continue
        used.add(name)
        text = path.read_text(errors="replace")
        text = without_entries(text) if name in REGISTRIES else text
        # Not analysis: scpo/__init__.py imports two of its functions, but only for notebooks.
        waiting += imported_files(text, name, packages)
    return used


def _trainer(config: RunConfig) -> str:
    if config.method.kind != "trained":
        return "evaluate"
    return config.trainer.name


def _parts(config: RunConfig) -> Iterator[str]:
    """Files of the estimator, the identities, the matcher and the scorer that a run names."""
    if config.method.kind != "trained":
        return
    # Only a scorer in files of its own has these two; other scorers are found as imports.
    yield f"scpo/schema/scorer/{config.scorer.kind}.py"
    yield f"scpo/scoring/{config.scorer.kind}.py"
    estimator = config.method.estimator.name
    if estimator in PACKAGES:
        # The entry point's file may only join settings with a function from elsewhere.
        yield from files_of_module(PACKAGES[estimator].module)
    functions = [ESTIMATORS[estimator].function]
    functions += [identity.function for identity in config.method.identities.values()]
    if config.method.shaper is not None:
        functions.append(MATCHERS[config.method.shaper.matcher])
    for function in functions:
        yield from files_of_module(function.__module__)
