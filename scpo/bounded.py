"""Dictionary with a maximum number of entries that evicts the least recently used one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """Least-recently-used store of at most ``size`` entries.

    Unlike with ``functools.lru_cache``, the owner can list the entries, raise the size while the
    store is in use, and close or reuse an evicted entry. Not thread-safe.

    Raises:
        ValueError: ``size`` is below 1.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a bounded store needs room for at least one entry, got {size}")
        self._size = size
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def widen(self, entries: int) -> None:
        """Raise the size by ``entries``."""
        self._size += entries

    def reserve(self, entries: int) -> None:
        """Raise the size to ``entries`` if it is smaller."""
        self._size = max(self._size, entries)

    def values(self) -> list[Value]:
        """All entries, least recently used first."""
        return list(self._entries.values())

    def get(self, key: Key) -> Value | None:
        """Return the entry and mark it as the most recently used; None if absent."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        """Store an entry; evict the least recently used one if the store is full."""
        # Remove the key's old entry first: a full store would otherwise evict another one.
        self._entries.pop(key, None)
        self.evict()
        self._entries[key] = value

    def evict(self) -> Value | None:
        """Remove and return the least recently used entry if the store is full, else None."""
        if len(self._entries) >= self._size:
            return self._entries.popitem(last=False)[1]
        return None

    def pop(self, key: Key) -> Value | None:
        """Remove and return an entry; None if absent."""
        return self._entries.pop(key, None)
