"""Cancel and retry one run, independent of its launcher."""

import contextlib
import os
import signal
import socket

from scpo.errors import RecordError
from scpo.records import RunFolder, State, Status, StopRequest
from scpo.records.files import locked

# States that do not change any more, except by ``retry`` after a search has pruned the run.
FINAL = (State.DONE, State.PRUNED)

# State -> state after a retry; others stay as they are.
_AGAIN = {
    # Not PENDING, which with an ended job would be LOST: `clean` deletes lost runs. `retry` makes a
    # run PENDING that has made no attempt and has no job.
    State.CANCELLED: State.INTERRUPTED,
    State.PRUNED: State.INTERRUPTED,
    # A run of a machine that is gone or was renamed. `retry` holds the run's lock, so no process
    # runs it.
    State.RUNNING: State.INTERRUPTED,
}


def cancel(folder: RunFolder, state: State = State.CANCELLED, reason: str = "cancelled") -> bool:
    """Let a run without a job end as ``state`` (CANCELLED or PRUNED); False if it was over before.

    The stop request is written first, so that it takes effect even if this process dies: a waiting
    run will not start, a running one ends at its next step with a checkpoint.
    """
    if not request_end(folder, state, reason):
        return False
    end_process(folder)
    return True


def request_end(folder: RunFolder, state: State, reason: str) -> bool:
    """Write the stop request of a run; False, without a request, if it was over before."""
    if folder.read_status().state in (*FINAL, state):
        return False
    folder.request_stop(StopRequest(state=state, reason=reason))
    return True


def end_process(folder: RunFolder, *, job_stops_it: bool = False) -> None:
    """Record the requested end of a run, or wake its process if it has one.

    ``job_stops_it``: the run's job signals the process itself.
    """
    # One signal only: a second would stop the run in the middle of its step.
    if not settle(folder) and not job_stops_it:
        _signal(folder)


def settle(folder: RunFolder) -> bool:
    """Record the requested end of a run without a process; False if a process still runs it."""
    with locked(folder.lock) as free:
        request = folder.read_stop()
        before = folder.read_status()
        # A request to interrupt a run ends its process only, and this run has no process.
        if not free or request is None or not request.state.settled:
            return free
        if before.state not in (*FINAL, request.state):
            reason = reason_of_end(request, before)
            folder.update_status(state=request.state, reason=reason, pid=None)
        return True


def reason_of_end(request: StopRequest, before: Status) -> str:
    """Reason of a run that ends as requested without a process; keeps why it had stopped."""
    if before.state is request.state and before.reason:
        return before.reason
    if before.state not in (State.INTERRUPTED, State.FAILED):
        return request.reason
    # `retry` makes a run with a job INTERRUPTED even if it was cancelled before it started.
    if not before.attempt and not before.reason:
        return request.reason
    stopped = f" ({before.reason})" if before.reason else ""
    return f"{request.reason}; was {before.state}{stopped}"


def retry(folder: RunFolder, *, keep_failures: bool = False) -> None:
    """Let a cancelled, pruned or too often failed run, or one of a lost machine, start again.

    Args:
        folder: The run.
        keep_failures: False if a person has looked at the run: its failures are counted from 0.

    Raises:
        RecordError: The run is done, or a process runs it.
    """
    with locked(folder.lock) as free:
        status = folder.read_status()
        if not free or status.state is State.DONE:
            what = f"is {status.state}" if free else "is running"
            raise RecordError(
                f"{folder.run_id} {what}: only runs that failed or were stopped can be tried again"
            )
        folder.clear_stop()
        state = _AGAIN.get(status.state, status.state)
        if status.state is State.CANCELLED and not status.attempt and not folder.job.exists():
            state = State.PENDING
        # The reason of a failed or interrupted run stays until it starts.
        reason = status.reason if state is status.state else None
        failures = status.failures if keep_failures else 0
        folder.update_status(state=state, failures=failures, reason=reason, pid=None)


def _signal(folder: RunFolder) -> None:
    """Wake the process, if it is on this host; elsewhere it reads the request at its next step."""
    status = folder.read_status()
    if status.pid is not None and status.host == socket.gethostname():
        # The process may have ended, or its pid may belong to another user's process by now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(status.pid, signal.SIGTERM)
