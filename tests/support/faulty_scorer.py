"""What a scorer's process does that misbehaves: ``FaultyService`` in place of ``scpo.scoring.process.serve``.

It commits its fault on the first request and, once ``marker`` exists, never again; with ``always-`` before its name on
every request.
"""

import os
import resource
import signal
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scpo.scoring.process import HEADER, WARM_UP, Kind, serve


class Faulty:
    """The length of the first text over that of the second, until it goes wrong."""

    name = "faulty"

    def __init__(self, fault, marker, connection):
        self.fault, self.marker, self.connection = fault, Path(marker), connection

    def score(self, pairs):
        if list(pairs) != WARM_UP and (self.fault.startswith("always-") or not self.marker.exists()):
            self.marker.touch()
            if (answer := FAULTS[self.fault.removeprefix("always-")](self, pairs)) is not None:
                return answer
        return truth(pairs)


def truth(pairs):
    return np.array([min(len(first), len(second)) / max(len(first), len(second), 1) for first, second in pairs], "f4")


def write(scorer, data):
    """Past multiprocessing, straight into the pipe."""
    os.write(scorer.connection.fileno(), data)


def garbage(scorer, _pairs):
    write(scorer, b"loading the model, please wait" * 4)
    time.sleep(60)


def endless(scorer, _pairs):
    """A length that promises more than follows it."""
    write(scorer, struct.pack("!i", 1 << 20) + HEADER.pack(Kind.SCORES, 1) + b"\0")
    time.sleep(60)


def huge(scorer, _pairs):
    write(scorer, struct.pack("!iQ", -1, 1 << 60))
    time.sleep(60)


def unknown(scorer, _pairs):
    scorer.connection.send_bytes(b"Loading weights: 100%")
    time.sleep(60)


def stale(scorer, pairs):
    """The answer to an earlier request."""
    scorer.connection.send_bytes(HEADER.pack(Kind.SCORES, 0) + bytes(4 + 4 * len(pairs)))
    time.sleep(60)


def memory(_scorer, _pairs):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    np.ones(1 << 30)


def hang_in_c(_scorer, _pairs):
    """Hold the interpreter: no Python thread runs any more."""
    import ctypes

    ctypes.PyDLL(None).sleep(60)


FAULTS = {
    "kill": lambda scorer, pairs: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda scorer, pairs: time.sleep(60),
    "hang-in-c": hang_in_c,
    "garbage": garbage,
    "endless": endless,
    "huge": huge,
    "unknown": unknown,
    "stale": stale,
    "short": lambda scorer, pairs: truth(pairs)[:-1],
    "nan": lambda scorer, pairs: truth(pairs) * np.nan,
    "above-one": lambda scorer, pairs: truth(pairs) + 1,
    "memory": memory,
    "exception": lambda scorer, pairs: 1 / 0,
}


@dataclass(frozen=True)
class FaultyService:
    """``deaf`` holds the interpreter once it has said that it is ready, so that nothing reads what is sent."""

    fault: str
    marker: str

    def __call__(self, connection, _make):
        if self.fault == "foreign":
            Faulty.name = "another scorer"
        if self.fault == "dead-on-arrival":
            sys.exit(3)
        if self.fault == "deaf":
            connection.send_bytes(HEADER.pack(Kind.READY, 0) + b"faulty")
            hang_in_c(None, None)
        serve(connection, lambda: Faulty(self.fault, self.marker, connection))
