"""The versions of the code that the runs of a table used."""

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from analysis.sources.configurations import is_prompted, reworded_dose
from analysis.sources.rows import Row, Section, first_names, seed_list
from analysis.sources.run_records import AND, UNKNOWN, Run, is_implied, one_processor_type
from analysis.sources.shared_settings import notes_across
from scpo.benchmarks import BENCHMARKS
from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records.code_record import (
    differing_files,
    file_versions,
    read_code,
    refused_resume,
    shown_files,
)
from scpo.records.provenance import git_commit
from scpo.records.run_config import read_config
from scpo.records.run_folders import RunFolder
from scpo.records.status import State
from scpo.schema.run import RunConfig

SHOWN_EXPERIMENTS = 3
SEVERAL = "ran under several versions of"
ITS_SEEDS = f"its seeds {SEVERAL}"
SEVERAL_PROCESSORS = (
    "on several types of processor, between which sums of floats differ: a part of a paired "
    "difference on such a seed may be due to it"
)

# The study's first edition: the bonus, rescaled by AdamW, decided its numbers.
STUDY = "study"
WITHDRAWN = (
    "trained with an entropy bonus (trainer.loss.entropy_coefficient) and with updates where no "
    "row has an advantage, as the study's first edition did, which is withdrawn for it "
    "(docs/study/first-edition.md): do not quote their numbers"
)


