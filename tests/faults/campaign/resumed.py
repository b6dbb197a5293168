"""Faults of runs: their records, caches, disks and surroundings, and kills; then they go on."""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scpo.records import RunFolder, run_config, run_folders
from sweeps.records import cancellation
from tests.faults.campaign.place import Found, Place, damage_one, records
from tests.faults.campaign.readers import Reading, Verdict, judge, read
from tests.faults.campaign.tiny_sweep import (
    CHECKPOINT_EVERY,
    STEPS,
    Ended,
    start,
    wait,
)
from tests.support.small_disks import fill, half_a_checkpoint, small_disk

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONGEST_S = 4.0  # of an undisturbed second half of a run, start included
DISK = "6m"  # room for the sweep, a checkpoint and another half
HALF_WRITTEN = 0.25  # how often the killed run was writing a checkpoint
NOT_READ = ("lock", ".lock", "stdout.log")


def damaged_records(place: Place) -> Found:
    """A finished sweep with one damaged file: read by everything."""
    runs = place.sweep.copy(place.sweep.done, place.folder / "runs")
    what = damage_one(place.chance, records(runs))
    verdict, why = judge(read(runs), place.truth)
    return verdict, f"{what}: {why}"


def damaged_and_resumed(place: Place) -> Found:
    """A killed run with one damaged file, or a damaged cache: started again."""
    runs, folder, _ = stopped(place, place.folder / "runs")
    if place.chance.random() < 0.2:
        cache = place.sweep.copy(place.sweep.cache, place.folder / "cache")
        config = run_config.read_config(folder)
        machine = config.machine.model_copy(update={"cache_dir": str(cache)})
        run_config.write_config(folder, config.model_copy(update={"machine": machine}))
        what = damage_one(place.chance, records(cache))
    else:
        what = damage_one(place.chance, records(folder.path))
    verdict, why = ended_well(place, runs, wait(start(folder)))
    return verdict, f"{what}: {why}"


def one_cache(place: Place) -> Found:
    """A run that begins with one damaged cache, the other caches cold: it is rebuilt, and the numbers are the same."""
    cache = place.folder / "cache"
    kept = place.chance.choice(sorted(path.name for path in place.sweep.cache.iterdir() if path.is_dir()))
    place.sweep.copy(place.sweep.cache / kept, cache / kept)
    what = damage_one(place.chance, records(cache))
    runs, folder = fresh_run(place, cache)
    return must_be_equal(what, *ended_well(place, runs, wait(start(folder))))


def fresh_run(place: Place, cache: Path) -> tuple[Path, RunFolder]:
    """A sweep whose second run has not begun; with another cache."""
    runs = place.sweep.copy(place.sweep.stopped, place.folder / "runs")
    folder = RunFolder(runs / place.sweep.ids[1])
    config = run_config.read_config(folder)
    shutil.rmtree(folder.path)
    machine = config.machine.model_copy(update={"cache_dir": str(cache), "runs_dir": str(runs)})
    return runs, run_config.ensure(config.model_copy(update={"machine": machine}))


def killed(place: Place) -> Found:
    """A run that gets a signal at any moment, or two, and goes on."""
    runs, folder, planted = stopped(place, place.folder / "runs")
    number = place.chance.choice(SIGNALS)
    process = start(folder)
    time.sleep(place.chance.uniform(0, LONGEST_S))
    for _ in range(place.chance.choice((1, 1, 2))):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        time.sleep(place.chance.uniform(0, 0.3))
    first = wait(process)
    what = f"{planted}{signal.Signals(number).name}, exit status {first.code}"
    steps = folder.metrics.read_bytes().count(b"\n") - 1
    kept = (folder.complete_checkpoints() or [-1])[-1]
    if steps - kept > CHECKPOINT_EVERY:
        return Verdict.LOST, f"{what}: {steps} steps are logged, the newest checkpoint is of step {kept}"
    seen = read(runs)
    verdict, why = judge(seen, half(place.truth, place.sweep.ids[0], seen))
    if verdict is not Verdict.EQUAL:
        return (Verdict.LOST if verdict is Verdict.NAMED else verdict), f"{what}: a kill is no damage, yet {why}"
    return must_be_equal(what, *ended_well(place, runs, wait(start(folder))))


