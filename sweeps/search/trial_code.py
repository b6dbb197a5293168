"""Versions of the code under which the trials of a search ran.

A search goes on under changed code, and its trials stay, as the finished runs of a sweep do. The
notes name the trials of each version, because all of them are ranked together.
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

LISTED_RUNS = 12

# Runs of a trial by id.
Runs = Mapping[str, RunConfig]


def runs_of(plan: Plan, trials: "Sequence[FrozenTrial]") -> dict[int, Runs]:
    """Runs of each trial by its number; without failed trials, which have no rank."""
    ranked = [trial for trial in trials if trial.state.name != "FAIL"]
    return {trial.number: plan.runs(trial.params) for trial in ranked}


def version_notes(plan: Plan, runs: Mapping[int, Runs]) -> list[str]:
    """Name the files of which the ended runs of these trials used several versions.

    For example ``scpo/steps.py had several versions: trials 0, 1; trial 2``.
    """
    files_of: dict[tuple[str, ...], list[str]] = {}
    for name, trials in _trials_by_hash(plan, runs, None).items():
        versions = sorted(trials.values(), key=sorted)
        files_of.setdefault(tuple(map(_numbers, versions)), []).append(name)
    notes = []
    for groups, names in files_of.items():
        several = "; ".join(groups)
        notes.append(
            f"{shown_files(names)} had several versions: {several}. All are ranked together"
        )
    return notes


def change_notes(plan: Plan, runs: Mapping[int, Runs]) -> list[str]:
    """Name the trials whose ended runs used other code than the present, and what to do."""
    changed = changed_trials(plan, runs)
    if not changed:
        return []
    stale = sorted(frozenset().union(*changed))
    ids = [run_id for number in stale for run_id in runs[number]]
    runs_dir = Path(plan.base.machine.runs_dir)
    first = command_on(runs_dir, "sweeps rm --finished", *ids[:LISTED_RUNS])
    others = f" (and {len(ids) - LISTED_RUNS} more)" if len(ids) > LISTED_RUNS else ""
    remedy = (
        "trials of all versions are ranked together. To try these settings again, first: "
        f"{first}{others}, and delete {plan.folder}"
    )
    return [*(change_note(*change) for change in changed.items()), remedy]


def change_note(trials: Collection[int], files: Sequence[str]) -> str:
    """For example ``trials 0, 1 of other code, changed since: scpo/steps.py``."""
    return f"{_numbers(trials)} of other code, changed since: {shown_files(files)}"


def changed_trials(plan: Plan, runs: Mapping[int, Runs]) -> dict[frozenset[int], list[str]]:
    """Trials whose ended runs used files that have changed since -> these files."""
    present = code_files()
    changed: dict[frozenset[int], list[str]] = {}
    for name, trials in _trials_by_hash(plan, runs, present).items():
        old = [numbers for value, numbers in trials.items() if value != present.get(name)]
        changed.setdefault(frozenset().union(*old), []).append(name)
    return changed


def _trials_by_hash(
    plan: Plan, runs: Mapping[int, Runs], present: Mapping[str, str] | None
) -> dict[str, dict[str | None, set[int]]]:
    """File with several versions -> its hash -> the trials whose ended runs used that version."""
    trials: dict[Path, set[int]] = {}
    ended = []
    for number, by_id in runs.items():
        for run_id, config in by_id.items():
            folder = RunFolder(Path(plan.base.machine.runs_dir) / run_id)
            if _ended(folder):
                ended.append((folder, config))
                trials.setdefault(folder.path, set()).add(number)
    try:
        versions = file_versions(ended, present)
    except RecordError:
        # `sweeps verify` names the damaged record.
        return {}
    found: dict[str, dict[str | None, set[int]]] = {}
    for name, by_run in versions.items():
        by_hash = found.setdefault(name, {})
        for path, hashes in by_run.items():
            for value in hashes:
                by_hash.setdefault(value, set()).update(trials[path])
    return found


def _ended(folder: RunFolder) -> bool:
    # A missing folder has no code to compare, and a damaged one fails its trial.
    with contextlib.suppress(RecordError):
        return folder.read_status().state in (State.DONE, State.PRUNED)
    return False


def _numbers(trials: Collection[int]) -> str:
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, sorted(trials)))}"
