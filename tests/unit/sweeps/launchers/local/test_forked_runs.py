"""Processes that a server forks, with scripts in the place of train.py."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from sweeps.launchers.local import forked_runs
from sweeps.launchers.local.forked_runs import Forked
from sweeps.records.run_process import Start
from tests.support import fake_runs as fake

OPENED = "opened = []\ndef open_ahead(config): open(config.machine.runs_dir + '/servers', 'a').write('one ')\n"
SAYS_WHO = (
    "import os, sys\nif __name__ == '__main__': print(sys.argv[1:], os.getppid(), os.environ['OMP_NUM_THREADS'])\n"
)


NOTES = []


@pytest.fixture
def start(tmp_path):
    """Makes a start of a run with such a script."""

    def make(text=SAYS_WHO, seed=0, **variables):
        script = tmp_path / "script.py"
        script.write_text(text)
        folder = fake.make_run(tmp_path / "runs", f"seed={seed}")
        return Start(script, folder, folder.read_config(), folder.new_attempt(), {"OMP_NUM_THREADS": "1", **variables})

    return make


def ended(process, seconds=30):
    limit = time.monotonic() + seconds
    while (code := process.poll()) is None and time.monotonic() < limit:
        time.sleep(0.02)
    return code


def forked(start):
    return forked_runs.forked_runs([start.config] * 3, NOTES.append)


@pytest.fixture(scope="module")
def begin():
    """Begins runs that are forked from one server, whichever script they are of."""
    with forked_runs.forked_runs([fake.compose_run([*fake.QUICK])] * 3, NOTES.append) as begin:
        yield begin


def test_runs_are_forked_from_one_process_that_opened_what_they_share(start, tmp_path):
    starts = [start(OPENED + SAYS_WHO, seed) for seed in range(3)]
    with forked(starts[0]) as begin:
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
        "import itertools; from sweeps.launchers.local import fork_server as server; number = itertools.count(); "
        "server.code_files = lambda: {'scpo/steps.py': next(number)}; "
        "server.os.execv = lambda *words: print(words, flush=True); server.main()"
    )
    ours, theirs = multiprocessing.Pipe()
    command = [sys.executable, "-c", program, str(theirs.fileno()), str(one.script), str(one.folder.path)]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]):
        theirs.close()
        request = {"command": one.command, "log": str(one.log), "variables": dict(one.variables)}
        ours.send(request)
        fake.wait_until(lambda: one.log.exists() and str(one.script) in one.log.read_text())
        ours.close()
    assert str((sys.executable, [sys.executable, *one.command])) in one.log.read_text()


def test_a_server_that_dies_takes_no_run_with_it_and_another_takes_over(start):
    first, second = start("import time\nif __name__ == '__main__': time.sleep(1)"), start(seed=1)
    with forked(first) as begin:
        process = begin(first)
        os.kill(process.server._process.pid, signal.SIGKILL)
        assert process.poll() is None
        assert ended(process) == 1  # nobody knows; the run's own record says
        again = begin(second)
        assert again.server is not process.server
        assert ended(again) == 0


def test_a_server_that_is_used_up_ends_with_its_last_run(start, monkeypatch):
    monkeypatch.setattr(forked_runs, "FORKS", 1)
    with forked(one := start()) as begin:
        first = begin(one)
        assert ended(first) == 0
        two = start("import time\nif __name__ == '__main__': print('here', flush=True), time.sleep(60)", seed=1)
        busy = begin(two)
        fake.wait_until(two.log.read_text)
        last = begin(start(seed=2))
        assert first.server._process.poll() is not None
        assert busy.server._process.poll() is None
        assert first.poll() == 0
        busy.terminate()
        assert (ended(busy), ended(last)) == (-signal.SIGTERM, 0)


def test_a_server_that_cannot_open_anything_costs_nothing_but_time(start):
    one = start("def open_ahead(config): raise OSError('no disk')\n" + SAYS_WHO)
    with forked(one) as begin:
        process = begin(one)
        assert isinstance(process, subprocess.Popen)
        assert process.wait() == 0


@pytest.mark.parametrize("words", [["launcher.fork=false"], ["machine.threads=2"], ["machine.device=cuda"]])
def test_it_is_not_done_where_it_cannot_be(start, words, tmp_path):
    config = fake.compose_run([*fake.QUICK, *words])
    with forked_runs.forked_runs([config] * 3, NOTES.append) as begin:
        assert begin is forked_runs.begin_anew


def test_it_is_not_done_for_two_runs_and_not_for_another_environment(start):
    one = start()
    with forked_runs.forked_runs([one.config] * 2, NOTES.append) as begin:
        assert begin is forked_runs.begin_anew
    with forked_runs.forked_runs([fake.compose_run([*fake.QUICK, "env=webshop"])] * 3, NOTES.append) as begin:
        process = begin(one)
        assert isinstance(process, subprocess.Popen)
        assert process.wait() == 0
