"""What happens to files on disks: other bits, lost lines, zeroed blocks."""


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
