"""The whole mini trainer, killed at random moments until it is done: same bytes, and never much lost."""

import contextlib
import random
import signal
import subprocess
import time

import pytest

from tests.e2e.local_run import finish, only_run, start

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

CHECKPOINT_EVERY = 2  # as in tests.e2e.local_run
KILLS = 8


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_ends_as_an_undisturbed_one(tmp_path):
    chance, cache = random.Random(0), tmp_path / "cache"
    started = time.monotonic()
    calm = finish(tmp_path / "calm", cache)
    whole_s = time.monotonic() - started
    kills = 0
    for _ in range(KILLS):
        process = start(tmp_path / "wild", cache)
        # Shares of what an undisturbed run takes, so that a fast machine does not finish it first.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=chance.uniform(0.2, 0.8) * whole_s)
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        before = last_step(tmp_path / "wild")
        checkpoint = max(
            (int(p.parent.name[5:]) for p in (tmp_path / "wild").glob("*/checkpoints/*/COMPLETE")), default=-1
        )
        assert before - checkpoint <= CHECKPOINT_EVERY
    assert kills
    wild = finish(tmp_path / "wild", cache)
    assert (wild / "metrics.jsonl").read_bytes() == (calm / "metrics.jsonl").read_bytes()


def last_step(runs):
    try:
        return (only_run(runs) / "metrics.jsonl").read_bytes().count(b"\n") - 1
    except (FileNotFoundError, ValueError):
        return -1
