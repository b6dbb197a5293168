"""How a run stands: one word for status.json, for the commands, and for what a launcher or a search decides by."""

from enum import StrEnum


class State(StrEnum):
    """How a run stands. The first seven are what status.json says; the others only an observer can tell.

    Every state but DAMAGED is one of ``settled``, ``live`` and ``startable``.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    CANCELLED = "CANCELLED"  # by a person: left alone until `retry`
    PRUNED = "PRUNED"  # by a search: final

    NEW = "NEW"  # it has no folder yet
    QUEUED = "QUEUED"  # its job waits
    UNKNOWN = "UNKNOWN"  # it has a job, and the scheduler does not answer
    LOST = "LOST"  # its process or its job is gone without a word
    DAMAGED = "DAMAGED"  # its records cannot be read

    @property
    def recorded(self) -> bool:
        """Whether status.json may say so."""
        return self not in (State.NEW, State.QUEUED, State.UNKNOWN, State.LOST, State.DAMAGED)

    @property
    def settled(self) -> bool:
        """No sweep starts it by itself."""
        return self in (State.DONE, State.PRUNED, State.CANCELLED)

    @property
    def live(self) -> bool:
        """Something runs it, will run it, or may be running it."""
        return self in (State.RUNNING, State.QUEUED, State.UNKNOWN)

    @property
    def startable(self) -> bool:
        """Nobody runs it, and it may be started or resumed."""
        return self in (State.NEW, State.PENDING, State.INTERRUPTED, State.FAILED, State.LOST)
