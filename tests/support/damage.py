"""What happens to files on disks: other bits, lost lines, zeroed blocks; files of other users."""

import contextlib
import ctypes

# linux/capability.h: the version of capget, and the bits CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
CAPABILITIES = 0x20080522
READS_ALL = 0b110


def flip_a_bit(path, place, bit=0):
    """Another bit in the byte at ``place``, which may count from the end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def cut(path, size):
    """Only the first bytes are left."""
    path.write_bytes(path.read_bytes()[:size])


def zero(path, start, size):
    """A block of zeros, as a power cut leaves it."""
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(len(data[start : start + size]))
    path.write_bytes(data)


def keep_lines(path, count):
    """The lines behind the first ``count`` are lost."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))


@contextlib.contextmanager
def without_permission(*paths):
    """This process may not read these paths, as those of another user; root, too."""
    modes = {path: path.stat().st_mode for path in paths}
    head = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    before, fewer = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(head, before) == libc.capget(head, fewer) == 0
    # The first number is the set that is in effect.
    fewer[0] &= ~READS_ALL
    try:
        for path in paths:
            path.chmod(0)
        assert libc.capset(head, fewer) == 0
        yield
    finally:
        assert libc.capset(head, before) == 0
        for path, mode in modes.items():
            path.chmod(mode)
