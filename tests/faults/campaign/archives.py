"""Faults of the study's archive: its files, its rows, local copies of its runs, and kills while it is written.

Judged by the study's page, which has to be the same or not written, and by what ``collect`` reads of the archive.
"""

import os
import shutil
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.sources import archive_writing
from analysis.sources.archive import by_key, metric_sums
from analysis.sources.collect import collect
from analysis.study import command as study_command
from scpo.records import RunFolder, State
from scpo.records.archive_index import INDEX, METRICS, RUNS, read_index
from scpo.records.files import file_sum
from tests.faults.campaign import commands
from tests.faults.campaign.place import Found, Place, damage_one, records
from tests.faults.campaign.readers import Verdict
from tests.faults.campaign.samples import change_any
from tests.support.study_runs import rising, write_study

FILES = (METRICS, RUNS, INDEX)
ROWS = ("scpo", "gigpo", "grpo")
SEEDS, FEWER_SEEDS = (0, 1, 2, 3), (0, 1)
ENDS = {"scpo": 0.85, "gigpo": 0.8, "grpo": 0.6}
UNREADABLE = "is no archive of runs that can be read"
NO_INDEX = f"has {METRICS} or {RUNS}, and no {INDEX}"
CHILD_LIMIT_S = 120.0
MOST_WRITES = 6  # files that move into place while runs are added


def make(top: Path) -> None:
    """Runs of a small study, their archive, one of half of them, and the pages of both."""
    study_command.FIGURES = ()  # seconds each, and drawn from the numbers that the page shows
    archive_writing.RUNS_PER_GROUP = 4
    for name, seeds in (("whole", SEEDS), ("half", FEWER_SEEDS)):
        runs = top / "archives" / name / "runs"
        write_study(runs, {"main_table": ROWS}, {row: _curve(row) for row in ROWS}, seeds=seeds)
        for folder in (RunFolder(path.parent) for path in runs.glob("*/status.json")):
            logs = ("metrics.jsonl", "timing.jsonl", "panels.json")
            folder.note_sums({log: file_sum(folder.path / log) for log in logs})
        said = _study(runs.parent, "--create", "--add", "*", "--allow-uncommitted", "--runs", runs)
        if said.code:
            raise SystemExit(f"the undisturbed archive was not made: {said.text}")


def _curve(row: str) -> Any:
    return lambda seed: rising(ENDS[row], 0.004 * (seed % 3))


def _study(folder: Path, *words: str | Path) -> commands.Said:
    """``analysis study`` on the archive and page in a folder."""
    return commands.analysis("study", "--archive", folder / "study", "--page", folder / "study.md", *words)


def _copy(place: Place, name: str = "whole") -> Path:
    source = place.top / "archives" / name
    folder = Path(shutil.copytree(source, place.folder / name))
    # The page names the command that writes it, with the folder of its archive.
    page = folder / "study.md"
    page.write_text(page.read_text().replace(str(source), str(folder)))
    return folder


@cache
def _numbers(archive: Path) -> dict[str, Any]:
    """What an undisturbed archive holds, by run."""
    return {run: dict(series) for run, series in collect(archive).by_metric.items()}


def _content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "study" / name).read_bytes() for name in FILES}


def damaged_archive(place: Place) -> Found:
    """Other bits, cuts, zeros, lost lines and files."""
    folder = _copy(place)
    what = damage_one(place.chance, [folder / "study" / name for name in FILES])
    return _judged(place, folder, what)


def changed_rows(place: Place) -> Found:
    """Whole Parquet files with other rows: lost, doubled, swapped between runs, with other values."""
    folder = _copy(place)
    path = folder / "study" / place.chance.choice((METRICS, METRICS, RUNS))
    table = pd.read_parquet(path)
    how = place.chance.choice(("lost", "doubled", "swapped", "value", "emptied"))
    first, second = place.chance.sample(range(len(table)), 2)
    if how == "lost":
        table = table.drop(index=first)
    elif how == "doubled":
        table = pd.concat([table, table.iloc[[first]]])
    elif how == "swapped":
        column = place.chance.choice([name for name in table.columns if table[name].nunique() > 1])
        place_of = table.columns.get_loc(column)
        table.iloc[[first, second], place_of] = table.iloc[[second, first], place_of].to_numpy()
    elif how == "value":
        column = place.chance.choice([name for name in table.columns if table[name].dtype.kind in "fi"])
        other = place.chance.choice((7, -1, 41, 0))
        table.loc[first, column] = float("nan") if table[column].dtype.kind == "f" and other == 0 else other
    else:
        table = table.iloc[:0]
    table.to_parquet(path, index=False)
    return _judged(place, folder, f"{how} at rows {first}, {second} of {path.name}")


