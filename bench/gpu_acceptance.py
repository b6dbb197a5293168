"""What only a GPU can show, within 30 minutes: run it once, send back the folder that it writes.

    python -m bench.gpu_acceptance scale=paper method=scpo                     # 4 x A800, 1.5B
    python -m bench.gpu_acceptance scale=paper method=scpo trainer=verl_1gpu   # one card of 80 GB
    python -m bench.gpu_acceptance --dry                                       # small, on a CPU
    python -m bench.gpu_acceptance --only scorer scale=paper method=scpo       # one part again

Without the official games: env.games=generated. The parts come in the order of what is most likely
to fail, each with a time limit of its own; the last one gets what is left of the 30 minutes.
``gpu_acceptance/report.json`` and ``report.md`` are rewritten before and after each part, so that a
session that is cut off leaves what it found; a later call keeps them as ``report_1.json`` and so
on.

Exit status: 0 every threshold passed, 1 one failed, 3 none failed but some were not run, 2 a wrong
word, 130 stopped.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu_report import PAGE, RECORD, exit_status, keep_earlier_report, new_report, write_report
from scpo.errors import ConfigError, first_line
from scpo.installed import REPOSITORY
from scpo.records.memory import installed_gpus, used_gib
from scpo.schema.run import RunConfig
from sweeps.compose.configuration import compose_run
from sweeps.resources import disk_gib

TOTAL_S = 30 * 60.0
FOLDER = Path("gpu_acceptance")
DRY = (
    "scale=study", "method=scpo", "scorer=exact", "machine.device=cpu", "wandb.mode=disabled",
    "env.generated.train=20", "env.generated.valid_seen=3", "env.generated.valid_unseen=3",
    "env.train_panel.games=4", "model.imitation.games=4", "model.imitation.steps=10",
    # The paper's rate and entropy bonus: thresholds are about a first update that hardly moves the
    # policy and has a gradient whether or not a group has a success. The study's follow its own
    # sweeps: with its rate of SCPO a first update clipped 13 % of the tokens.
    "trainer.optimizer.learning_rate=1.0e-6", "trainer.loss.entropy_coefficient=0.001",
    "trainer.skip_updates_without_advantage=false",
)  # fmt: skip
RARELY = (
    "wandb.mode=disabled",
    "trainer.validation.every=50",
    "trainer.probe_every=50",
    "trainer.checkpoint_every=50",
)
SMOKE = (
    "trainer.groups=2", "trainer.group_size=4", "trainer.mini_batch_rows=16", "env.horizon=10",
    "trainer.steps=50",
)  # fmt: skip
DRY_STEP = (
    "trainer.groups=2", "trainer.group_size=2", "trainer.mini_batch_rows=16", "env.horizon=10",
)  # fmt: skip
TRAINING_RUNS = ("smoke", "tensor_parallel", "step")
"""Folders of the runs that the parts train."""
PANEL_SIZE = 2
POLL_S = 0.2
MEMORY_POLL_S = 1.0
DRY_LIMIT_S = 600.0  # of each part of a dry run, whose machine may be busy
GRACE_S = 30.0  # between SIGTERM and SIGKILL of a part that ran past its limit
MARK = "SCPO_ACCEPTANCE"
"""Environment variable by which processes of this script are found again."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class NotRunError(Exception):
    """A part cannot be run here, for the reason given."""


class StoppedError(BaseException):
    """The script was told to stop."""


