"""Shipped experiments, each expanded once for all tests of a process: not to be written to."""

import functools

from sweeps.compose.matrix import Matrix, expand


@functools.cache
def expanded(name: str, *overrides: str) -> Matrix:
    return expand(name, overrides)
