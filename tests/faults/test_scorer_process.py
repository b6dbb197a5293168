"""A scorer's process may do what it likes: the request is answered rightly, or refused loudly."""

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
from scpo.scoring.process import ScorerProcess
from tests.support.faulty_scorer import FAULTS, truth
from tests.support.step_batches import make_batch, method, shaper_config

PAIRS = [("abc", "abcd"), ("a", "abcde"), ("", "x"), ("naïve", "字 \ud800")]
FAULTY = Path(__file__).parents[1] / "support" / "faulty_scorer.py"
SILENT = ("hang", "hang-in-c", "endless")  # only the deadline notices these


def runtime(**changes):
    deadlines = {"start_deadline_s": 60, "deadline_s": 30}
    values = {"process": "always", "crashes": 3, "on_scorer_failure": "stop", "speculate": False}
    return ScorerRuntime(**(deadlines | values | changes))


@pytest.fixture
def faulty(tmp_path):
    """A function that makes scorers with a fault; their processes end with the test."""
    made = []

    def make(fault, **changes):
        config = ExactScorer(kind="exact", name="faulty")
        short = {"deadline_s": 2} if fault.removeprefix("always-") in SILENT else {}
        command = [sys.executable, str(FAULTY), fault, str(tmp_path / "marker")]
        made.append(ScorerProcess(config, runtime(**(short | changes)), command=command))
        return made[-1]

    yield make
    for scorer in made:
        scorer.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_a_new_process_answers_the_same_request(faulty, fault, caplog):
    scorer = faulty(fault)
    assert np.array_equal(scorer.score(PAIRS), truth(PAIRS))
    assert scorer.counts["crashes"] == 1
    assert "the process of scorer faulty failed (1 of 3)" in caplog.text
    assert np.array_equal(scorer.score(PAIRS[:1]), truth(PAIRS[:1]))
    assert scorer.counts["crashes"] == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("always-kill", "it was killed by SIGKILL"),
        ("always-hang", "no SCORES within 2 s"),
        ("always-nan", "4 of 4 scores are no numbers in [0, 1], the first of them nan"),
        ("always-short", "16 bytes for 4 scores: expected 20"),
        ("always-exception", "it ended with exit status 1"),
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


def test_a_command_that_does_not_exist_is_a_failure_like_any_other():
    scorer = ScorerProcess(ExactScorer(kind="exact", name="faulty"), runtime(crashes=1), command=["/no/such/python"])
    with pytest.raises(ScorerError, match="it could not be started"):
        scorer.score(PAIRS)


def test_shaping_is_skipped_loudly_where_the_configuration_says_so(faulty, caplog):
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
from tests.faults.test_scorer_process import ExactScorer, ScorerProcess, runtime
ScorerProcess(ExactScorer(kind="exact", name="faulty"), runtime(), command={command!r}).score([("a", "b")])
"""


@pytest.mark.parametrize("fault", ["hang", "hang-in-c"])
def test_it_ends_with_a_parent_that_is_killed_even_in_the_middle_of_a_batch(fault, tmp_path):
    marker = tmp_path / "marker"
    command = [sys.executable, str(FAULTY), fault, str(marker)]
    source = PARENT.format(path=sys.path, command=command)
    parent = subprocess.Popen([sys.executable, "-c", source], cwd=FAULTY.parents[2])
    wait_for(marker.exists)
    (child,) = children_of(parent.pid)
    parent.kill()
    parent.wait()
    wait_for(lambda: not Path(f"/proc/{child}").exists())
    assert parent.returncode == -signal.SIGKILL


def child_of(scorer):
    return scorer._child._process.pid


def children_of(pid):
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def wait_for(condition, limit_s=30):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)
