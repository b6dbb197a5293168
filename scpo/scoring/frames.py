"""Frames between a trainer and its scorer's process: a header of fixed size, then the payload. Nothing is unpickled.

Texts travel as JSON, scores as little-endian float32.
"""

import json
import socket
import struct
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.shaping.drive import TextPair

MAGIC = b"scpo"
HEADER = struct.Struct("<4sBIQ")
"""Magic, kind, number of the request, length of the payload in bytes."""
LARGEST = 1 << 28
"""Bytes of a payload; a longer one is no frame of ours."""
TRUNCATED = struct.Struct("<I")


class Kind(IntEnum):
    """``START`` and ``PAIRS`` go to the process; ``READY``, ``SCORES`` or ``REFUSED`` (no scorer) come back."""

    START = 1
    READY = 2
    PAIRS = 3
    SCORES = 4
    REFUSED = 5


class Frame(NamedTuple):
    """One message; an answer has the number of its request."""

    kind: Kind
    request: int
    payload: bytes


class FrameError(ScorerError):
    """The other side sent something that is no frame, or not the one that was due."""


def send(connection: socket.socket, frame: Frame, deadline: float | None = None) -> None:
    """Send a frame.

    Raises:
        TimeoutError: ``deadline``, a time of ``time.monotonic()``, has passed.
        OSError: The other side is gone.
    """
    connection.settimeout(_left(deadline))
    connection.sendall(HEADER.pack(MAGIC, frame.kind, frame.request, len(frame.payload)) + frame.payload)


def receive(connection: socket.socket, deadline: float | None = None) -> Frame:
    """Wait for a whole frame.

    Raises:
        TimeoutError: ``deadline``, a time of ``time.monotonic()``, has passed.
        EOFError: The other side is gone.
        FrameError: What came is no frame.
    """
    header = _exactly(connection, HEADER.size, deadline)
    magic, kind, request, length = HEADER.unpack(header)
    if magic != MAGIC or kind not in set(Kind) or length > LARGEST:
        raise FrameError(f"no frame begins with the bytes {header.hex(' ')}")
    return Frame(Kind(kind), request, _exactly(connection, length, deadline))


def _exactly(connection: socket.socket, length: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < length:
        connection.settimeout(_left(deadline))
        piece = connection.recv(min(length - len(received), 1 << 20))
        if not piece:
            raise EOFError("the other side closed the connection")
        received += piece
    return bytes(received)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


def pack_pairs(pairs: Sequence[TextPair]) -> bytes:
    """The payload of ``PAIRS``."""
    return json.dumps(list(pairs)).encode()


def unpack_pairs(payload: bytes) -> list[TextPair]:
    """The pairs of a ``PAIRS`` frame."""
    return [(first, second) for first, second in json.loads(payload)]


def pack_scores(scores: NDArray[np.float32], truncated: int) -> bytes:
    """The payload of ``SCORES``: how many of the pairs had a side cut, and the scores."""
    return TRUNCATED.pack(truncated) + scores.astype("<f4").tobytes()


def unpack_scores(payload: bytes, count: int) -> tuple[NDArray[np.float32], int]:
    """The scores of ``count`` pairs, and how many of these had a side cut.

    Raises:
        FrameError: Another number of scores, or one outside [0, 1].
    """
    if len(payload) != TRUNCATED.size + 4 * count:
        raise FrameError(f"{len(payload)} bytes for {count} scores: expected {TRUNCATED.size + 4 * count}")
    scores = np.frombuffer(payload, dtype="<f4", offset=TRUNCATED.size).astype(np.float32)
    bad = scores[~((scores >= 0) & (scores <= 1))]
    if len(bad):
        raise FrameError(f"{len(bad)} of {count} scores are no numbers in [0, 1], the first of them {bad[0]}")
    return scores, TRUNCATED.unpack_from(payload)[0]
