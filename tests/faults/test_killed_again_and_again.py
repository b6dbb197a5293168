"""The whole mini trainer, killed at random moments until it is done: same bytes, and never much lost."""

import random
import signal
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
    calm = finish(tmp_path / "calm", cache)
    for _ in range(KILLS):
        process = start(tmp_path / "wild", cache)
        time.sleep(chance.uniform(2, 12))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before = last_step(tmp_path / "wild")
        checkpoint = max(
            (int(p.parent.name[5:]) for p in (tmp_path / "wild").glob("*/checkpoints/*/COMPLETE")), default=-1
        )
        assert before - checkpoint <= CHECKPOINT_EVERY
    wild = finish(tmp_path / "wild", cache)
    assert (wild / "metrics.jsonl").read_bytes() == (calm / "metrics.jsonl").read_bytes()


def last_step(runs):
    try:
        return (only_run(runs) / "metrics.jsonl").read_bytes().count(b"\n") - 1
    except (FileNotFoundError, ValueError):
        return -1
