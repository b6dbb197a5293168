"""Processes that a server forks, with scripts in the place of train.py."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from scpo.records import run_config
from sweeps.launchers import forked
from sweeps.launchers.forked import Forked
from sweeps.launchers.run_process import Start
from tests.support import fake_runs as fake

OPENED = "opened = []\ndef open_ahead(config): open(config.machine.runs_dir + '/servers', 'a').write('one ')\n"
SAYS_WHO = (
    "import os, sys\nif __name__ == '__main__': print(sys.argv[1:], os.getppid(), os.environ['OMP_NUM_THREADS'])\n"
)


SLEEPS = "import time\nif __name__ == '__main__': print('here', flush=True), time.sleep(60)"

NOTES = []


@pytest.fixture
def start(tmp_path):
    """Makes a start of a run with such a script."""

    def make(text=SAYS_WHO, seed=0, **variables):
        script = tmp_path / "script.py"
        script.write_text(text)
        folder = fake.make_run(tmp_path / "runs", f"seed={seed}")
        return Start(
            script, folder, run_config.read_config(folder), folder.new_attempt(), {"OMP_NUM_THREADS": "1", **variables}
        )

    return make


def ended(process, seconds=fake.HANG_S):
    limit = time.monotonic() + seconds
    while (code := process.poll()) is None and time.monotonic() < limit:
        time.sleep(0.02)
    return code


def three_runs(start):
    return forked.forked_runs([start.config] * 3, NOTES.append)


@pytest.fixture(scope="module")
def begin():
    """Begins runs that are forked from one server, whichever script they are of."""
    with forked.forked_runs([fake.compose_run([*fake.QUICK])] * 3, NOTES.append) as begin:
        yield begin


def test_runs_are_forked_from_one_process_that_opened_what_they_share(start, tmp_path):
    starts = [start(OPENED + SAYS_WHO, seed) for seed in range(3)]
    with three_runs(starts[0]) as begin:
        processes = [begin(one) for one in starts]
        assert [ended(one) for one in processes] == [0, 0, 0]
    assert all(isinstance(one, Forked) for one in processes)
    said = [one.log.read_text().rsplit(maxsplit=2) for one in starts]
    assert [words for words, _, _ in said] == [str(one.command[1:]) for one in starts]
    assert len({parent for _, parent, _ in said}) == 1
    assert (tmp_path / "runs" / "servers").read_text() == "one "
    assert NOTES[-1].startswith("opening what the runs share")


@pytest.mark.parametrize(
    ("body", "code"),
    [("sys.exit(3)", 3), ("raise ValueError('why')", 1), ("os.kill(os.getpid(), 9)", -9), ("pass", 0)],
)
def test_how_a_process_ended_is_told(start, begin, body, code):
    one = start(f"import os, sys\nif __name__ == '__main__': {body}")
    assert ended(begin(one)) == code
    assert ("ValueError: why" in one.log.read_text()) == ("why" in body)


def test_it_can_be_asked_to_end_and_is_the_first_of_its_session(start, begin):
    one = start(
        "import os, time\nif __name__ == '__main__': print(os.getsid(0) == os.getpid(), flush=True), time.sleep(60)"
    )
    process = begin(one)
    fake.wait_until(one.log.read_text)
    process.terminate()
    assert ended(process) == -signal.SIGTERM
    assert one.log.read_text() == "True\n"


def test_code_that_has_changed_since_it_was_imported_is_imported_anew(start, tmp_path):
    one = start("import os\nif __name__ == '__main__': print('parent', os.getppid(), 'imported', __file__)")
    program = (
        "import itertools; from sweeps.launchers import forked as server; number = itertools.count(); "
        "server.code_files = lambda: {'scpo/steps.py': next(number)}; "
        "server.os.execv = lambda *words: print(words, flush=True); server.main()"
    )
    ours, theirs = multiprocessing.Pipe()
    command = [sys.executable, "-c", program, str(theirs.fileno()), str(one.script), str(one.folder.path)]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]):
        theirs.close()
        request = {"number": 0, "command": one.command, "log": str(one.log), "variables": dict(one.variables)}
        ours.send(request)
        fake.wait_until(lambda: one.log.exists() and str(one.script) in one.log.read_text())
        ours.close()
    assert str((sys.executable, [sys.executable, *one.command])) in one.log.read_text()


def test_a_server_that_dies_takes_no_run_with_it_and_another_takes_over(start):
    first, second = start(SLEEPS), start(seed=1)
    with three_runs(first) as begin:
        process = begin(first)
        # The pid arrives before the forked process may go on: it exits if its server dies in between.
        fake.wait_until(first.log.read_text)
        os.kill(process.server._process.pid, signal.SIGKILL)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        assert ended(process) == 1  # nobody knows; the run's own record says
        again = begin(second)
        assert again.server is not process.server
        assert ended(again) == 0


def test_a_server_that_is_used_up_ends_with_its_last_run(start, monkeypatch):
    monkeypatch.setattr(forked, "FORKS", 1)
    with three_runs(one := start()) as begin:
        first = begin(one)
        assert ended(first) == 0
        two = start(SLEEPS, seed=1)
        busy = begin(two)
        fake.wait_until(two.log.read_text)
        last = begin(start(seed=2))
        assert first.server._process.poll() is not None
        assert busy.server._process.poll() is None
        assert first.poll() == 0
        busy.terminate()
        assert (ended(busy), ended(last)) == (-signal.SIGTERM, 0)


COUNTS_ITSELF = (
    "import os, sys, time\n"
    "if __name__ == '__main__':\n"
    "    open(sys.argv[1] + '/processes', 'a').write(f'{os.getpid()} ')\n"
    "    time.sleep(60)\n"
)


def processes_of(start):
    file = start.folder.path / "processes"
    return file.read_text().split() if file.exists() else []


def test_a_server_that_cannot_open_anything_costs_nothing_but_time(start):
    one = start("def open_ahead(config): raise OSError('no disk')\n" + SAYS_WHO)
    with three_runs(one) as begin:
        assert ended(begin(one)) == 0
        again = begin(start(seed=1))
    assert isinstance(again, subprocess.Popen)  # no second server is tried
    assert again.wait() == 0


@pytest.mark.parametrize("slow", ["while it opens", "before it forks"])
def test_a_run_whose_server_is_too_slow_is_run_by_one_process(start, monkeypatch, slow):
    if slow == "while it opens":
        monkeypatch.setattr(forked, "OPENING_S", 2.0)
    monkeypatch.setattr(forked, "FORKING_S", 0.5)
    starts = [start(COUNTS_ITSELF, seed) for seed in range(3)]
    with three_runs(starts[0]) as begin:
        processes = [begin(starts[0])]
        server = processes[0].server
        if slow == "before it forks":
            fake.wait_until(lambda: processes[0].poll() is None and processes_of(starts[0]), 120)
        os.kill(server._process.pid, signal.SIGSTOP)
        processes += [begin(one) for one in starts[1:]]
        fake.wait_until(lambda: [one.poll() for one in processes] and all(map(processes_of, starts)))
        assert server.has_ended
        for process in processes:
            process.terminate()
        codes = [ended(process) for process in processes]
    assert [processes_of(one) for one in starts] == [[str(process.pid)] for process in processes]
    known = 1 if slow == "before it forks" else -signal.SIGTERM  # the first one's parent is gone
    assert codes == [known, -signal.SIGTERM, -signal.SIGTERM]


def test_a_run_that_waits_for_its_server_can_be_stopped_at_once(start):
    one = start("import time\ndef open_ahead(config): time.sleep(60)\n" + COUNTS_ITSELF)
    with three_runs(one) as begin:
        process = begin(one)
        began = time.monotonic()
        assert process.poll() is None
        process.terminate()
        assert process.poll() == -signal.SIGTERM
    assert time.monotonic() - began < 5
    assert processes_of(one) == []


def test_a_process_that_a_dead_server_has_not_told_of_does_not_start(start):
    """The server dies between the fork and its message: nobody would know that the run has a process."""
    one = start(COUNTS_ITSELF)
    program = (
        "import os; from sweeps.launchers import forked as server\n"
        "class Dies:\n"
        "    def poll(self, seconds): return True\n"
        "    def recv(self): return {'number': 0}\n"
        "    def close(self): pass\n"
        "    def send(self, message): print(message['pid'], flush=True); os._exit(0)\n"
        "if server._serve(Dies()) is not None: print('started')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip().isdigit()
    fake.wait_until(lambda: forked.exit_status(int(done.stdout)) is not None)
    assert processes_of(one) == []


def test_a_zombie_has_ended_whoever_its_parent_is():
    """An orphan stays one where process 1 is no init: the only program of a container, or the launcher itself."""
    program = "import os, time\npid = os.fork()\nif pid == 0: os._exit(3)\nprint(pid, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        zombie = int(parent.stdout.readline())
        fake.wait_until(lambda: forked._is_zombie(zombie))
        os.kill(zombie, 0)  # it is still found
        assert forked.exit_status(zombie) == 1
        assert forked.exit_status(parent.pid) is None
        parent.kill()
        fake.wait_until(lambda: forked._is_zombie(parent.pid))
        assert forked.exit_status(parent.pid) == -signal.SIGKILL  # adopted by this process: reaped


@pytest.mark.parametrize("words", [["launcher.fork=false"], ["machine.threads=2"], ["machine.device=cuda"]])
def test_it_is_not_done_where_it_cannot_be(start, words, tmp_path):
    config = fake.compose_run([*fake.QUICK, *words])
    with forked.forked_runs([config] * 3, NOTES.append) as begin:
        assert begin is forked.begin_anew


def test_it_is_not_done_for_two_runs_and_not_for_another_environment(start):
    one = start()
    with forked.forked_runs([one.config] * 2, NOTES.append) as begin:
        assert begin is forked.begin_anew
    with forked.forked_runs([fake.compose_run([*fake.QUICK, "env=webshop"])] * 3, NOTES.append) as begin:
        process = begin(one)
        assert isinstance(process, subprocess.Popen)
        assert process.wait() == 0
