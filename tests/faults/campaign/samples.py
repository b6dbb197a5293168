"""Faults of samples and run folders: odd names, swapped files, wrong content under a right checksum.

Judged by ``figures`` and then by ``report``: each names what makes a number differ, and builds everything else.
"""

import gzip
import json
import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.rendering import style
from analysis.sources.run_records import SINGLE
from scpo.records import RunFolder
from scpo.records.files import file_sum, read_json, read_yaml, write_json, write_yaml
from scpo.records.manifest import EXPERIMENTS
from scpo.strict import MACHINE_SECTIONS
from tests.faults.campaign import commands
from tests.faults.campaign.place import Found, Place, damage_one, records
from tests.faults.campaign.readers import Verdict
from tests.support.log_changes import LOG_CHANGES, OF_VALUES, change_log, rates
from tests.support.run_records import write_ablation, write_groups, write_probe, write_step_texts
from tests.support.validation_records import write_validations

STEPS = (20, 40)
REPORT = "report.html"
COMPARED = (".csv", ".md", ".tex")  # pictures are drawn from the same numbers
DATA = 'id="data">'
_in_every_format = style.figure_files
SHOWN = ("runs", "curves", "groups", "episodes", "tables")  # of the page's data


def make(top: Path) -> None:
    """Finished runs with every kind of sample, and what ``report`` builds from them."""
    style.STYLE |= {"figure.constrained_layout.use": False, "pdf.fonttype": 3}  # drawn plainly: half the time
    style.PNG_DPI = 60
    style.figure_files = _picture
    runs = top / "samples" / "runs"
    write_ablation(runs, seeds=(0, 1), panels=("valid_seen",))
    for number, folder in enumerate(sorted(path.parent for path in runs.glob("*/config.yaml"))):
        for step in STEPS:
            write_probe(folder, step, np.random.default_rng([number, step]))
            write_groups(folder, step + number)
            write_step_texts(folder, step, f"go to {number}", credited=True)
        write_validations(folder, number, *STEPS)
        write_json(folder / "code.json", {"files": {"train.py": "0123456789abcdef"}})
        attempt = {"commit": "0123456789abcdef", "dirty": False, "cpu": "a processor", "torch_capability": "AVX512"}
        write_json(folder / "provenance.json", {"attempts": {"1": attempt}})
        config = read_yaml(folder / "config.yaml")
        write_yaml(folder / "identity.yaml", {name: config[name] for name in config if name not in MACHINE_SECTIONS})
        _note(folder)
    for command in (_figures, _report):
        said = command(runs, runs.parent / "out")
        if said.code or "left out" in said.text or "failed" in said.text:
            raise SystemExit(f"the undisturbed runs have problems: {said.text}")


def _picture(figure: Figure) -> dict[str, bytes]:
    """A figure's PNG alone: its PDF is drawn from the same numbers, and takes a third of the time of a fault."""
    return {"png": _in_every_format(figure)["png"], "pdf": b""}


def _note(folder: Path) -> None:
    """Note the checksums of what a run folder holds now, as its writer would have."""
    names = ["metrics.jsonl", "timing.jsonl", "panels.json"]
    names += [f"diagnostics/{path.name}" for path in (folder / "diagnostics").iterdir()]
    RunFolder(folder).note_sums({name: file_sum(folder / name) for name in names})


def _figures(runs: Path, out: Path) -> commands.Said:
    return commands.analysis("figures", "--runs-dir", runs, "--out", out)


def _report(runs: Path, out: Path) -> commands.Said:
    return commands.analysis("report", "--runs-dir", runs, "--out", out, "--megabytes", "50")


def odd_copy(place: Place) -> Found:
    """A copied run folder under a name that no run has."""
    runs = _copy(place)
    run = place.chance.choice(_runs(runs))
    name = place.chance.choice(NAMES).format(run.name)
    if place.chance.random() < 0.3:
        name = run.name.replace("-scpo-", f"-{place.chance.choice(SLUGS)}-", 1)
    shutil.copytree(run, runs / name)
    return _judged(place, runs, f"{run.name} copied to {name!r}", lost=())


SLUGS = ("gigpo", "grpo", "scpo-chronological", "scpo-theta0.5", "plain", "x")  # of runs that there might be
NAMES = (
    *("{} (copy)", "copy of {}", "{}.bak", "{}-2", "{}~", "old {}", "{}\n", " {}", "{}'s", "-{}", "{};ls", "$({})"),
    *("{}ü", "{}\udcff", "[{}]", "#{}", "{}%", "<b>{}</b>", "a", "runs", "con", "{}.json", "{}_{{}}"),
)


