"""The versions of the code that the runs of a table used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from analysis.sources.rows import Row
from analysis.sources.run_records import Run
from scpo.errors import RecordError
from scpo.records.provenance import differing_files, shown_files
from scpo.records.run_config import read_config
from scpo.records.run_folders import RunFolder
from scpo.schema.run import RunConfig


def code_differences(runs: Iterable[Run]) -> list[str]:
    """Files that these runs used in several versions."""
    chosen = list(runs)
    # Checksums of all the code: where they agree, no file has to be read.
    if len({run.code for run in chosen}) < 2:
        return []
    known: list[tuple[RunFolder, RunConfig]] = []
    for run in chosen:
        folder = RunFolder(run.folder)
        try:
            known.append((folder, read_config(folder)))
        except RecordError:
            # Another schema's run, an archive or a W&B project: it has no files to compare.
            continue
    try:
        return differing_files(known)
    except RecordError:
        return []


def mixed_code(row: Row, runs: Mapping[str, Run]) -> str:
    """A note on a row whose seeds used several versions of a file; empty if they did not."""
    files = code_differences(runs[run] for run in row.finished)
    return f"its seeds ran under several versions of {shown_files(files)}" if files else ""


def code_notes(rows: Sequence[Row], runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield a note on each row whose seeds used several versions of a file.

    Where each row has one version, but not the same, a note on the rows together.

    Args:
        rows: Rows that are compared with each other.
        runs: All runs by id.
    """
    mixed = False
    for row in rows:
        note = mixed_code(row, runs)
        if note:
            mixed = True
            yield f"{row.label}: {note}"
    files = code_differences(runs[run] for row in rows for run in row.finished)
    if files and not mixed:
        yield f"the rows ran under several versions of {shown_files(files)}"
