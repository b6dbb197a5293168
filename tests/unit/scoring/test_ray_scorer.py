import os
from functools import partial

import numpy as np
import pytest

from scpo.schema.scorer import ExactScorer, ScorerRuntime
from scpo.scoring.process import ScorerProcess
from scpo.scoring.ray_scorer import BEFORE_RAY, VISIBLE, first_gpu, open_ray_scorer, remember_gpus, seeing
from sweeps.compose.configuration import compose_run


@pytest.mark.parametrize(
    ("given", "hidden", "first"),
    [
        (None, None, "0"),
        (None, "", "0"),
        ("4,5,6,7", "", "4"),
        ("4,5,6,7", "4,5,6,7", "4"),
        ("GPU-a,GPU-b", "", "GPU-a"),
    ],
)
def test_the_first_gpu_of_the_run_is_known_where_ray_hides_them_all(monkeypatch, given, hidden, first):
    def see(gpus):
        monkeypatch.delenv(VISIBLE, raising=False)
        if gpus is not None:
            monkeypatch.setenv(VISIBLE, gpus)

    monkeypatch.setenv(BEFORE_RAY, "")
    see(given)
    remember_gpus()
    see(hidden)  # as Ray does it
    assert first_gpu() == first


class Seen:
    """A scorer that says whether the second of two texts is what its process sees."""

    name = "exact"

    def score(self, pairs):
        return np.array([gpus == os.environ.get(VISIBLE) for _, gpus in pairs], dtype=np.float32)


def test_a_process_that_is_started_sees_that_gpu_and_nothing_else_changes(monkeypatch):
    monkeypatch.setenv(VISIBLE, "")
    runtime = ScorerRuntime(
        process="auto", start_deadline_s=120, deadline_s=60, crashes=1, on_scorer_failure="stop", speculate=False
    )
    scorer = ScorerProcess(ExactScorer(kind="exact", name="exact"), runtime, partial(seeing, "4", Seen))
    assert scorer.score([("sees", "4"), ("sees", "")]).tolist() == [1, 0]
    scorer.close()
    assert os.environ[VISIBLE] == ""


def test_a_neural_scorer_runs_apart_on_the_gpu_and_any_other_where_it_is_asked():
    assert isinstance(open_ray_scorer(compose_run(["scale=paper"]), on_gpu=True).scorer, ScorerProcess)
    exact = compose_run(["scale=paper", "scorer=exact"])
    assert not isinstance(open_ray_scorer(exact, on_gpu=True).scorer, ScorerProcess)
    assert isinstance(open_ray_scorer(compose_run(["scale=paper"]), on_gpu=False).scorer, ScorerProcess)