def must_be_equal(what: str, verdict: Verdict, why: str) -> Found:
    """Where nothing was damaged, a message in the place of the numbers is work lost."""
    return (Verdict.LOST if verdict is Verdict.NAMED else verdict), f"{what}: {why}"


def full_disk(place: Place) -> Found:
    """A run on a disk that fills up at any moment; and once more when there is room."""
    with small_disk(place.folder / "disk", DISK) as disk:
        runs, folder, planted = stopped(place, disk / "runs")
        room = place.chance.choice((0, 1, 8, 64, 300, 600)) << 10
        filler = fill(disk, room)
        before = half_written(folder)
        first = wait(start(folder))
        what = f"{planted}{room} bytes left, exit status {first.code}"
        if "Traceback" in first.output:
            return Verdict.TRACEBACK, f"{what}: {first.output[-1500:]}"
        if half_written(folder) - before:
            return Verdict.LOST, f"{what}: half a checkpoint is left on the full disk"
        filler.unlink()
        return must_be_equal(what, *ended_well(place, runs, wait(start(folder))))


def stopped(place: Place, runs: Path) -> tuple[Path, RunFolder, str]:
    """A copy of the sweep whose second run was killed, sometimes while it wrote a checkpoint; and a word about that."""
    place.sweep.copy(place.sweep.stopped, runs)
    folder = RunFolder(runs / place.sweep.ids[1])
    if place.chance.random() >= HALF_WRITTEN:
        return runs, folder, ""
    weights = folder.checkpoint(folder.complete_checkpoints()[-1]) / "model.safetensors"
    size = place.chance.randrange(weights.stat().st_size)
    scratch = half_a_checkpoint(folder.checkpoints, STEPS, size)
    return runs, folder, f"{size} bytes are there of {scratch.name}; "


def half_written(folder: RunFolder) -> set[tuple[str, int]]:
    """Checkpoints that a process was writing: their names, and which folders they are, for a name may come again."""
    return {(path.name, path.stat().st_ino) for path in folder.checkpoints.glob(".step_*.tmp")}


def odd_surroundings(place: Place) -> Found:
    """A machine that is not as usual: the same numbers all the same."""
    name = place.chance.choice(sorted(ODD))
    top = place.folder / ODD[name].folder
    top.mkdir(parents=True, exist_ok=True)
    runs, folder, planted = stopped(place, top / "runs")
    odd = ODD[name]
    odd.prepare(folder)
    ended = wait(start(folder, variables=dict(odd.variables), encoding=odd.encoding, umask=odd.umask))
    return must_be_equal(f"{planted}{name}", *ended_well(place, runs, ended))


def _nothing(_folder: RunFolder) -> None: ...


def _of_another_machine(folder: RunFolder) -> None:
    folder.update_status(host="another-machine", boot="another-boot")
    assert run_folders.observe(folder).alive, "a run on another machine counts as alive"
    cancellation.retry(folder)


def _copies(folder: RunFolder) -> None:
    shutil.copytree(folder.path, folder.path.with_name(f"{folder.run_id}.bak"), symlinks=True)
    for path in (*folder.checkpoints.glob("step_*"), *folder.path.glob("attempt_*")):
        shutil.copytree(path, path.with_name(f"{path.name}.bak"))


def _bad_neighbours(folder: RunFolder) -> None:
    for name, content in {"a": "[]", "b": "\x00", "c": "{", "d": "scale: [[[["}.items():
        (folder.path.parent / name).mkdir()
        for file in ("config.yaml", "status.json", "identity.yaml", "panels.json"):
            (folder.path.parent / name / file).write_text(content)


