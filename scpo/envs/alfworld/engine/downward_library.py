"""Private copies of Fast Downward's shared library, which keeps one task and one state per loaded copy."""

from __future__ import annotations

import ctypes
import functools
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_LABEL_BYTES = 1024
OPERATOR = np.dtype([("id", np.int32), ("label", f"S{_LABEL_BYTES}"), ("effects", np.int32)], align=True)
LABEL = np.dtype(f"S{_LABEL_BYTES}")


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
