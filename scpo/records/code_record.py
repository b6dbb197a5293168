"""Record of the code that wrote a run's steps, so that only the same code resumes it.

It holds a hash of each file. The commit is not sufficient: a commit may change only a text, an
uncommitted edit may change numbers, and some checkouts have no git. ``conf/`` and slurm/site.yaml
are left out, because a run keeps its whole configuration.
"""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scpo.errors import ConfigError
from scpo.installed import REPOSITORY
from scpo.records.code_files import code_files, code_kind, installed_files, used_files
from scpo.records.files import Count, Record, read_record, write_json
from scpo.records.provenance import code_state, latest_diff
from scpo.records.run_config import read_config
from scpo.records.run_folders import CODE_REMEDY, RunFolder
from scpo.records.status import State
from scpo.schema.run import RunConfig

# Largest number of files that a message lists.
SHOWN_FILES = 6

logger = logging.getLogger(__name__)


class CodeVersion(Record):
    """Path of each code file -> hash of its content; the code of the steps after ``after_step``."""

    files: dict[str, str]
    after_step: Count = 0


class CodeRecord(CodeVersion):
    """code.json: the code of the last steps; after a resume across versions also the earlier."""

    earlier: tuple[CodeVersion, ...] = ()

    @property
    def versions(self) -> tuple[CodeVersion, ...]:
        """All versions of the code that wrote steps of the run, in their order."""
        return (*self.earlier, self)


def read_code(folder: RunFolder) -> CodeRecord | None:
    """Read the record of the code that wrote a run's steps; None before the first attempt."""
    if not folder.code.exists():
        return None
    return read_record(folder.code, CodeRecord, "record of the code", CODE_REMEDY)


def without_code(folder: RunFolder) -> str | None:
    """Message on a finished run that has no record of its code; None for others.

    Raises:
        RecordError: Its status is damaged.
    """
    status = folder.read_status()
    # A status without an attempt was not written by a run's process.
    if status.state is not State.DONE or not status.attempt or folder.code.exists():
        return None
    return (
        f"no {folder.code.name} (lost, or the run is older than this record): tables cannot "
        "compare its code with that of other runs; restore it from a copy"
    )


def check_resume(
    folder: RunFolder,
    config: RunConfig,
    *,
    across: bool,
    commits: tuple[str | None, str | None],
) -> None:
    """Check that a checkpoint was written by the present code, then record the present code.

    A curve with steps of two versions of the code would be a result of neither. Changes of files
    that the run does not use are allowed. If the check is skipped, the record keeps the earlier
    versions.

    Args:
        folder: The run.
        config: Its configuration, which determines the files that it uses.
        across: ``machine.resume_across_versions``: skip the check.
        commits: The commit under which the run stopped, and the present one.

    Raises:
        ConfigError: The code has changed; the message names the files.
    """
    present = code_files()
    step, written, changed = _since_checkpoint(folder, config, commits, present)
    if changed and not across:
        raise ConfigError(_refusal(folder, step, changed, commits))
    if not written and not folder.code.exists() and folder.complete_checkpoints():
        logger.warning(
            "%s is lost: only the commits could be compared, not the files of the code that wrote "
            "the steps up to %d",
            folder.code,
            step,
        )
    # A new version begins only with a change of a file that the run uses.
    after_step = step if changed or not written else written.pop().after_step
    earlier = [CodeVersion(files=old.files, after_step=old.after_step) for old in written]
    now_used = CodeRecord(files=present, after_step=after_step, earlier=tuple(earlier))
    write_json(folder.code, now_used.model_dump(mode="json"))


def refused_resume(
    folder: RunFolder, config: RunConfig, commits: tuple[str | None, str | None]
) -> str | None:
    """Message with which ``check_resume`` would refuse to go on; None if it would not.

    Writes nothing, for a dry run. The arguments are those of ``check_resume``.
    """
    if config.machine.resume_across_versions:
        return None
    step, _, changed = _since_checkpoint(folder, config, commits, code_files())
    return _refusal(folder, step, changed, commits) if changed else None


def _since_checkpoint(
    folder: RunFolder,
    config: RunConfig,
    commits: tuple[str | None, str | None],
    present: Mapping[str, str],
) -> tuple[int, list[CodeVersion], list[str]]:
    """Step of the newest checkpoint, versions that wrote steps before it, and files changed since.

    The step is 0 without a checkpoint.
    """
    checkpoints = folder.complete_checkpoints()
    step = checkpoints[-1] if checkpoints else 0
    record = read_code(folder)
    # A resume drops all steps after the checkpoint, and so the versions that wrote only such steps.
    written = (
        [version for version in record.versions if version.after_step < step] if record else []
    )
    if written:
        return step, written, _changed(written[-1], present, config)
    if checkpoints and commits[0] != commits[1]:
        # Without a record of the files, only the commits can be compared.
        return step, written, [f"commit {commits[0]}, now {commits[1]}"]
    return step, written, []


def _refusal(
    folder: RunFolder,
    step: int,
    changed: Sequence[str],
    commits: tuple[str | None, str | None],
) -> str:
    which = "it" if len(changed) == 1 else "them"
    return (
        f"{folder.run_id} stopped at step {step} under other code. Changed since: "
        f"{shown_files(changed)}. Restore {which} "
        f"({_earlier_and_present(folder, commits, changed)}), or add "
        f"machine.resume_across_versions=true, or move {folder.path} away to start again"
    )


def _earlier_and_present(
    folder: RunFolder, commits: tuple[str | None, str | None], changed: Sequence[str]
) -> str:
    """The code under which a run stopped and the present code, for a message.

    The commits would mislead: often only the uncommitted changes differ.
    """
    earlier = f"the run stopped under commit {commits[0]}"
    diff = latest_diff(folder)
    if diff is not None:
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
    """Files that a run uses and that have changed since it wrote any of its steps.

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
    """Files that these runs use and that were not the same in all their steps."""
    return list(file_versions(runs))


def file_versions(
    runs: Iterable[tuple[RunFolder, RunConfig]], present: Mapping[str, str] | None = None
) -> dict[str, dict[Path, frozenset[str | None]]]:
    """Hashes of the files that these runs use and that were not the same in all their steps.

    Runs without a record of their code are left out: old runs, and those of an archive.

    Args:
        runs: Folders and configurations.
        present: ``code_files()``, to include files that have changed since the runs; None: compare
            the runs only.

    Returns:
        File -> folder of the run -> hashes; several if the run was resumed under other code.
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
    # Computed once for all seeds of a row, which use the same files: it takes half a second.
    used: dict[tuple[str, ...], set[str]] = {}
    for path, record, config in known:
        kind = code_kind(config)
        if kind not in used:
            used[kind] = used_files(config, REPOSITORY)
        for name in used[kind]:
            written = frozenset(version.files.get(name) for version in record.versions)
            found.setdefault(name, {})[path] = written
    several = {}
    for name, by_run in sorted(found.items()):
        hashes: set[str | None] = set().union(*by_run.values())
        if present is not None:
            hashes.add(present.get(name))
        if len(hashes) > 1:
            several[name] = by_run
    return several


def shown_files(names: Sequence[str]) -> str:
    """The first few of these files and the number of the others, for a message."""
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
