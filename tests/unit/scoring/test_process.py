import threading
from functools import partial
from multiprocessing import Pipe

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import ScorerError
from scpo.schema.scorer import ExactScorer, ScorerRuntime
from scpo.scoring import PairCache, make_scorer, open_scorer, process
from scpo.scoring.process import (
    HEADER,
    Kind,
    Message,
    MessageError,
    ScorerProcess,
    pack_pairs,
    pack_scores,
    receive,
    send,
    unpack_pairs,
    unpack_scores,
)
from tests.support.rerankers import SENTENCES, config, save_reranker


@pytest.fixture
def ends():
    one, other = Pipe()
    with one, other:
        yield one, other


def test_a_message_arrives_as_it_was_sent(ends):
    large = Message(Kind.PAIRS, 7, bytes(range(256)) * 10_000)
    sender = threading.Thread(target=send, args=(ends[0], large))
    sender.start()
    assert receive(ends[1]) == large
    sender.join()
    send(ends[0], Message(Kind.READY, 0, b""))
    assert receive(ends[1]) == (Kind.READY, 0, b"")


@pytest.mark.parametrize("data", [b"Loading weights: 100%", HEADER.pack(99, 1), b"", b"\1\0"])
def test_what_is_no_message_is_refused(ends, data):
    ends[0].send_bytes(data)
    with pytest.raises(MessageError, match="no message begins with the bytes"):
        receive(ends[1])


def test_what_is_longer_than_any_message_is_refused_before_it_is_read(ends, monkeypatch):
    monkeypatch.setattr(process, "LARGEST", 100)
    ends[0].send_bytes(bytes(101))
    with pytest.raises(OSError, match="bad message length"):
        receive(ends[1])


def test_a_closed_connection_is_noticed(ends):
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])


@given(st.lists(st.tuples(st.text(), st.text())))
def test_any_texts_survive(pairs):
    assert unpack_pairs(pack_pairs(pairs)) == pairs


def test_lone_surrogates_survive():
    assert unpack_pairs(pack_pairs([("\ud800", "a")])) == [("\ud800", "a")]


@given(st.lists(st.floats(0, 1, width=32)), st.integers(0, 1000))
def test_scores_keep_every_bit(values, truncated):
    scores = np.array(values, dtype=np.float32)
    unpacked, counted = unpack_scores(pack_scores(scores, truncated), len(scores))
    assert unpacked.tobytes() == scores.tobytes()
    assert counted == truncated


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1, np.inf])
def test_scores_that_are_no_similarities_are_refused(bad):
    with pytest.raises(MessageError, match="1 of 2 scores are no numbers"):
        unpack_scores(pack_scores(np.array([0.5, bad], dtype=np.float32), 0), 2)


def test_another_number_of_scores_is_refused():
    with pytest.raises(MessageError, match="8 bytes for 2 scores: expected 12"):
        unpack_scores(pack_scores(np.zeros(1, dtype=np.float32), 0), 2)


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