class HasCode(Protocol):
    """A run of which the code is known: a ``Run``, or ``CodeOf`` if nothing else is known of it."""

    @property
    def code(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def commit(self) -> str | None: ...
    @property
    def weights(self) -> Mapping[str, Collection[str]]: ...


class CodeOf(NamedTuple):
    """The code of a run: checksum of all of it, folder with its files, commit; its weights."""

    code: str
    folder: Path
    commit: str | None
    weights: Mapping[str, Collection[str]]


def refused_resumes(runs: Iterable[Run]) -> Iterator[str]:
    """Messages with which sweeps refuse to go on with unfinished runs under the present code."""
    commit = git_commit()
    startable = [state for state in State if state.startable]
    for run in runs:
        # Archives and projects have no checkpoints.
        folder = RunFolder(run.folder)
        # Damaged records are reported elsewhere.
        with contextlib.suppress(RecordError):
            if run.state in startable and folder.complete_checkpoints():
                commits = (folder.read_status().commit, commit)
                if message := refused_resume(folder, read_config(folder), commits):
                    yield message


def several_versions(runs: Iterable[HasCode]) -> str:
    """Name the differences in the code and the weights of these runs.

    Returns:
        For example ``scpo/advantages/gigpo.py; the weights of model.path=/data/my-model``; empty
        without differences.
    """
    chosen = list(runs)
    contents: dict[str, set[str]] = {}
    for run in chosen:
        for path, own in run.weights.items():
            contents.setdefault(path, set()).update(own)
    replaced = [path for path, own in contents.items() if len(own) > 1]
    weights = [f"the weights of {', '.join(replaced)}"] if replaced else []
    return "; ".join(filter(None, [_code_versions(chosen), *weights]))


def _code_versions(runs: Iterable[HasCode]) -> str:
    """Name the differences in the code of these runs: files that they use, or else commits.

    Archived runs are compared by commit, because an archive holds one checksum of all their code.

    Returns:
        For example ``scpo/advantages/gigpo.py``; empty without differences.
    """
    chosen = [run for run in runs if run.code != UNKNOWN]
    # ``code`` is the checksum of all the code: if all are equal, no file has to be read.
    if len({code for run in chosen for code in run.code.split(AND)}) < 2:
        return ""
    with_files: list[tuple[RunFolder, RunConfig]] = []
    compared: set[str] = set()
    unread: list[RunFolder] = []
    for run in chosen:
        folder = RunFolder(run.folder)
        try:
            config = read_config(folder)
        except RecordError:
            # An archived run has no files to compare. If a run has another schema, or an estimator
            # whose package is missing, it is unknown which of its files it used.
            unread.append(folder)
        else:
            with_files.append((folder, config))
            compared.add(run.code)
    try:
        files = differing_files(with_files)
    except RecordError:
        files = []
    shown = shown_files(files) or _changed_at_all(unread, [folder for folder, _ in with_files])
    if shown:
        return shown
    # All versions were compared, and differ only in files that these runs do not use.
    if {run.code for run in chosen} <= compared:
        return ""
    commits = sorted({str(run.commit)[:7] for run in chosen})
    if any(AND in run.code for run in chosen):
        return f"the code (commits {', '.join(commits)} and those before a resume)"
    if len(commits) == 1:
        return f"the code (commit {commits[0]}, with other uncommitted changes)"
    return f"the code (commits {', '.join(commits)})"


def _changed_at_all(unread: Sequence[RunFolder], others: Sequence[RunFolder]) -> str:
    """Name all files that differ between these runs, whether or not a run used them.

    Empty if ``unread`` is empty or has a run without a record of its code.
    """
    try:
        records = [read_code(folder) for folder in (*unread, *others)]
    except RecordError:
        return ""
    if not unread or None in records[: len(unread)]:
        return ""
    versions = [version.files for record in records if record for version in record.versions]
    names = sorted(set().union(*versions))
    changed = [name for name in names if len({files.get(name) for files in versions}) > 1]
    if not changed:
        return ""
    return (
        f"{shown_files(changed)} (used or not: the configuration of {unread[0].run_id} cannot be "
        "read here; is the package of its estimator missing?)"
    )


def mixed_code(row: Row, runs: Mapping[str, Run]) -> str:
    """Note on a row whose seeds used several versions of the code; empty if they did not."""
    versions = several_versions(runs[run] for run in row.finished)
    return f"{ITS_SEEDS} {versions}" if versions else ""


def code_notes(
    rows: Sequence[Row], runs: Mapping[str, Run], together: str = "the rows"
) -> Iterator[str]:
    """Yield notes on rows whose seeds used several versions of the code, one for each difference.

    If each row has one version, but the rows have different ones, yield one note on all of them.

    Args:
        rows: Rows that are compared with each other.
        runs: All runs by id.
        together: Name of all the rows together in that note.
    """
    mixed: dict[str, list[str]] = {}
    for row in rows:
        if versions := several_versions(runs[run] for run in row.finished):
            mixed.setdefault(versions, []).append(row.label)
    for versions, labels in mixed.items():
        whose = ITS_SEEDS if len(labels) == 1 else f"the seeds of each {SEVERAL}"
        yield f"{'; '.join(labels)}: {whose} {versions}"
    versions = several_versions(runs[run] for row in rows for run in row.finished)
    if versions and not mixed:
        yield f"{together} {SEVERAL} {versions}"


def section_notes(sections: Iterable[Section], runs: Mapping[str, Run]) -> tuple[str, ...]:
    """The notes on all these sections, without repetitions: a row may be in several sections."""
    parts = tuple(sections)
    notes: dict[str, None] = {}
    for part in parts:
        experiments = _experiments(part)
        finished = [row for row in part.rows if row.finished]
        for note in code_notes(finished, runs, f"the rows of {experiments}"):
            notes.setdefault(note)
        if part.left_out and finished:
            notes.setdefault(f"{experiments}{part.apart}: {part.left_out}")
        every = {run for row in finished for run in row.finished}
        moved = [run for run in every if moved_by_entropy_alone(runs[run])]
        if part.scale == STUDY and moved:
            notes.setdefault(f"{counted(len(moved), 'run')} of {experiments} {WITHDRAWN}")
        dirty = [run for run in every if runs[run].dirty]
        if dirty:
            notes.setdefault(
                f"{counted(len(dirty), 'run')} of {experiments} ran with uncommitted "
                "changes in the checkout (uncommitted.diff in the run folders), which no commit has"
            )
        if crossed := _on_several_processors(finished, runs):
            notes.setdefault(
                f"the rows of {experiments} ran {seed_list(crossed)} {SEVERAL_PROCESSORS}"
            )
        reworded = [run for run in every if reworded_dose(runs[run].config)]
        if reworded:
            notes.setdefault(
                f"{counted(len(reworded), 'run')} of {experiments}: credit reads "
                "observations in other words than the game's (env.wordings; docs/meaning.md)"
            )
    for first, second in itertools.combinations(parts, 2):
        notes |= dict.fromkeys(_notes_across(first, second, runs))
        notes |= dict.fromkeys(notes_across(first, second, runs))
    return tuple(notes)


def _on_several_processors(rows: Iterable[Row], runs: Mapping[str, Run]) -> list[int]:
    """Seeds whose finished runs of these rows had several types of processor, as far as recorded.

    Rows that only prompt are not paired with others.
    """
    of_seed: dict[int, list[Run]] = {}
    for row in rows:
        finished = set(row.finished)
        for planned in row.runs:
            run = runs.get(planned.id) if planned.id in finished else None
            if run is not None and run.processor is not None and not is_prompted(run.config):
                of_seed.setdefault(planned.seed, []).append(run)
    return [seed for seed, own in of_seed.items() if not one_processor_type(*own)]


def _notes_across(first: Section, second: Section, runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield notes on rows that an experiment ran on two benchmarks under different code.

    A table may show both benchmarks of such a row in one line. A file counts if the runs on both
    benchmarks use it and have no version of it in common: a row with several versions on one
    benchmark has a note of its own (``code_notes``). Archived runs are left out, because an archive
    does not say which of their files differ.
    """
    same_place = (first.scale, first.model) == (second.scale, second.model)
    together = set(first.experiments) & set(second.experiments)
    if first.env == second.env or not same_place or not together:
        return
    rows = [(row, second.row(row.name)) for row in first.rows]
    rows = [(row, other) for row, other in rows if row.finished and other.finished]
    by_file = _file_versions(runs[run] for pair in rows for row in pair for run in row.finished)
    labels: dict[str, list[str]] = {}
    for row, other in rows:
        changed = []
        for name, by_folder in by_file.items():
            own, others = (_hashes(by_folder, side, runs) for side in (row, other))
            if own and others and not own & others and not _is_of_one_benchmark(name):
                changed.append(name)
        if changed:
            labels.setdefault(shown_files(changed), []).append(row.label)
    for files, changed_rows in labels.items():
        yield f"{first_names(changed_rows)} {SEVERAL} {files} ({_place(first)}, {_place(second)})"


def _is_of_one_benchmark(name: str) -> bool:
    """True for files such as ``scpo/envs/webshop/prompts.py``, which every run imports."""
    top, *parts = Path(name).parts
    # An installed package may be named after a benchmark, too.
    return top == "scpo" and any(part.startswith(tuple(BENCHMARKS)) for part in parts)


def _file_versions(runs: Iterable[Run]) -> Mapping[str, Mapping[Path, frozenset[str | None]]]:
    """``file_versions`` of the runs whose configuration can be read; empty if all have one code."""
    chosen = list(runs)
    if len({run.code for run in chosen}) < 2:
        return {}
    readable: list[tuple[RunFolder, RunConfig]] = []
    for run in chosen:
        folder = RunFolder(run.folder)
        with contextlib.suppress(RecordError):
            readable.append((folder, read_config(folder)))
    try:
        return file_versions(readable)
    except RecordError:
        return {}


def _hashes(
    by_folder: Mapping[Path, frozenset[str | None]], row: Row, runs: Mapping[str, Run]
) -> frozenset[str | None]:
    """Versions of a file that the finished runs of a row used; empty if they do not use it."""
    found: frozenset[str | None] = frozenset()
    for run in row.finished:
        found |= by_folder.get(runs[run].folder, frozenset())
    return found


def moved_by_entropy_alone(run: Run) -> bool:
    """True if an entropy bonus updates the policy in training steps without an advantage."""
    trainer = run.config.get("trainer")
    if not isinstance(trainer, dict) or trainer.get("skip_updates_without_advantage"):
        return False
    loss = trainer.get("loss")
    return isinstance(loss, dict) and bool(loss.get("entropy_coefficient"))


def _experiments(part: Section) -> str:
    """The first few experiments of a section, and its benchmark."""
    names = [name for name in part.experiments if not is_implied(name)]
    more = len(names) - SHOWN_EXPERIMENTS
    shown = ", ".join(names[:SHOWN_EXPERIMENTS]) + (f" and {more} more" if more > 0 else "")
    return f"{shown} on {_place(part)}" if shown else _place(part)


def _place(part: Section) -> str:
    return BENCHMARKS[part.env].label if part.env in BENCHMARKS else part.env
