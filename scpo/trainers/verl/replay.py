"""Replay buffer that detects rollouts that cannot finish.

With verl's own buffer, the trainer would train on partial data or wait for ever. verl loads this
file by its path, in the process of the trainer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from scpo.errors import RolloutError, first_line

PING_S = 10.0
"""Seconds between two checks for dead processes."""


class WatchedReplayBuffer(ReplayBuffer):  # type: ignore[misc]  # verl is untyped
    """Raises RolloutError after a failed episode, a dead rollout process, or a stalled rollout.

    The trainer sets ``stall_s`` and ``failures`` when it creates the buffer, and ``actors`` when
    they run.

    Attributes:
        poll_interval: Seconds between two polls of the rollout; an attribute of verl.
        actors: Processes that the rollout depends on, by their names in messages.
        stall_s: Seconds without a finished episode after which the rollout counts as stuck.
        failures: Log of failed episodes (``Workplace.failures``), for the message.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # verl's 2 s are long for a short rollout; much less is slow, because a poll lists all rows.
        self.poll_interval = 1.0
        self.actors: dict[str, Any] = {}
        self.stall_s = float("inf")
        self.failures: Any = None
        self._seen: tuple[int, ...] = ()
        self._progress_at = self._ping_at = time.monotonic()
        self._pings: dict[str, Any] = {}

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Sample as verl does; the time without a finished episode is counted from now."""
        self._seen = ()
        self._progress_at = time.monotonic()
        return super().sample(*args, **kwargs)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        # verl calls this in every round, before it takes a batch. With failed episodes it would
        # train on the rest of their groups, or play other tasks instead.
        failed = self.failure_keys[partition_id]
        if failed:
            last = self.failures.last() if self.failures is not None else None
            reason = (
                f"the last one: task {last['task']}: {last['reason']}"
                if last
                else "the agent loops' log says why"
            )
            raise RolloutError(
                f"step {global_steps}: {len(failed)} tasks of partition {partition_id!r} could not "
                f"be played ({reason}). Nothing was trained on the rest; the run goes on from its "
                "last checkpoint"
            )
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        # Called in every round of verl's wait, which has no time limit.
        now = time.monotonic()
        if now - self._ping_at > PING_S:
            self._ping_at = now
            self._check_actors()
        # Number of rows of ended episodes, and number of tasks whose episodes have all ended.
        counts = (len(self.partitions[partition_id]), len(self.finished_keys[partition_id]))
        if counts != self._seen:
            self._seen = counts
            self._progress_at = now
        elif now - self._progress_at > self.stall_s:
            raise RolloutError(
                f"no episode ended for {self.stall_s:g} s (trainer.verl.stall_s) with {counts[1]} "
                f"tasks finished and {len(self.running_keys[partition_id])} running: the rollout "
                "engine no longer answers, or the horizon is too long for the limit"
            )
        return float(super()._wait_for_next_poll(partition_id, last_debug_time))

    def _check_actors(self) -> None:
        """Ping every process: a dead one raises at once, a busy one may answer later."""
        for name in self.actors.keys() - self._pings.keys():
            self._pings[name] = self.actors[name].__ray_ready__.remote()
        # timeout=0: an actor that has not answered yet is checked at a later poll.
        answered, _ = ray.wait(list(self._pings.values()), num_returns=len(self._pings), timeout=0)
        for name, ping in list(self._pings.items()):
            if ping in answered:
                del self._pings[name]
                self._check_ping(name, ping)

    @staticmethod
    def _check_ping(name: str, ping: Any) -> None:
        """Raise RolloutError if the answer to a ping is the error of a dead actor."""
        try:
            ray.get(ping)
        except ray.exceptions.RayError as error:
            raise RolloutError(
                f"the {name} died during the rollout ({first_line(error)}); Ray's log of it says "
                "why. The run goes on from its last checkpoint"
            ) from error


def rollout_actors(workers: Sequence[Any], servers: Sequence[Any]) -> dict[str, Any]:
    """The processes that a rollout depends on, by their names in messages."""
    named = {f"agent loop worker {number}": actor for number, actor in enumerate(workers)}
    return named | {f"rollout engine {number}": actor for number, actor in enumerate(servers)}