@dataclass(frozen=True)
class Odd:
    """What is not as usual."""

    folder: str = "plain"
    variables: tuple[tuple[str, str | None], ...] = ()
    encoding: str = "utf-8"
    umask: int = 0o022
    prepare: Callable[[RunFolder], None] = _nothing


ODD = {
    "a path with spaces, quotes and umlauts": Odd(folder="a b'c\"d ü$(x);"),
    "no HOME": Odd(variables=(("HOME", None), ("USER", None), ("LOGNAME", None))),
    "an ASCII terminal": Odd(variables=(("LANG", "C"), ("LC_ALL", "C")), encoding="ascii"),
    "umask 077": Odd(umask=0o077),
    "umask 000": Odd(umask=0o000),
    "no git": Odd(variables=(("PATH", "/nonexistent"),)),
    "a git that refuses": Odd(variables=(("GIT_DIR", "/nonexistent"),)),
    "another time zone": Odd(variables=(("TZ", "Pacific/Kiritimati"),)),
    "threads wanted": Odd(variables=(("OMP_NUM_THREADS", "7"),)),
    "a machine that is gone": Odd(prepare=_of_another_machine),
    "copies beside everything": Odd(prepare=_copies),
    "bad neighbours": Odd(prepare=_bad_neighbours),
}


def ended_well(place: Place, runs: Path, ended: Ended) -> Found:
    """Whether a second start came to the same numbers, or says what is damaged; then whether readers say so too."""
    if "Traceback" in ended.output:
        return Verdict.TRACEBACK, ended.output[-1500:]
    return _ended_done(place, runs) if ended.code == 0 else _ended_otherwise(place, runs, ended)


def _ended_done(place: Place, runs: Path) -> Found:
    run_id = place.sweep.ids[1]
    if place.sweep.outcome(runs, run_id) != place.sweep.outcome(place.sweep.done, run_id):
        return Verdict.SILENT, "it ends DONE with other numbers"
    if left := half_written(RunFolder(runs / run_id)):
        return Verdict.LOST, f"it ends DONE, and half a checkpoint stays there: {left}"
    seen = read(runs)
    verdict, why = judge(seen, _same_times(place.truth, seen, run_id))
    return (Verdict.EQUAL, why) if verdict is Verdict.NAMED else (verdict, why)


def _ended_otherwise(place: Place, runs: Path, ended: Ended) -> Found:
    """It has to say why, and the readers may say nothing else than what is true of the other run."""
    run_id = place.sweep.ids[1]
    if ended.code < 0 or run_id not in ended.output:
        return Verdict.LOST, f"it ended with {ended.code} and names nothing: {ended.output[-500:]}"
    seen = read(runs)
    verdict, why = judge(seen, half(place.truth, place.sweep.ids[0], seen))
    said = ended.output.strip().splitlines()[-1]
    return (Verdict.NAMED, said) if verdict in (Verdict.EQUAL, Verdict.NAMED) else (verdict, why)


def _same_times(truth: Reading, seen: Reading, run_id: str) -> Reading:
    """Seconds and memory are those of the second run."""
    known = dict(truth.numbers[run_id])
    now = seen.numbers.get(run_id, {})
    known |= {name: series for name, series in now.items() if name.startswith(("timing_s/", "perf/", "scpo/"))}
    return Reading(truth.numbers | {run_id: known}, truth.rows, truth.table, truth.samples)


def half(truth: Reading, finished: str, seen: Reading) -> Reading:
    """What is true while only the first run is finished; the table then names the other as missing."""
    samples = {name: one for name, one in truth.samples.items() if name.startswith(finished)}
    return Reading({finished: truth.numbers[finished]}, seen.rows, seen.table, samples)


KINDS = {
    "records, damaged": (14, damaged_records),
    "records, damaged and resumed": (4, damaged_and_resumed),
    "signals": (3, killed),
    "full disks": (1, full_disk),
    "odd surroundings": (1, odd_surroundings),
    "one cache, others cold": (3, one_cache),
}
