import os
import signal

import pytest

from scpo.tracking import State
from sweeps import store
from sweeps.local import Pool, slots_for, tail
from tests import fake_runs as fake


class Board:
    def __init__(self):
        self.seen = []

    def started(self, folder, config):
        self.seen.append(("started", folder.run_id))

    def progress(self, folder, step, success):
        self.seen.append(("progress", folder.run_id, step, success))

    def ended(self, folder, outcome):
        self.seen.append(("ended", folder.run_id, outcome.state))


def run(tmp_path, script, seeds=(0,), slots=1):
    made = [fake.make_run(tmp_path, f"seed={seed}") for seed in seeds]
    pool = Pool(script, slots, Board())
    completed = pool.run({folder.run_id: (folder, folder.read_config()) for folder in made})
    return completed, pool, made


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def test_slots_are_one_for_each_thread_count_of_cores_at_most_one_a_run():
    cores = len(os.sched_getaffinity(0))
    config = fake.compose_run([])
    assert slots_for([config] * 1000) == cores
    assert slots_for([config]) == 1
    assert slots_for([fake.compose_run([f"machine.threads={cores + 1}"])] * 5) == 1
    assert slots_for([fake.compose_run(["launcher.slots=3"])] * 5) == 3


def test_one_slot_runs_one_after_the_other_and_shows_each_end(tmp_path):
    completed, pool, (a, b) = run(tmp_path / "runs", fake.FAULTS / "fake_train.py", seeds=(0, 1))
    assert completed
    events = [event for event in pool.board.seen if event[0] != "progress"]
    assert events == [
        *(("started", a.run_id), ("ended", a.run_id, State.DONE)),
        *(("started", b.run_id), ("ended", b.run_id, State.DONE)),
    ]
    assert ("progress", b.run_id, 4, 4 / 7 + 1) in pool.board.seen


def test_a_process_that_dies_before_its_first_line_gives_its_last_words(tmp_path):
    path = script(tmp_path, "raise SystemExit('no module named games')")
    _, pool, (folder,) = run(tmp_path / "runs", path)
    outcome = pool.outcomes[folder.run_id]
    assert (outcome.state, outcome.reason) == (State.FAILED, "ended with exit status 1: no module named games")
    assert folder.read_status().reason == outcome.reason


def test_a_process_that_kills_itself_is_named_with_its_signal(tmp_path):
    path = script(tmp_path, "import os; os.kill(os.getpid(), 9)")
    _, pool, (folder,) = run(tmp_path / "runs", path)
    assert pool.outcomes[folder.run_id].reason == "killed by SIGKILL"


def test_a_run_that_another_process_has_is_left_to_it(tmp_path):
    folder = fake.make_run(tmp_path)
    with store.run_lock(folder):
        _, pool, _ = run(tmp_path, fake.FAULTS / "fake_train.py")
    assert pool.outcomes[folder.run_id].state is State.RUNNING
    assert not folder.attempt(1).exists()


def test_threads_of_the_config_reach_the_process(tmp_path):
    path = script(tmp_path, "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])")
    _, _, (folder,) = run(tmp_path / "runs", path)
    assert folder.attempt_log(1).read_text() == "1 1\n"


def test_the_pool_gives_the_signal_handlers_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path / "runs", script(tmp_path, ""))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("text", "lines"), [("a\nb\nc", ["b", "c"]), ("", []), (None, [])])
def test_tail_is_the_end_of_a_log_or_nothing(tmp_path, text, lines):
    if text is not None:
        (tmp_path / "log").write_text(text)
    assert tail(tmp_path / "log", 2) == lines
