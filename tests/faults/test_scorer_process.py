"""A scorer's process may do what it likes: the request is answered rightly, or refused loudly."""

import errno
import multiprocessing
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.errors import ScorerError, ScorerUnavailable
from scpo.schema.scorer import ExactScorer, ScorerRuntime
from scpo.scoring import process
from scpo.scoring.process import ScorerProcess
from tests.support.faulty_scorer import FAULTS, FaultyService, truth
from tests.support.step_batches import make_batch, method, shaper_config

CONFIG = ExactScorer(kind="exact", name="faulty")
NO_SCORER = None  # a faulty service brings its own
PAIRS = [("abc", "abcd"), ("a", "abcde"), ("", "x"), ("naïve", "字 \ud800")]
ROOT = Path(__file__).parents[2]
SILENT = ("hang", "hang-in-c", "endless", "deaf")  # only the deadline notices these
SHORT_S = {False: 2, True: 0.5}  # a deadline that a right answer has to meet on a busy machine, and one for none


def runtime(**changes):
    deadlines = {"start_deadline_s": 60, "deadline_s": 30}
    values = {"process": "always", "crashes": 3, "on_scorer_failure": "stop", "speculate": False}
    return ScorerRuntime(**(deadlines | values | changes))


@pytest.fixture
def faulty(tmp_path):
    """A function that makes scorers with a fault; their processes end with the test."""
    made = []

    def make(fault, **changes):
        for_none = fault.startswith("always-") or changes.get("crashes") == 1
        short = {"deadline_s": SHORT_S[for_none]} if fault.removeprefix("always-") in SILENT else {}
        service = FaultyService(fault, str(tmp_path / "marker"))
        made.append(ScorerProcess(CONFIG, runtime(**(short | changes)), NO_SCORER, serve=service))
        return made[-1]

    yield make
    for scorer in made:
        scorer.close()


@pytest.fixture
def _forked(monkeypatch):
    """Processes that begin as a copy of this one, where the test is about what comes after their start."""
    monkeypatch.setattr(process, "get_context", lambda _: multiprocessing.get_context("fork"))


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_a_new_process_answers_the_same_request(faulty, fault, caplog):
    scorer = faulty(fault)
    assert np.array_equal(scorer.score(PAIRS), truth(PAIRS))
    assert scorer.counts["crashes"] == 1
    assert "the process of scorer faulty failed (1 of 3)" in caplog.text
    assert np.array_equal(scorer.score(PAIRS[:1]), truth(PAIRS[:1]))
    assert scorer.counts["crashes"] == 1


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("always-kill", "it was killed by SIGKILL"),
        ("always-hang", "no SCORES within 0.5 s"),
        ("always-nan", "4 of 4 scores are no numbers in [0, 1], the first of them nan"),
        ("always-short", "16 bytes for 4 scores: expected 20"),
        ("always-exception", "it ended with exit status 1"),
        ("always-garbage", "bad message length"),
        ("always-huge", "bad message length"),
        ("always-endless", "no SCORES within 0.5 s"),
        ("always-stale", "SCORES 0 instead of SCORES 2"),
        ("always-unknown", "no message begins with the bytes 4c 6f 61 64 69"),
        ("dead-on-arrival", "it ended with exit status 3"),
        ("foreign", "it is the scorer b'another scorer', not 'faulty'"),
    ],
)
def test_a_fault_that_stays_stops_training_and_is_named(faulty, fault, reason):
    scorer = faulty(fault, crashes=2)
    with pytest.raises(ScorerError, match="failed 2 times in a row on 4 pairs") as caught:
        scorer.score(PAIRS)
    assert not isinstance(caught.value, ScorerUnavailable)
    assert reason in str(caught.value)
    assert "The same command resumes the run" in str(caught.value)


def test_a_process_that_cannot_be_started_is_a_failure_like_any_other(faulty, monkeypatch):
    def no_process_left(_self):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", no_process_left)
    with pytest.raises(ScorerError, match="it could not be started"):
        faulty("kill", crashes=1).score(PAIRS)


