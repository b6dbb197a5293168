from functools import partial

import numpy as np
import pytest

from scpo.errors import ScorerError
from scpo.schema.scorer import ExactScorer, ScorerRuntime
from scpo.scoring import PairCache, make_scorer, open_scorer, process
from scpo.scoring.process import ScorerProcess
from tests.support.rerankers import SENTENCES, config, save_reranker

EXACT = ExactScorer(kind="exact", name="exact")
RUNTIME = ScorerRuntime(
    process="auto", start_deadline_s=120, deadline_s=60, crashes=1, on_scorer_failure="stop", speculate=False
)  # one crash is one too many here
PAIRS = [(first, second) for first in SENTENCES for second in SENTENCES]


@pytest.fixture
def started():
    """A function that makes scorers in processes; they end with the test."""
    made = []

    def make(scorer_config):
        made.append(ScorerProcess(scorer_config, RUNTIME, partial(make_scorer, scorer_config)))
        return made[-1]

    yield make
    for scorer in made:
        scorer.close()


def test_a_reranker_gives_the_same_bits_in_a_process_of_its_own(started, tmp_path):
    tiny = config(save_reranker(tmp_path, "xlm_r"), max_tokens=64)
    apart, here = started(tiny), make_scorer(tiny)
    assert np.array_equal(apart.score(PAIRS), here.score(PAIRS))
    assert apart.name == here.name
    assert apart.counts == here.counts
    assert apart.counts["truncated"] > 0


def test_it_starts_on_first_use_and_again_after_it_was_closed(started):
    scorer = started(EXACT)
    assert scorer._child is None
    assert scorer.score([("a", "a"), ("a", "b")]).tolist() == [1, 0]
    scorer.close()
    assert scorer._child is None
    assert scorer.score([("a", "a")]).tolist() == [1]


def test_many_pairs_are_asked_one_request_after_another(started, monkeypatch):
    monkeypatch.setattr(process, "PAIRS_A_REQUEST", 3)
    scorer = started(EXACT)
    pairs = [(str(i % 3), str(i % 2)) for i in range(8)]
    assert np.array_equal(scorer.score(pairs), make_scorer(EXACT).score(pairs))
    assert scorer._requests == 3


def test_no_pairs_start_no_process(started):
    scorer = started(EXACT)
    assert scorer.score([]).shape == (0,)
    assert scorer._child is None


def test_a_scorer_that_cannot_be_made_is_said_at_once_and_not_tried_again(started, tmp_path):
    scorer = started(config(tmp_path, dtype="float16"))
    with pytest.raises(ScorerError, match="float16 is for GPUs"):
        scorer.score(PAIRS)
    assert scorer.counts["crashes"] == 0


@pytest.mark.parametrize(("where", "apart"), [("auto", False), ("always", True), ("never", False)])
def test_where_a_scorer_without_a_model_runs(where, apart):
    opened = open_scorer(EXACT, RUNTIME.model_copy(update={"process": where}))
    assert isinstance(opened, PairCache)
    assert isinstance(opened.scorer, ScorerProcess) is apart


def test_a_reranker_gets_a_process_unless_that_is_forbidden(tmp_path):
    tiny = config(save_reranker(tmp_path, "xlm_r"))
    assert isinstance(open_scorer(tiny, RUNTIME).scorer, ScorerProcess)
    assert not isinstance(open_scorer(tiny, RUNTIME.model_copy(update={"process": "never"})).scorer, ScorerProcess)
