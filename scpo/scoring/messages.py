"""What a trainer and its scorer's process say to each other, through a pipe of multiprocessing; nothing is unpickled.

A message is bytes: its kind, the number of the request, then texts as JSON or scores as little-endian float32. Nothing
that the process sends can run code in the trainer, whatever a library that it loaded has done to it.
"""

import json
import struct
from collections.abc import Sequence
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.shaping.drive import TextPair

HEADER = struct.Struct("<BI")
"""Kind and number of the request."""
LARGEST = 1 << 28
"""Bytes of a message; a longer one is none of ours."""
TRUNCATED = struct.Struct("<I")


class Kind(IntEnum):
    """``PAIRS`` go to the process; ``READY`` or ``REFUSED`` (no scorer) come from it first, then ``SCORES``."""

    READY = 1
    REFUSED = 2
    PAIRS = 3
    SCORES = 4


class Message(NamedTuple):
    """One message; an answer has the number of its request."""

    kind: Kind
    request: int
    payload: bytes


class MessageError(ScorerError):
    """The other side sent something that is no message, or not the one that was due."""


def send(connection: Connection, message: Message) -> None:
    """Send a message; OSError if the other side is gone."""
    connection.send_bytes(HEADER.pack(message.kind, message.request) + message.payload)


def receive(connection: Connection) -> Message:
    """Wait for a whole message.

    Raises:
        EOFError: The other side is gone.
        OSError: So it is, or what came is longer than any message.
        MessageError: What came is no message.
    """
    received = connection.recv_bytes(LARGEST)
    kind, request = HEADER.unpack_from(received) if len(received) >= HEADER.size else (0, 0)
    if kind not in set(Kind):
        raise MessageError(f"no message begins with the bytes {received[: HEADER.size].hex(' ')}")
    return Message(Kind(kind), request, received[HEADER.size :])


def pack_pairs(pairs: Sequence[TextPair]) -> bytes:
    """The payload of ``PAIRS``."""
    return json.dumps(list(pairs)).encode()


def unpack_pairs(payload: bytes) -> list[TextPair]:
    """The pairs of a ``PAIRS`` message."""
    return [(first, second) for first, second in json.loads(payload)]


def pack_scores(scores: NDArray[np.float32], truncated: int) -> bytes:
    """The payload of ``SCORES``: how many of the pairs had a side cut, and the scores."""
    return TRUNCATED.pack(truncated) + scores.astype("<f4").tobytes()


def unpack_scores(payload: bytes, count: int) -> tuple[NDArray[np.float32], int]:
    """The scores of ``count`` pairs, and how many of these had a side cut.

    Raises:
        MessageError: Another number of scores, or one outside [0, 1].
    """
    if len(payload) != TRUNCATED.size + 4 * count:
        raise MessageError(f"{len(payload)} bytes for {count} scores: expected {TRUNCATED.size + 4 * count}")
    scores = np.frombuffer(payload, dtype="<f4", offset=TRUNCATED.size).astype(np.float32)
    bad = scores[~((scores >= 0) & (scores <= 1))]
    if len(bad):
        raise MessageError(f"{len(bad)} of {count} scores are no numbers in [0, 1], the first of them {bad[0]}")
    return scores, TRUNCATED.unpack_from(payload)[0]