def test_an_interpreter_that_does_not_exist_is_a_failure_like_any_other(faulty):
    before = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable("/no/such/python")
    try:
        with pytest.raises(ScorerError, match="it ended with exit status 255"):
            faulty("kill", crashes=1).score(PAIRS)
    finally:
        multiprocessing.set_executable(before)


def test_a_process_that_does_not_read_ends_at_the_deadline_too(faulty):
    with pytest.raises(ScorerError, match=r"no SCORES within 0\.5 s"):
        faulty("deaf", crashes=1).score([("a" * 10_000_000, "b")])


def test_shaping_is_skipped_with_an_error_where_the_configuration_allows_it(faulty, caplog):
    batch = make_batch((0, 0, "a b c", 10), (0, 1, "a b x", 0), (0, 2, "y", 0))
    scpo, host = method(shaper=shaper_config()), method(name="gigpo")
    scorer = faulty("always-kill", crashes=1, on_scorer_failure="skip_shaping")
    advantage_N, diagnostics = assign(batch, scorer, scpo)
    assert diagnostics.metrics["scpo/shaping_skipped"] == 1
    assert diagnostics.metrics["scpo/pairs_scored"] == diagnostics.metrics["credit/aux_mean"] == 0
    assert "NO SHAPING in this step" in caplog.text
    assert np.array_equal(advantage_N, assign(batch, None, host)[0])


def test_the_next_request_gets_new_chances(faulty):
    scorer = faulty("kill", crashes=1)
    with pytest.raises(ScorerError):
        scorer.score(PAIRS)
    assert np.array_equal(scorer.score(PAIRS), truth(PAIRS))


def test_a_process_killed_between_requests_is_replaced(faulty):
    scorer = faulty("kill", crashes=2)
    scorer.score(PAIRS)
    os.kill(child_of(scorer), signal.SIGKILL)
    assert np.array_equal(scorer.score(PAIRS[:2]), truth(PAIRS[:2]))
    assert scorer.counts["crashes"] == 2


def test_signals_that_stop_a_trainer_leave_its_scorer_alone(faulty, tmp_path):
    (tmp_path / "marker").touch()  # no fault
    scorer = faulty("kill")
    scorer.score(PAIRS[:1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child_of(scorer), number)
    assert np.array_equal(scorer.score(PAIRS), truth(PAIRS))
    assert scorer.counts["crashes"] == 0


def test_an_interrupted_request_leaves_no_stale_answer(faulty, tmp_path):
    def interrupt():
        wait_for((tmp_path / "marker").exists)
        os.kill(os.getpid(), signal.SIGINT)

    scorer = faulty("hang", deadline_s=30)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        scorer.score(PAIRS)
    assert np.array_equal(scorer.score(PAIRS), truth(PAIRS))
    assert scorer.counts["crashes"] == 0


PARENT = """
import sys
sys.path[:0] = {path!r}
from tests.faults.test_scorer_process import CONFIG, FaultyService, ScorerProcess, runtime
ScorerProcess(CONFIG, runtime(), None, serve=FaultyService({fault!r}, {marker!r})).score([("a", "b")])
"""


@pytest.mark.parametrize("fault", ["hang", "hang-in-c"])
def test_it_ends_with_a_parent_that_is_killed_even_in_the_middle_of_a_batch(fault, tmp_path):
    marker = tmp_path / "marker"
    source = PARENT.format(path=sys.path, fault=fault, marker=str(marker))
    parent = subprocess.Popen([sys.executable, "-c", source], cwd=ROOT)
    wait_for(marker.exists)
    (child,) = scorers_of(parent.pid)
    parent.kill()
    parent.wait()
    wait_for(lambda: not Path(f"/proc/{child}").exists())
    assert parent.returncode == -signal.SIGKILL


def child_of(scorer):
    return scorer._child._process.pid


def scorers_of(pid):
    """Its children but multiprocessing's own."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def wait_for(condition, limit_s=30):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)
