"""Faults of processes: signals to a whole group, fork servers that stop or die, a launcher that is process 1."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from scpo.records import State, run_folders
from tests.faults.campaign.place import Found, Place
from tests.faults.campaign.readers import Verdict, judge, read
from tests.faults.campaign.resumed import ended_well, fresh_run, half, must_be_equal
from tests.faults.campaign.tiny_sweep import LIMIT_S, start, wait
from tests.support import fake_runs as fake
from tests.support.small_disks import NoMountsError
from tests.support.warm_starts import WarmStart

SEEDS = "seeds=[0,1]"  # of two rows: four runs
STEPS = 4
FORKING_S = 0.4  # limit of a fork server's answer in these sweeps
SERVER = "sweeps.launchers.forked"
GROUP_SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONGEST_S = 6.0  # of the beginning of a run with cold caches: games, demonstrations, imitation
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def group_stopped(place: Place) -> Found:
    """A signal to the process group of a run that begins with cold caches; then it goes on to the same numbers."""
    runs, folder = fresh_run(place, place.folder / "cache")
    number = place.chance.choice(GROUP_SIGNALS)
    process = start(folder, group=True)
    wait_for_group(process)
    time.sleep(place.chance.uniform(0, LONGEST_S))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    first = wait(process)
    what = f"{signal.Signals(number).name} to the group, exit status {first.code}"
    if first.code == -signal.SIGKILL:
        return Verdict.HANG, f"{what}: {first.output[-1500:]}"
    if "Traceback" in first.output and first.code != -number:  # before it could handle signals Python dies of them
        return Verdict.TRACEBACK, f"{what}: {first.output[-1500:]}"
    state = folder.read_status().state
    if state not in (State.INTERRUPTED, State.DONE) and first.code not in (-number, 1, 130):
        return Verdict.LOST, f"{what}: it is {state}: {first.output[-1500:]}"
    if state is State.FAILED:
        return Verdict.LOST, f"{what}: it is FAILED: {first.output[-1500:]}"
    seen = read(runs)
    verdict, why = judge(seen, half(place.truth, place.sweep.ids[0], seen))
    if state is not State.DONE and verdict is not Verdict.EQUAL:
        return must_be_equal(what, verdict, why)
    return must_be_equal(what, *ended_well(place, runs, wait(start(folder))))


def wait_for_group(process: WarmStart) -> None:
    """Until the process leads its group."""
    while process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                return
        time.sleep(0.01)


def server_stopped(place: Place) -> Found:
    """A fork server that stops for longer or shorter than its limit, and goes on: each run is run by one process."""
    sweep = fake.start_sweep(place.folder / "runs", SEEDS, step_s=0.05, forking_s=FORKING_S)
    told = []
    for _ in range(place.chance.choice((1, 1, 2))):
        time.sleep(place.chance.uniform(0, 2.5))
        seconds = place.chance.uniform(0, 4 * FORKING_S)
        for server in servers_of(sweep.pid):
            told.append(f"stopped for {seconds:.2f} s")
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGSTOP)
                time.sleep(seconds)
                os.kill(server, signal.SIGCONT)
    return _swept(place, sweep, f"fork server {told or 'not met'}")


def server_killed(place: Place) -> Found:
    """A fork server that dies."""
    sweep = fake.start_sweep(place.folder / "runs", SEEDS, step_s=0.05, forking_s=FORKING_S)
    time.sleep(place.chance.uniform(0, 3))
    servers = servers_of(sweep.pid)
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    return _swept(place, sweep, f"{len(servers)} fork servers killed")


def servers_of(pid: int) -> list[int]:
    """The fork servers among the children of a process."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            if SERVER in Path(f"/proc/{child}/cmdline").read_text():
                found.append(child)
    return found


def children(pid: int) -> list[int]:
    """The children of a process that lives."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _swept(place: Place, sweep: WarmStart, what: str) -> Found:
    """How the sweep ended, and once more; no run may have been run by two processes, and each has every step once."""
    runs = place.folder / "runs"
    try:
        output, _ = sweep.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        return Verdict.HANG, f"{what}: {error.output!r}"
    if "Traceback" in output:
        return Verdict.TRACEBACK, f"{what}: {output[-1500:]}"
    if sweep.returncode:
        return Verdict.LOST, f"{what}: exit status {sweep.returncode}: {output[-1500:]}"
    return _whole(runs, what)


def _whole(runs: Path, what: str) -> Found:
    folders = run_folders.list_runs(runs)
    states = [folder.read_status().state for folder in folders]
    if states != [State.DONE] * 4:
        return Verdict.LOST, f"{what}: {states}"
    for folder in folders:
        if fake.steps(folder) != list(range(STEPS + 1)):
            return Verdict.SILENT, f"{what}: {folder.run_id} has the steps {fake.steps(folder)}"
        if fake.starts(folder) != 1:
            return Verdict.LOST, f"{what}: {folder.run_id} was run by {fake.starts(folder)} processes"
    return Verdict.EQUAL, what


def launcher_is_process_1(place: Place) -> Found:
    """A sweep that is process 1 of a container, whose fork server dies while runs are under way."""
    runs = place.folder / "runs"
    script = Path(__file__).parents[1] / "fake_sweep.py"
    words = ("+experiment=ablation_monotonicity", f"machine.runs_dir={runs}", "launcher.slots=2", *fake.QUICK, SEEDS)
    knobs = {"FAKE_STEP_S": "0.1", "FAKE_FORKING_S": str(FORKING_S)}
    if not can_unshare():
        raise NoMountsError("needs root: a process namespace is made")
    with (place.folder / "log").open("w+") as log:
        outside = subprocess.Popen(
            [*NAMESPACE, sys.executable, str(script), *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **knobs},
        )
        killed = _kill_server_inside(place, outside, runs)
        what = f"{killed} fork servers killed under process 1"
        try:
            code = outside.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            outside.kill()  # takes the namespace along
            outside.wait()
            return Verdict.HANG, f"{what}: it does not end"
        log.seek(0)
        output = log.read()
    if "Traceback" in output:
        return Verdict.TRACEBACK, f"{what}: {output[-1500:]}"
    return _whole(runs, what) if code == 0 else (Verdict.LOST, f"{what}: exit status {code}: {output[-1500:]}")


def can_unshare() -> bool:
    """Whether a process namespace can be made here."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def _kill_server_inside(place: Place, outside: "subprocess.Popen[bytes]", runs: Path) -> int:
    """Once a run is under way, or at the sweep's end: kill the fork servers; how many there were."""
    limit = time.monotonic() + LIMIT_S
    while outside.poll() is None and time.monotonic() < limit:
        if any(fake.starts(folder) for folder in run_folders.list_runs(runs)):
            break
        time.sleep(0.05)
    time.sleep(place.chance.uniform(0, 0.8))
    servers = [server for launcher in children(outside.pid) for server in servers_of(launcher)]
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    return len(servers)


KINDS = {
    "signals to the group": (2, group_stopped),
    "fork server, stopped": (2, server_stopped),
    "fork server, killed": (1, server_killed),
    "launcher is process 1": (1, launcher_is_process_1),
}
OF_THE_SWEEP = ("signals to the group",)
