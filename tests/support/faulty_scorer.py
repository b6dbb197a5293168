"""A scorer's process that misbehaves: ``python faulty_scorer.py <fault> <marker> <socket> <pid of the parent>``.

It commits its fault on the first request and, once ``marker`` exists, never again; with ``always-`` before its name on
every request.
"""

import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np

from scpo.scoring.frames import HEADER, MAGIC, Kind
from scpo.scoring.serve import WARM_UP, end_with, serve


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


def garbage(scorer, _pairs):
    scorer.connection.sendall(b"loading the model, please wait" * 4)
    time.sleep(60)


def endless(scorer, _pairs):
    """A header that promises more than it sends."""
    scorer.connection.sendall(HEADER.pack(MAGIC, Kind.SCORES, 1, 1 << 20) + b"\0")
    time.sleep(60)


def huge(scorer, _pairs):
    scorer.connection.sendall(HEADER.pack(MAGIC, Kind.SCORES, 1, 1 << 60))
    time.sleep(60)


def stale(scorer, pairs):
    """The answer to an earlier request."""
    scorer.connection.sendall(HEADER.pack(MAGIC, Kind.SCORES, 0, 4 + 4 * len(pairs)) + bytes(4 + 4 * len(pairs)))
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
    "stale": stale,
    "short": lambda scorer, pairs: truth(pairs)[:-1],
    "nan": lambda scorer, pairs: truth(pairs) * np.nan,
    "above-one": lambda scorer, pairs: truth(pairs) + 1,
    "memory": memory,
    "exception": lambda scorer, pairs: 1 / 0,
}


def main():
    fault, marker, descriptor, parent = sys.argv[1:]
    end_with(int(parent))
    connection = socket.socket(fileno=int(descriptor))
    if fault == "foreign":
        Faulty.name = "another scorer"
    if fault == "dead-on-arrival":
        sys.exit(3)
    serve(connection, lambda start: Faulty(fault, marker, connection))


if __name__ == "__main__":
    main()