def swapped_folders(place: Place) -> Found:
    """Two run folders that have changed names, or one that was renamed."""
    runs = _copy(place)
    first, second = place.chance.sample(_runs(runs), 2)
    if place.chance.random() < 0.3:
        first.rename(runs / "renamed")
        return _judged(place, runs, f"{first.name} renamed", lost=(first.name, "renamed"))
    first.rename(runs / "between")
    second.rename(first)
    (runs / "between").rename(second)
    return _judged(place, runs, f"{first.name} and {second.name} swapped", lost=(first.name, second.name))


def swapped_files(place: Place) -> Found:
    """Two files that have changed places: samples, panels, logs, configurations, states."""
    runs = _copy(place)
    first, second = place.chance.sample(_runs(runs), 2)
    if place.chance.random() < 0.6:
        one = place.chance.choice(sorted((first / "diagnostics").iterdir()))
        kind = one.name.partition("_step_")[0]
        others = [path for run in (first, second) for path in (run / "diagnostics").glob(f"{kind}_step_*")]
        other = place.chance.choice([path for path in sorted(others) if path != one])
    else:
        name = place.chance.choice(("metrics.jsonl", "timing.jsonl", "panels.json", "config.yaml", "status.json"))
        one, other = first / name, second / name
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return _judged(place, runs, f"{one} and {other} swapped", lost=(first.name, second.name))


def damaged_file(place: Place) -> Found:
    """One damaged file: a sample as often as all others, records of runs and of the experiment."""
    runs = _copy(place)
    samples = sorted(runs.glob("*/diagnostics/*"))
    path = place.chance.choice(place.chance.choice((samples, [path for path in records(runs) if path not in samples])))
    what = damage_one(place.chance, [path])
    # Nothing but the record itself tells the experiment of a run.
    note = () if path.exists() or path.parent.name != EXPERIMENTS else (SINGLE,)
    return _judged(place, runs, what, lost=(_name(runs, path), *note))


def _name(runs: Path, path: Path) -> str:
    """What a message about this file has to name: its run, or an experiment's record."""
    folder = path.relative_to(runs).parts[0]
    return f"{folder}/{path.name}" if folder == EXPERIMENTS else folder


def wrong_content(place: Place) -> Found:
    """A record that reads back intact, with a right checksum, and holds what no writer writes."""
    runs = _copy(place)
    run = place.chance.choice(_runs(runs))
    samples = sorted((run / "diagnostics").iterdir())
    path = place.chance.choice([*samples, *(run / name for name in RECORDS), *(runs / EXPERIMENTS).iterdir()])
    if path.suffix == ".gz":
        record = json.loads(gzip.decompress(path.read_bytes()))
        what = change(place.chance, record)
        path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    elif path.suffix == ".npz":
        what = _change_arrays(place.chance, path)
    elif path.suffix == ".yaml":
        record = read_yaml(path)
        what = change(place.chance, record)
        _write_or_damage(path, lambda: write_yaml(path, record, checked=True))
    else:
        record = read_json(path)
        what = change(place.chance, record)
        _write_or_damage(path, lambda: write_json(path, record))
    if path in samples or path.name == "panels.json":
        _note(run)
    return _judged(place, runs, f"{what} in {path}", lost=(_name(runs, path),))


def changed_log(place: Place) -> Found:
    """Another line or number in a run's metrics, with a checksum that was computed anew."""
    runs = _copy(place)
    run = place.chance.choice(_runs(runs))
    what = change_any(place.chance, RunFolder(run))
    return _judged(place, runs, what, lost=(run.name,))


def change_any(chance: random.Random, folder: RunFolder) -> str:
    """Change a run's metrics in a way that its numbers show, and describe it."""
    how = chance.choice(LOG_CHANGES)
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    if how == "no validation" or how in OF_VALUES:
        wanted = "val/" if how == "no validation" else ("val/", "train/")
        lines = [line for line in lines if any(name.startswith(wanted) for name in line)]
    line = chance.choice(lines)
    metric = chance.choice(rates(line)) if how in OF_VALUES else None
    change_log(folder, how, line["step"], metric)
    return f"{how} at step {line['step']} ({metric or 'the line'}) of {folder.run_id}, with its checksum"


RECORDS = ("config.yaml", "identity.yaml", "status.json", "panels.json", "provenance.json", "code.json")


def _write_or_damage(path: Path, write: Callable[[], None]) -> None:
    """What no writer of ours can write, such as NaN, is written by another program."""
    try:
        write()
    except ValueError:
        path.write_text('{"state": NaN}')


def change(chance: random.Random, record: Any) -> str:
    """Change one place of a JSON record to what cannot stand there."""
    place, keys = record, []
    while isinstance(place, (dict, list)) and place:
        parent = place
        keys.append(chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place)))
        place = place[keys[-1]]
        if chance.random() < 0.15:
            break
    where = ".".join(map(str, keys))
    if isinstance(parent, dict) and chance.random() < 0.3:
        del parent[keys[-1]]
        return f"no {where}"
    parent[keys[-1]] = value = chance.choice([value for value in ODD_VALUES if type(value) is not type(place)])
    return f"{where} is {str(value)[:20]!r}"