def _judged(place: Place, folder: Path, what: str) -> Found:
    """The page is the same, or the archive is named and the page stays; then what a reader of numbers makes of it."""
    page = folder / "study.md"
    before, files = page.read_bytes(), _content_or_nothing(folder)
    said = _study(folder)
    if said.code is None:
        return Verdict.TRACEBACK, f"{what}: {said.text}"
    if page.read_bytes() != before:
        return Verdict.SILENT, f"{what}: the page has changed, exit status {said.code}: {said.text}"
    if _content_or_nothing(folder) != files:
        return Verdict.LOST, f"{what}: the archive was rewritten"
    if said.code and str(folder / "study") not in said.text:
        return Verdict.LOST, f"{what}: the message names no archive: {said.text}"
    verdict, why = _read(place, folder / "study")
    if verdict is Verdict.EQUAL and said.code:
        verdict = Verdict.NAMED
    if verdict is Verdict.NAMED and not said.code:
        return Verdict.SILENT, f"{what}: collect names {why}, and the page is built"
    return verdict, f"{what}: {why or said.text}"


def _content_or_nothing(folder: Path) -> dict[str, bytes | None]:
    paths = {name: folder / "study" / name for name in FILES}
    return {name: path.read_bytes() if path.exists() else None for name, path in paths.items()}


def _read(place: Place, archive: Path) -> Found:
    """What ``collect`` says: equal numbers of each run, or the run is named."""
    truth = _numbers(place.top / "archives" / "whole" / "study")
    data = collect(archive)
    if any(UNREADABLE in problem.reason or problem.reason.startswith(NO_INDEX) for problem in data.problems):
        told = str(data.problems)
        return (Verdict.SILENT if data.by_metric else Verdict.NAMED), told
    told = " ".join(f"{problem.path} {problem.reason}" for problem in data.problems)
    for run, series in truth.items():
        found = data.by_id.get(run)
        whole = found is not None and found.state == State.DONE
        if whole and dict(data.by_metric.get(run, {})) != series:
            return Verdict.SILENT, f"{run} has other numbers"
        if not whole and run not in told and INDEX not in told:
            return Verdict.LOST, f"{run} is gone without a word; named: {told}"
    return (Verdict.NAMED, told) if told else (Verdict.EQUAL, "")


def damaged_local_copy(place: Place) -> Found:
    """``study --add '*'`` with damaged copies of archived runs: the archive stays as it is, and so does the page."""
    folder = _copy(place)
    what = damage_one(place.chance, records(folder / "runs"))
    return _added(folder, what)


def changed_local_copy(place: Place) -> Found:
    """``study --add '*'`` of runs of which one, not archived yet, has other metrics under a right checksum.

    The command names it, and adds the others; alone, no archive without it is another.
    """
    folder = _copy(place, "half")
    runs = Path(shutil.copytree(place.top / "archives" / "whole" / "runs", place.folder / "runs"))
    known = _numbers(place.top / "archives" / "half" / "study")
    fresh = [path.parent for path in sorted(runs.glob("*/config.yaml")) if path.parent.name not in known]
    run = place.chance.choice(fresh)
    what = change_any(place.chance, RunFolder(run))
    said = _study(folder, "--add", "*", "--allow-uncommitted", "--runs", runs)
    if said.code is None:
        return Verdict.TRACEBACK, f"{what}: {said.text}"
    if run.name not in said.text:
        return Verdict.SILENT, f"{what}: exit status {said.code}, and nothing is named: {said.text}"
    with commands.ONE_AT_A_TIME:
        added = collect(folder / "study").by_metric
    if run.name in added:
        return Verdict.SILENT, f"{what}: it is archived: {said.text}"
    truth = _numbers(place.top / "archives" / "whole" / "study")
    others = {name: dict(series) for name, series in added.items()}
    if others != {name: truth[name] for name in others} or not known.keys() <= others.keys():
        return Verdict.SILENT, f"{what}: other runs have other numbers: {said.text}"
    return Verdict.NAMED, f"{what}: {said.text}"


def rows_with_their_checksums(place: Place) -> Found:
    """Rows of training and validation that are lost, doubled or NaN, and the index written anew to fit them."""
    folder = _copy(place)
    path = folder / "study" / METRICS
    table = pd.read_parquet(path)
    row = place.chance.choice([at for at, name in enumerate(table["metric"]) if name.endswith("success_rate")])
    how = place.chance.choice(("lost", "doubled", "NaN", "7"))
    if how == "lost":
        table = table.drop(index=row)
    elif how == "doubled":
        table = pd.concat([table, table.iloc[[row]]])
    else:
        table.loc[row, "value"] = float(how)
    table.to_parquet(path, index=False)
    index, _ = read_index(folder / "study")
    sums = metric_sums(by_key(table))
    runs = {name: known.model_copy(update={"metrics": sums[name]}) for name, known in index.runs.items()}
    files = index.files | {METRICS: file_sum(path)}
    fitting = index.model_copy(update={"runs": runs, "files": files})
    (folder / "study" / INDEX).write_bytes(archive_writing._index_file(fitting))
    return _judged(place, folder, f"{how} at row {row} of {path.name}, with its checksums")