@dataclass
class Session:
    """One run of the script: its words, its folder, and when it must be over."""

    words: list[str]
    config: RunConfig
    folder: Path
    dry: bool
    started: float = field(default_factory=time.monotonic)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds until the whole must be over."""
        return TOTAL_S - (time.monotonic() - self.started)

    def train_command(self, *words: str, runs: str) -> list[str]:
        """A training run in the folder ``runs``, without W&B, rarely validated, on few games."""
        panels = []
        for name, panel in self.config.env.validation_panels.items():
            size = "goals" if hasattr(panel, "goals") else "games"
            panels.append(f"env.validation_panels.{name}.{size}={PANEL_SIZE}")
        place = f"machine.runs_dir={(self.folder / runs).absolute()}"
        return [
            sys.executable,
            str(REPOSITORY / "train.py"),
            *self.words,
            *RARELY,
            *panels,
            *words,
            place,
        ]


@dataclass(frozen=True)
class Part:
    """One part; it raises NotRunError where it cannot be run, and else returns what it found.

    ``limit_s`` None: it gets what is left of ``TOTAL_S``. ``needs``: parts whose runs or figures it
    continues.
    """

    name: str
    limit_s: float | None
    run: Callable[[Session, float], dict[str, Any]]
    needs: tuple[str, ...] = ()


# The parts


def doctor(session: Session, limit_s: float) -> dict[str, Any]:
    """Whatever the doctor finds before anything is started."""
    command = [sys.executable, "-m", "sweeps", "doctor", *session.words]
    ended = stream(session, "doctor", command, limit_s)
    errors = [line for line in ended.pop("last_words") if line.startswith("error")]
    return {**ended, "errors": errors}


def smoke(session: Session, limit_s: float) -> dict[str, Any]:
    """A training step of 2 groups of 4 siblings with a horizon of 10, then SIGTERM."""
    session.findings["before"] = {"gpu_gib": list(used_gib().values())}
    needed, free = disk_gib(session.config), shutil.disk_usage(session.folder).free / (1 << 30)
    if needed is not None and needed > free:
        place = session.folder.absolute()
        raise NotRunError(f"checkpoints need {needed:.0f} GiB, {place} has {free:.0f}")
    return _stopped_after(session, "smoke", 1, limit_s)


def resume(session: Session, limit_s: float) -> dict[str, Any]:
    """The same command again: it goes on after the step at which it was stopped."""
    before = session.findings["smoke"].get("step", 0)
    if not before:
        raise NotRunError("the smoke run has no step to go on from")
    found = _stopped_after(session, "resume", before + 1, limit_s)
    return {**found, "step_before": before}


def left_over(session: Session, limit_s: float) -> dict[str, Any]:
    """What the stopped runs left behind: memory of the GPUs, processes, sockets."""
    started = time.monotonic()
    before = session.findings.get("before", {}).get("gpu_gib", [])
    while True:
        now = list(used_gib().values())
        more = max((after - at for after, at in zip(now, before, strict=False)), default=0.0)
        waited = time.monotonic() - started
        found = {"gpu_gib_more": more, "processes": _marked_processes(), "waited_s": waited}
        if (more < 1.0 and not found["processes"]) or waited > limit_s - 1:
            return found
        time.sleep(POLL_S)


def step(session: Session, limit_s: float) -> dict[str, Any]:
    """One training step of the real size: seconds, memory, rollout against update."""
    words = ["trainer.steps=1", *(DRY_STEP if session.dry else ())]
    return _train(session, "step", session.train_command(*words, runs="step"), limit_s, runs="step")


def tensor_parallel(session: Session, limit_s: float) -> dict[str, Any]:
    """A small step whose engine is spread over two GPUs."""
    words = [*SMOKE, "trainer.steps=1"]
    if not session.dry:
        if len(installed_gpus()) < 2:
            raise NotRunError("it needs two GPUs")
        words += ["trainer.verl.gpus=2", "trainer.verl.tensor_parallel=2"]
    command = session.train_command(*words, runs="tensor_parallel")
    return _train(session, "tensor_parallel", command, limit_s, runs="tensor_parallel")


def probe(name: str) -> Callable[[Session, float], dict[str, Any]]:
    """A part that is a measurement of ``bench.gpu_probes``."""

    def run(session: Session, limit_s: float) -> dict[str, Any]:
        answer = session.folder / f"{name}.json"
        answer.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "bench.gpu_probes",
            name,
            str(answer.absolute()),
            *session.words,
        ]
        ended = stream(session, name, [*command, *(["--dry"] if session.dry else [])], limit_s)
        found = json.loads(answer.read_text()) if answer.exists() else {}
        if "not_run" in found:
            raise NotRunError(found["not_run"])
        return {**ended, **found}

    return run


# The limits of all parts but the last add up to 21.5 minutes. On one H200, whose start of verl and
# vLLM took 4 minutes, smoke took 5.5, resume needed over 4, and each probe less than 30 seconds;
# the last part then has about 15 minutes, of which a step at 7B is estimated to need 10.
PARTS = (
    Part("doctor", 60, doctor),
    Part("smoke", 390, smoke),
    Part("sleep", 120, probe("sleep")),
    Part("resume", 300, resume, needs=("smoke",)),
    Part("left_over", 30, left_over),
    Part("attention", 60, probe("attention")),
    Part("longest", 60, probe("longest")),
    Part("scorer", 60, probe("scorer")),
    Part("tensor_parallel", 210, tensor_parallel),
    Part("step", None, step),
)


def _stopped_after(session: Session, name: str, last: int, limit_s: float) -> dict[str, Any]:
    """Train the smoke run until step ``last`` is recorded, then SIGTERM."""
    command = session.train_command(*SMOKE, runs="smoke")

    def is_recorded() -> bool:
        lines = _lines(session.folder / "smoke", "metrics")
        return bool(lines) and lines[-1].get("step", 0) >= last

    return _train(session, name, command, limit_s, runs="smoke", stop_when=is_recorded)


def _train(
    session: Session,
    name: str,
    command: list[str],
    limit_s: float,
    *,
    runs: str,
    stop_when: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    with peaks() as gib:
        ended = stream(session, name, command, limit_s, stop_when)
    metrics, timing = (_lines(session.folder / runs, kind) for kind in ("metrics", "timing"))
    found = {**ended, "peak_gib": gib, "steps": [line["step"] for line in metrics]}
    if metrics:
        found |= {
            "step": metrics[-1]["step"],
            "metrics": metrics[-1],
            "timing": timing[-1] if timing else {},
        }
    first = [line for line in metrics if line["step"] == 1]
    return {**found, "first_update": first[0] if first else {}}


def _lines(runs: Path, kind: str) -> list[dict[str, Any]]:
    """The records of the one run in a folder; a line that is being written is left out."""
    found = []
    for path in runs.glob(f"*/{kind}.jsonl"):
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
    return found


# Processes


def stream(
    session: Session,
    name: str,
    command: Sequence[str],
    limit_s: float,
    stop_when: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run a command; its output goes to the screen and to ``<name>.log`` line by line.

    It gets SIGTERM once ``stop_when`` holds or after ``limit_s`` seconds, SIGKILL if it still runs
    ``GRACE_S`` after the later of the SIGTERM and the limit, and SIGTERM when this process dies.
    """
    started, kill_at, timed_out = time.monotonic(), None, False
    last: list[str] = []
    environment = {**os.environ, MARK: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, text=True, errors="replace",
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 (it takes no lock: two system calls)
    )  # fmt: skip
    log = session.folder / f"{name}.log"
    copier = threading.Thread(target=_copy, args=(process, log, last), daemon=True)
    copier.start()
    try:
        while process.poll() is None:
            now = time.monotonic()
            timed_out = timed_out or now - started > limit_s
            if kill_at is None and (timed_out or stop_when()):
                # Stopped before its limit, it may use what is left of that to write a checkpoint.
                kill_at = max(now, started + limit_s) + GRACE_S
                process.terminate()
            if kill_at is not None and now > kill_at:
                _kill_group(process)
            time.sleep(POLL_S)
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            _kill_group(process)
            process.wait()
        copier.join(timeout=5)
    seconds = time.monotonic() - started
    return {
        "exit": process.returncode,
        "timed_out": timed_out,
        "seconds": seconds,
        "last_words": last[-30:],
    }


