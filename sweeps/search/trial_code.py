"""Versions of the code with which the trials of a search ran.

If the code changes during a search, finished trials are kept and new ones use the new code. All are
ranked together, so notes name the trials of each version.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError
from scpo.records import RunFolder, State
from scpo.records.code_files import code_files
from scpo.records.code_record import file_versions, shown_files
from scpo.records.run_folders import command_on
from scpo.schema.run import RunConfig
from sweeps.search.plan import Plan

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Largest number of run ids in the command of a note.
LISTED_RUNS = 12

# Configurations of a trial's runs, by id.
Runs = Mapping[str, RunConfig]


def runs_of(plan: Plan, trials: "Sequence[FrozenTrial]") -> dict[int, Runs]:
    """Runs of each trial, by its number; without failed trials, which are not ranked."""
    not_failed = [trial for trial in trials if trial.state.name != "FAIL"]
    return {trial.number: plan.runs(trial.params) for trial in not_failed}


def version_notes(plan: Plan, runs: Mapping[int, Runs]) -> list[str]:
    """Notes on files of which the ended runs of these trials used several versions.

    For example ``scpo/steps.py had several versions: trials 0, 1; trial 2. All are ranked
    together``. Files with the same versions share a note.
    """
    # ("trials 0, 1", "trial 2") -> files of which these groups of trials used different versions.
    files_of: dict[tuple[str, ...], list[str]] = {}
    for name, trials_by_hash in _trials_by_hash(plan, runs, None).items():
        groups = sorted(sorted(numbers) for numbers in trials_by_hash.values())
        key = tuple(_numbers(group) for group in groups)
        files_of.setdefault(key, []).append(name)
    notes = []
    for texts, names in files_of.items():
        several = "; ".join(texts)
        notes.append(
            f"{shown_files(names)} had several versions: {several}. All are ranked together"
        )
    return notes


def change_notes(plan: Plan, runs: Mapping[int, Runs]) -> list[str]:
    """Notes on trials whose ended runs used code that has changed since, and how to repeat them."""
    changed = changed_trials(plan, runs)
    if not changed:
        return []
    affected: set[int] = set()
    for numbers in changed:
        affected |= numbers
    ids: list[str] = []
    for number in sorted(affected):
        ids += runs[number]
    runs_dir = Path(plan.base.machine.runs_dir)
    first = command_on(runs_dir, "sweeps rm --finished", *ids[:LISTED_RUNS])
    others = f" (and {len(ids) - LISTED_RUNS} more)" if len(ids) > LISTED_RUNS else ""
    remedy = (
        "trials of all versions are ranked together. To try these settings again, first: "
        f"{first}{others}, and delete {plan.folder}"
    )
    return [*(change_note(numbers, files) for numbers, files in changed.items()), remedy]


def change_note(trials: Collection[int], files: Sequence[str]) -> str:
    """Note such as ``trials 0, 1 of other code, changed since: scpo/steps.py``."""
    return f"{_numbers(trials)} of other code, changed since: {shown_files(files)}"


def changed_trials(plan: Plan, runs: Mapping[int, Runs]) -> dict[frozenset[int], list[str]]:
    """Numbers of trials whose ended runs used other versions of files -> these files."""
    present = code_files()
    changed: dict[frozenset[int], list[str]] = {}
    for name, trials_by_hash in _trials_by_hash(plan, runs, present).items():
        of_other_code: set[int] = set()
        for file_hash, numbers in trials_by_hash.items():
            if file_hash != present.get(name):
                of_other_code |= numbers
        changed.setdefault(frozenset(of_other_code), []).append(name)
    return changed


def _trials_by_hash(
    plan: Plan, runs: Mapping[int, Runs], present: Mapping[str, str] | None
) -> dict[str, dict[str | None, set[int]]]:
    """File with several versions -> hash of a version -> trials whose ended runs used it.

    Args:
        plan: The search.
        runs: Runs of each trial.
        present: Hashes of the present code; a file that differs from it has several versions too.
    """
    # Folder of a run -> the trials that it belongs to, which may be several.
    trials: dict[Path, set[int]] = {}
    ended = []
    for number, by_id in runs.items():
        for run_id, config in by_id.items():
            folder = RunFolder(Path(plan.base.machine.runs_dir) / run_id)
            if _has_ended(folder):
                ended.append((folder, config))
                trials.setdefault(folder.path, set()).add(number)
    try:
        versions = file_versions(ended, present)
    except RecordError:
        # No notes then; `sweeps verify` reports the damaged record.
        return {}
    found: dict[str, dict[str | None, set[int]]] = {}
    for name, hashes_by_run in versions.items():
        by_hash = found.setdefault(name, {})
        for path, hashes in hashes_by_run.items():
            for file_hash in hashes:
                by_hash.setdefault(file_hash, set()).update(trials[path])
    return found


def _has_ended(folder: RunFolder) -> bool:
    """True if the run is DONE or PRUNED; False if its folder is missing or damaged."""
    with contextlib.suppress(RecordError):
        return folder.read_status().state in (State.DONE, State.PRUNED)
    return False


def _numbers(trials: Collection[int]) -> str:
    """Text such as ``trials 0, 1``."""
    noun = "trials" if len(trials) > 1 else "trial"
    return f"{noun} {', '.join(map(str, sorted(trials)))}"
