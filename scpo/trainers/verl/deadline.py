"""Deadline for sending weights to the rollout engine, since a stuck engine would block the run."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import Any

from scpo.errors import RolloutError


class WithDeadline:
    """verl's checkpoint manager with a time limit on ``update_weights``, otherwise unchanged.

    Args:
        manager: The manager, which sends the update's weights to the rollout engine.
        seconds: The limit; infinity: no limit.
    """

    def __init__(self, manager: Any, seconds: float) -> None:
        self._manager = manager
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for names that this class lacks.
        return getattr(self._manager, name)

    def update_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Call the manager's method; its own errors are raised here.

        Raises:
            RolloutError: It took longer than the limit.
        """
        answer: Future[Any] = Future()

        def send() -> None:
            try:
                answer.set_result(self._manager.update_weights(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 (raised by the caller's thread)
                answer.set_exception(error)

        # A daemon, because a thread that hangs cannot be ended and would keep the process alive.
        threading.Thread(target=send, name="weights", daemon=True).start()
        timeout = None if self._seconds == float("inf") else self._seconds
        if not wait([answer], timeout).done:
            raise RolloutError(
                f"the rollout engine did not take the new weights within {self._seconds:g} s "
                "(trainer.verl.stall_s): it hangs or is gone. The run goes on from its last "
                "checkpoint"
            )

        return answer.result()
