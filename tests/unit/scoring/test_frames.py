import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.scoring.frames import (
    HEADER,
    LARGEST,
    MAGIC,
    Frame,
    FrameError,
    Kind,
    pack_pairs,
    pack_scores,
    receive,
    send,
    unpack_pairs,
    unpack_scores,
)


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_frame_arrives_as_it_was_sent(ends):
    large = Frame(Kind.PAIRS, 7, bytes(range(256)) * 10_000)
    sender = threading.Thread(target=send, args=(ends[0], large))
    sender.start()
    assert receive(ends[1], time.monotonic() + 30) == large
    sender.join()
    send(ends[0], Frame(Kind.READY, 0, b""))
    assert receive(ends[1]) == (Kind.READY, 0, b"")


@pytest.mark.parametrize(
    "header",
    [
        b"Loading weights: 100%",
        HEADER.pack(MAGIC, 99, 1, 0),
        HEADER.pack(MAGIC, Kind.SCORES, 1, LARGEST + 1),
        HEADER.pack(b"SCPO", Kind.SCORES, 1, 0),
    ],
)
def test_what_is_no_frame_is_refused(ends, header):
    ends[0].sendall(header)
    with pytest.raises(FrameError, match="no frame begins with the bytes"):
        receive(ends[1])


def test_a_closed_connection_is_noticed_within_a_frame_too(ends):
    ends[0].sendall(HEADER.pack(MAGIC, Kind.SCORES, 1, 100) + b"half")
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])


def test_the_deadline_is_for_the_whole_frame(ends):
    ends[0].sendall(HEADER.pack(MAGIC, Kind.SCORES, 1, 100) + b"half")
    with pytest.raises(TimeoutError):
        receive(ends[1], time.monotonic() + 0.05)
    with pytest.raises(TimeoutError):
        receive(ends[1], time.monotonic() - 1)


def test_a_full_connection_ends_at_the_deadline_too(ends):
    with pytest.raises(TimeoutError):
        send(ends[0], Frame(Kind.PAIRS, 1, bytes(LARGEST // 8)), time.monotonic() + 0.05)


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
    with pytest.raises(FrameError, match="1 of 2 scores are no numbers"):
        unpack_scores(pack_scores(np.array([0.5, bad], dtype=np.float32), 0), 2)


def test_another_number_of_scores_is_refused():
    with pytest.raises(FrameError, match="8 bytes for 2 scores: expected 12"):
        unpack_scores(pack_scores(np.zeros(1, dtype=np.float32), 0), 2)