def repaired_archive(place: Place) -> Found:
    """A damaged archive to which its runs are added again: it is whole again, or says what it cannot repair."""
    folder = _copy(place)
    what = damage_one(place.chance, [folder / "study" / name for name in FILES])
    return _added(folder, what, damaged=True)


def _added(folder: Path, what: str, *, damaged: bool = False) -> Found:
    page, truth = (folder / "study.md").read_bytes(), _content_of_truth(folder)
    before = _content_or_nothing(folder)
    said = _study(folder, "--add", "*", "--allow-uncommitted", "--runs", folder / "runs")
    if said.code is None:
        return Verdict.TRACEBACK, f"{what}: {said.text}"
    if (folder / "study.md").read_bytes() != page:
        return Verdict.SILENT, f"{what}: the page has changed, exit status {said.code}: {said.text}"
    after = _content_or_nothing(folder)
    if after not in (truth, before):
        return Verdict.LOST, f"{what}: the archive is another, exit status {said.code}: {said.text}"
    if said.code == 0 and after != truth:
        return Verdict.SILENT, f"{what}: it ends well with a damaged archive: {said.text}"
    return (Verdict.NAMED if said.code or damaged or "left out" in said.text else Verdict.EQUAL), f"{what}: {said.text}"


@cache
def _truth_of(text: str) -> dict[str, bytes]:
    return _content(Path(text))


def _content_of_truth(folder: Path) -> dict[str, bytes]:
    """The archive's files before anything was damaged; ``folder`` is a copy of an undisturbed one."""
    return _truth_of(str(folder.parent.parent / "archives" / folder.name))


def killed_while_adding(place: Place) -> Found:
    """Killed between any two of the files that it replaces: all runs or only those before, never something else."""
    folder = _copy(place, "half")
    writes = place.chance.randrange(MOST_WRITES)
    more = place.top / "archives" / "whole" / "runs"
    code = _child(folder, more, writes)
    what = f"killed after {writes} files, exit status {code}"
    with commands.ONE_AT_A_TIME:
        numbers = {run: dict(series) for run, series in collect(folder / "study").by_metric.items()}
    known = [_numbers(place.top / "archives" / name / "study") for name in ("half", "whole")]
    if numbers not in known:
        return Verdict.SILENT, f"{what}: neither the old archive nor the new one is read"
    said = _study(folder)
    if said.code != 0:
        return (Verdict.TRACEBACK if said.code is None else Verdict.LOST), f"{what}: {said.text}"
    pages = [_page_without_path(place.top / "archives" / name) for name in ("half", "whole")]
    if _page_without_path(folder) != pages[known.index(numbers)]:
        return Verdict.SILENT, f"{what}: the page is another"
    again = _study(folder, "--add", "*", "--allow-uncommitted", "--runs", more)
    if again.code != 0 or _content(folder) != _content(place.top / "archives" / "whole"):
        return Verdict.LOST, f"{what}: the same command does not finish the work: {again.text}"
    return Verdict.EQUAL, what


def _page_without_path(folder: Path) -> str:
    return (folder / "study.md").read_text().replace(str(folder), "")


def _child(folder: Path, runs: Path, writes: int) -> int:
    """Add runs in a forked process that ends as by kill -9 before it replaces one file more than ``writes``."""
    with commands.ONE_AT_A_TIME:  # so that no thread holds it in the forked process
        pid = os.fork()
        if pid == 0:
            _add_and_die(folder, runs, writes)
    limit = time.monotonic() + CHILD_LIMIT_S
    while time.monotonic() < limit:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)  # a kill at another moment
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _add_and_die(folder: Path, runs: Path, writes: int) -> None:
    replace, left = os.replace, writes

    def mortal(source: Any, target: Any) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        replace(source, target)

    os.replace = mortal
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    commands.ONE_AT_A_TIME = commands.threading.Lock()  # type: ignore[misc]
    try:
        _study(folder, "--add", "*", "--allow-uncommitted", "--runs", runs)
    finally:
        os._exit(0)


KINDS = {
    "archive, damaged": (8, damaged_archive),
    "archive, other rows": (6, changed_rows),
    "archive, damaged local copy": (4, damaged_local_copy),
    "archive, repaired": (3, repaired_archive),
    "archive, checksums anew": (3, rows_with_their_checksums),
    "archive, changed copy": (2, changed_local_copy),
    "archive, killed": (3, killed_while_adding),
}