ODD_VALUES = (None, float("nan"), "a text", {}, [], 10**400, {"a": [None]}, [[]])


def _change_arrays(chance: random.Random, path: Path) -> str:
    with np.load(path) as file:
        arrays = dict(file)
    name = chance.choice(sorted(arrays))
    how = chance.choice(("lost", "nan", "texts", "shorter", "deeper", "empty"))
    array = arrays.pop(name)
    if how == "nan":
        arrays[name] = np.full(array.shape, np.nan)
    elif how == "texts":
        arrays[name] = np.full(array.shape, "x") if array.dtype.kind != "U" else np.zeros(array.shape)
    elif how == "shorter":
        arrays[name] = array[:-1] if array.ndim else np.array([array, array])
    elif how == "deeper":
        arrays[name] = array[None, None]
    elif how == "empty":
        arrays[name] = array[:0] if array.ndim else np.zeros(0)
    np.savez(path, **arrays)
    return f"{name} {how}"


def _copy(place: Place) -> Path:
    return Path(shutil.copytree(place.top / "samples" / "runs", place.folder / "runs"))


def _runs(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.glob("*/config.yaml"))


def _judged(place: Place, runs: Path, what: str, *, lost: tuple[str, ...]) -> Found:
    """Build everything, every other time on top of what was built before; ``lost``: what may be left out, named.

    The report comes second, so that it takes over the figures that are as they were.
    """
    truth = place.top / "samples" / "out"
    out = place.folder / "out"
    if place.chance.random() < 0.5:
        shutil.copytree(truth, out)
        (out / REPORT).unlink()
    built = _figures(runs, out)
    files = _files(truth, out)
    page = _report(runs, out)
    for name, said in (("figures", built), ("report", page)):
        if said.code != 0 or "its builder failed" in said.text:
            down = Verdict.LOST if said.code else Verdict.TRACEBACK
            return down, f"{what}: one bad file or folder takes {name} down: {said.text}"
    told = json.dumps(_data(out)["problems"], ensure_ascii=False)
    if _files(truth, out) != files:
        return Verdict.SILENT, f"{what}: report builds other tables than figures, named: {told}"
    differing = [*files, *_parts(truth, out)]
    named = "".join(re.split(r"(?m)^(?=left out|note)", built.text)[1:])
    for changed, text in ((files, named), (differing, told)):
        if changed and not any(name in text for name in lost):
            return Verdict.SILENT, f"{what}: {changed} differ, named: {text}"
    if others := _others(truth, out, lost):
        return Verdict.SILENT, f"{what}: of other runs {others} differ, named: {told}"
    return (Verdict.NAMED if told != "[]" else Verdict.EQUAL), f"{what}: {differing} {told}"


def _files(truth: Path, out: Path) -> list[str]:
    names = {path.name for folder in (truth, out) for path in folder.iterdir() if path.suffix in COMPARED}
    return sorted(name for name in names if _bytes(truth / name) != _bytes(out / name))


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _data(out: Path) -> dict[str, Any]:
    """The data of the report's page."""
    return _parsed((out / REPORT).read_text(encoding="utf-8"))


@cache
def _parsed(page: str) -> dict[str, Any]:
    return dict(json.loads(page.partition(DATA)[2].partition("</script>")[0]))


def _parts(truth: Path, out: Path) -> list[str]:
    """The parts of the page that differ."""
    before, after = _data(truth), _data(out)
    return [f"{REPORT}: {name}" for name in SHOWN if before[name] != after[name]]


def _others(truth: Path, out: Path, lost: tuple[str, ...]) -> list[str]:
    """What of the runs that nothing happened to differs on the page."""
    before, after = _data(truth), _data(out)
    found = []
    for run in before["curves"]["runs"]:
        if run in lost:
            continue
        if _drawn(before, run) != _drawn(after, run):
            found.append(f"curves of {run}")
        if before["groups"]["runs"].get(run) != after["groups"]["runs"].get(run):
            found.append(f"groups of {run}")
    return found


def _drawn(data: dict[str, Any], run: str) -> Any:
    """Curves with their steps, which the page names by number."""
    curves, steps = data["curves"]["runs"].get(run, {}), data["curves"]["steps"]
    return {metric: (steps[place], values) for metric, (place, values) in curves.items()}


KINDS = {
    "folders, odd copies": (3, odd_copy),
    "folders, swapped": (3, swapped_folders),
    "files, swapped": (5, swapped_files),
    "files, damaged": (4, damaged_file),
    "content, wrong": (10, wrong_content),
    "metrics, checksum anew": (5, changed_log),
}
