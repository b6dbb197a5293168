import threading
from multiprocessing import Pipe

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.scoring import messages
from scpo.scoring.messages import (
    HEADER,
    Kind,
    Message,
    MessageError,
    pack_pairs,
    pack_scores,
    receive,
    send,
    unpack_pairs,
    unpack_scores,
)


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
    monkeypatch.setattr(messages, "LARGEST", 100)
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
