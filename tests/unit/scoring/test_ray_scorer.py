import os

import numpy as np
import pytest

from scpo.scoring.process import ScorerProcess
from scpo.scoring.ray_scorer import BEFORE_RAY, VISIBLE, SeesFirstGpu, open_ray_scorer, remember_gpus
from sweeps.compose.configuration import compose_run


class Seen:
    """A scorer that notes which GPUs a process started now would see."""

    name = "seen"

    def __init__(self):
        self.visible = []

    def score(self, pairs):
        self.visible.append(os.environ.get(VISIBLE))
        return np.ones(len(pairs), dtype=np.float32)


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
def test_a_process_that_is_started_sees_the_first_gpu_of_the_run_and_nothing_else_changes(
    monkeypatch, given, hidden, first
):
    def see(gpus):
        monkeypatch.delenv(VISIBLE, raising=False)
        if gpus is not None:
            monkeypatch.setenv(VISIBLE, gpus)

    monkeypatch.setenv(BEFORE_RAY, "")
    see(given)
    remember_gpus()
    see(hidden)  # as Ray does it
    inner = Seen()
    scorer = SeesFirstGpu(inner)
    assert scorer.score([("a", "b")]).tolist() == [1.0]
    assert (scorer.name, inner.visible, os.environ.get(VISIBLE)) == ("seen", [first], hidden)


def test_a_neural_scorer_runs_apart_on_the_gpu_and_any_other_where_it_is_asked():
    reranker = open_ray_scorer(compose_run(["scale=paper"]), on_gpu=True)
    assert isinstance(reranker.scorer, SeesFirstGpu)
    assert isinstance(reranker.scorer.scorer, ScorerProcess)
    exact = compose_run(["scale=paper", "scorer=exact"])
    assert not isinstance(open_ray_scorer(exact, on_gpu=True).scorer, SeesFirstGpu | ScorerProcess)
    assert isinstance(open_ray_scorer(compose_run(["scale=paper"]), on_gpu=False).scorer, ScorerProcess)
