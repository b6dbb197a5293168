"""Lanes: engine copies that hold a game at some state.

Each has a private copy of Fast Downward's shared library, which keeps one task and one state per loaded copy.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import tempfile
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np

from scpo.envs.alfworld.planning.translation import Translation

_LABEL_BYTES = 1024
OPERATOR = np.dtype([("id", np.int32), ("label", f"S{_LABEL_BYTES}"), ("effects", np.int32)], align=True)
LABEL = np.dtype(f"S{_LABEL_BYTES}")


class Lane:
    """One copy of the library. It can be put at any state of its game without replaying the way there."""

    def __init__(self) -> None:
        self._library = load_library()
        self._operators = np.zeros(64, OPERATOR)
        self._make_room(8)
        self._jumps: tuple[int, ...] = ()
        self._initial: tuple[bool, ...] = ()
        self._flipped: AbstractSet[int] = frozenset()

    def load(self, translation: Translation) -> None:
        """Forget the current game and stand at the start of another."""
        self._library.load_sas(translation.sas)
        self._jumps, self._initial = translation.jumps, translation.initial
        self._flipped = frozenset()

    def move(self, flipped: AbstractSet[int]) -> None:
        """Stand at the state in which exactly these variables differ from the start."""
        apply, effects_at, jumps, initial = self._library.apply_operator, self._effects_at, self._jumps, self._initial
        for variable in self._flipped ^ flipped:
            apply(jumps[variable] + (initial[variable] == (variable in flipped)), effects_at)
        self._flipped = flipped

    def apply(self, operator: int, effects: int) -> list[int]:
        """Apply an operator; returns the values it set (``2 * variable``, plus 1 for false), in the library's order.

        The caller says with ``move`` where it is before the next call: what an operator did is for it to judge.
        """
        if effects > len(self._effects):
            self._make_room(2 * effects)
        self._effects.fill(b"")  # the library ends a label with one zero byte and leaves what stood behind it
        self._library.apply_operator(operator, self._effects_at)
        return [int(label) for label in self._effects[:effects].tolist()]

    def _make_room(self, effects: int) -> None:
        self._effects = np.zeros(effects, LABEL)
        self._effects_at = self._effects.ctypes.data  # numpy takes longer to say it than the library to move

    def arrive(self, flipped: AbstractSet[int]) -> None:
        """Note that the last applied operator led to this state."""
        self._flipped = flipped

    def applicable(self) -> tuple[list[int], list[int]]:
        """Applicable operators in the library's order, and how many values each sets."""
        count = self._library.get_applicable_operators_count()
        if count > len(self._operators):
            self._operators = np.zeros(2 * count, OPERATOR)
        self._library.get_applicable_operators(self._operators.ctypes.data)
        found = self._operators[:count]
        return found["id"].tolist(), found["effects"].tolist()

    def won(self) -> bool:
        """Whether the goal holds."""
        return bool(self._library.check_goal())


def load_library() -> Any:
    """Load a private copy; the same as ``fast_downward.load_lib`` but 30 times smaller on disk.

    The packaged library is 34 MB, 33 of them debug information that the loader never looks at. A lane's copy must live
    as long as the lane, so a hundred lanes of the stock kind would hold gigabytes of a temporary folder.
    """
    import fast_downward

    loadable = _loadable_library()
    if loadable is None:  # not an ELF file of the expected kind
        library = fast_downward.load_lib()
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "libdownward.so"
            path.write_bytes(loadable)
            library = ctypes.CDLL(str(path))
    library.load_sas.argtypes = [ctypes.c_char_p]
    library.get_applicable_operators.argtypes = [ctypes.c_void_p]
    library.apply_operator.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.check_goal.restype = ctypes.c_bool
    return library


@functools.cache
def _loadable_library() -> bytes | None:
    from fast_downward.interface import DOWNWARD_LIB_PATH

    return _loadable_part(Path(DOWNWARD_LIB_PATH).read_bytes())


def _loadable_part(elf: bytes) -> bytes | None:
    """A 64-bit little-endian ELF file up to the end of its last loadable segment, without its section table."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    end = 0
    for header in range(table, table + size * count, size):
        kind, _flags, offset, _virtual, _physical, length = struct.unpack_from("<IIQQQQ", elf, header)
        if kind == 1:
            end = max(end, offset + length)
    trimmed = bytearray(elf[:end])
    struct.pack_into("<Q", trimmed, 0x28, 0)  # offset of the section table
    struct.pack_into("<HH", trimmed, 0x3C, 0, 0)  # number of sections, index of the name section
    return bytes(trimmed)