def _copy(process: subprocess.Popen[str], path: Path, last: list[str]) -> None:
    assert process.stdout is not None  # noqa: S101 (it was started with a pipe)
    with path.open("a") as log:
        for line in process.stdout:
            log.write(line)
            log.flush()
            print(line, end="", flush=True)
            last.append(line.rstrip("\n"))


def _die_with(parent: int) -> Callable[[], None]:
    """In a child: SIGTERM when the script is killed, so that the GPU is freed (prctl, Linux)."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # no Linux: the children go on
        return lambda: None

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # killed before the kernel was asked
            os._exit(128 + signal.SIGTERM)

    return ask


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _marked_processes() -> list[int]:
    """Processes that were started by this script, directly or not, and still live."""
    mark, found = f"{MARK}={os.getpid()}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@contextmanager
def peaks() -> Iterator[list[float]]:
    """The most memory of each GPU that was in use while this was open, by whichever process."""
    gib: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(MEMORY_POLL_S):
            pairs = itertools.zip_longest(gib, used_gib().values(), fillvalue=0.0)
            gib[:] = [max(pair) for pair in pairs]

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield gib
    finally:
        over.set()
        thread.join()


def run_parts(session: Session, chosen: Sequence[Part], report: dict[str, Any]) -> None:
    """Run the parts one after the other; the report is rewritten before and after each."""
    entries = report["parts"]
    for part in chosen:
        entry = entries[part.name]
        missing = [name for name in part.needs if entries[name]["status"] != "ended"]
        limit_s = DRY_LIMIT_S if session.dry else _limit_of(part, session)
        if missing or limit_s <= 0:
            reason = f"{', '.join(missing)} did not end" if missing else "the 30 minutes are over"
            entry |= {"status": "not run", "reason": reason}
            write_report(session.folder, report)
            continue
        entry |= {"status": "running", "reason": "", "limit_s": limit_s}
        write_report(session.folder, report)
        print(
            f"== {part.name}: at most {limit_s:.0f} s, {session.left_s / 60:.0f} min are left",
            flush=True,
        )
        started = time.monotonic()
        try:
            session.findings[part.name] = part.run(session, limit_s)
            entry |= {"status": "ended", "findings": session.findings[part.name]}
        except NotRunError as reason:
            entry |= {"status": "not run", "reason": str(reason)}
        except StoppedError:
            entry |= {"status": "stopped", "seconds": time.monotonic() - started}
            write_report(session.folder, report)
            raise
        except Exception as error:  # noqa: BLE001 (a finding; the other parts go on)
            entry |= {"status": "broken", "reason": f"{type(error).__name__}: {first_line(error)}"}
        entry["seconds"] = time.monotonic() - started
        write_report(session.folder, report)


def _limit_of(part: Part, session: Session) -> float:
    """Seconds that a part may take: one that must be killed still ends within the 30 minutes."""
    left_s = session.left_s - GRACE_S
    return left_s if part.limit_s is None else min(part.limit_s, left_s)


def chosen_parts(only: str | None) -> list[Part]:
    """All parts, or one with those that it needs.

    Raises:
        ConfigError: There is no part of that name.
    """
    if only is None:
        return list(PARTS)
    known = {part.name: part for part in PARTS}
    if only not in known:
        raise ConfigError(f"--only {only}: unknown part; allowed: {', '.join(known)}")
    names = {*known[only].needs, only}
    return [part for part in PARTS if part.name in names]


def main(words: Sequence[str]) -> int:
    """Run the parts, print the report and return the exit status."""
    words = list(words)
    if {"--help", "-h"} & set(words):
        print(__doc__)
        return 0
    dry = "--dry" in words
    try:
        only = words.pop(words.index("--only") + 1) if "--only" in words else None
        chosen = chosen_parts(only)
        given = [word for word in words if word not in ("--dry", "--only")]
        given = [*DRY, *given] if dry else given
        session = Session(given, compose_run(given), FOLDER, dry)
    except (ConfigError, IndexError) as error:
        print(
            f"error: {error if isinstance(error, ConfigError) else '--only names a part'}",
            file=sys.stderr,
        )
        return 2
    FOLDER.mkdir(exist_ok=True)
    keep_earlier_report(FOLDER)
    for runs in TRAINING_RUNS:  # of an earlier call: they would be gone on with
        shutil.rmtree(FOLDER / runs, ignore_errors=True)
    report = new_report(given, session.config, [part.name for part in PARTS], dry=dry)
    write_report(FOLDER, report)

    def stop(_number: int, _frame: object) -> None:
        raise StoppedError

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        run_parts(session, chosen, report)
    except StoppedError:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        for runs in TRAINING_RUNS:  # 18.5 GB a checkpoint at 1.5B, 91 GB at 7B
            for checkpoints in FOLDER.glob(f"{runs}/*/checkpoints"):
                shutil.rmtree(checkpoints, ignore_errors=True)
        print((FOLDER / PAGE).read_text())
    print(f"written: {FOLDER}/{RECORD}, {PAGE} and logs; please send the folder back")
    return exit_status(report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
