"""Process of one run around its training: lock, status, signals, log, provenance."""

import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scpo.errors import (
    CatalogueError,
    ChatError,
    ConfigError,
    GameError,
    PanelError,
    RecordError,
    RecordWriteError,
    ScorerError,
    ScpoError,
    no_space,
    no_space_in,
)
from scpo.records import RunFolder, State, Status, code_record, provenance, run_config, run_folders
from scpo.records.code_files import failed_part
from scpo.records.files import locked
from scpo.records.logs import JsonLines, before_after, read_whole
from scpo.records.redaction import redact
from scpo.records.run_folders import command_on, now
from scpo.records.weights import changed_weights, check_weights, weights_sums
from scpo.schema.run import RunConfig
from scpo.stop_signals import STOP_SIGNALS, stop_signals_go_to
from sweeps.notify import notify_of_failure
from sweeps.records.cancellation import reason_of_end
from sweeps.records.process import (
    EXIT_BUSY,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    LOG_FORMAT,
    NOT_RESUMED,
    thread_environment,
)

logger = logging.getLogger(__name__)

Train = Callable[[RunConfig, RunFolder, Callable[[], bool]], None]

# Between the reasons in a status: why a run ended, and why it was not resumed later.
THEN = f"; then {NOT_RESUMED}"
USER_ERRORS = (
    ConfigError,
    GameError,
    PanelError,
    CatalogueError,
    ScorerError,
    ChatError,
    RecordError,
    RecordWriteError,
)
"""Errors that a user can fix: logged without a traceback, which would only hide the message."""


class Stop:
    """Stop request of a run, by a signal or by stop.json; the run stops after the present step.

    - A second signal stops the run at once. So does the first if this attempt has not logged a step
      yet: loading, translating games and making demonstrations take minutes, with nothing to save.
    - An evaluation logs nothing until its end, but keeps each episode that ends. Its first signal
      therefore waits for the episodes that are being played (and paid for).
    - Once training is over, signals are ignored, so that the end is recorded.
    """

    def __init__(self, folder: RunFolder, *, evaluation: bool = False) -> None:
        self.asked = False
        self.over = False
        self._evaluation = evaluation
        self._folder = folder
        self._logged = self._log_size()
        checkpoints = folder.complete_checkpoints()
        self._began_after = checkpoints[-1] if checkpoints else -1

    def __call__(self) -> bool:
        return self.asked or self._folder.stop.exists()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: request a stop, or raise KeyboardInterrupt to stop at once."""
        if self.over:
            return
        nothing_to_save = not self._evaluation and self._log_size() == self._logged
        if self.asked or nothing_to_save:
            self.asked = True
            raise KeyboardInterrupt
        self.asked = True
        logger.warning(
            "%s: stopping after this step; once more stops at once", signal.Signals(number).name
        )

    def has_logged(self) -> bool:
        """True if this attempt has logged a step, and not only cut the log at its checkpoint."""
        if self._log_size() == self._logged:
            return False
        # The end of a run with damaged logs is recorded elsewhere.
        with contextlib.suppress(RecordError):
            last = JsonLines(self._folder.metrics).last()
            return last is not None and last["step"] > self._began_after
        return True

    def _log_size(self) -> int:
        try:
            return self._folder.metrics.stat().st_size
        except OSError:
            # Nothing was ever logged.
            return 0


def run(folder: RunFolder, train: Train, attempt: int | None = None) -> int:
    """Run or resume one run in this process; returns the exit status and writes status.json.

    Args:
        folder: The run.
        train: ``train(config, folder, should_stop)`` returns when all steps are done, or with a
            checkpoint once ``should_stop()`` is True.
        attempt: Number of the attempt, if a launcher writes this process's output to its log.
    """
    config = run_config.check(folder)
    with locked(folder.lock) as held:
        if not held:
            logger.warning(
                "%s is being run by %s; to look at it: %s, or logs -f",
                folder.run_id,
                _process_of(folder),
                command_on(folder.path.parent, "sweeps status", folder.run_id),
            )
            return EXIT_BUSY
        before = folder.read_status()
        # CANCELLED is not listed: its stop request decides below, so that `retry` works.
        if before.state in (State.DONE, State.PRUNED):
            logger.info("%s is %s already", folder.run_id, before.state)
            _warn_of_other_code(folder, config)
            _say_result(folder)
            return EXIT_DONE
        # Before anything is written, because it frees space on a full disk.
        folder.drop_half_checkpoints()
        if _cancelled_before_start(folder):
            return EXIT_INTERRUPTED
        # Another process may have begun the launcher's attempt meanwhile: then the number differs.
        number = folder.new_attempt()
        with _copy_of_log(folder, number) if attempt != number else nullcontext():
            return _attempt(folder, config, before, number, train)


def _process_of(folder: RunFolder) -> str:
    """Process that executes a run, if its record names it."""
    with contextlib.suppress(RecordError):
        status = folder.read_status()
        if status.state is State.RUNNING and status.pid is not None:
            return f"process {status.pid} on {status.host}"
    return "another process"


def leave(status: int) -> NoReturn:
    """End this process without freeing its objects; exit handlers run and streams are flushed.

    Freeing them takes 3 s or more after a study run, and copies the pages that a forked process
    shares. Stop signals are ignored meanwhile: the end of the run is recorded already, and a Ctrl-C
    in a library's exit handler would only print a traceback.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            # A normal exit, which waits for the thread.
            sys.exit(status)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # A normal exit reports the stream that cannot be written.
        sys.exit(status)
    os._exit(status)


def _cancelled_before_start(folder: RunFolder) -> bool:
    """True if the run was cancelled while it waited; drops a stop request to an earlier attempt."""
    request = folder.read_stop()
    if request is None or request.state is State.INTERRUPTED:
        folder.clear_stop()
        return False
    retry = command_on(folder.path.parent, "sweeps retry", folder.run_id)
    logger.warning("it was cancelled; `%s` lets it start", retry)
    # The run never started, but its end is recorded like that of a started run. `cancel` may have
    # recorded it already, before this process of a sweep began.
    _end(folder, request.state, reason_of_end(request, folder.read_status()))
    return True


def _attempt(
    folder: RunFolder, config: RunConfig, before: Status, number: int, train: Train
) -> int:
    """Make one attempt, unless the run may not be resumed; returns the exit status."""
    stop = Stop(folder, evaluation=config.method.kind == "prompted")
    with stop_signals_go_to(stop.handle):
        try:
            commit = provenance.git_commit()
            refusal = _refusal(folder, config, (before.commit, commit))
            if refusal is not None:
                logger.error("%s", refusal)
                return _end(folder, State.FAILED, _one_line(refusal), refused=number)
            _start(folder, config, before, number, commit)
            train(config, folder, stop)
            # A trainer may return before it has finished, so the log decides; all of its lines are
            # verified here.
            done = _last_step(folder)
            if done < config.trainer.steps and not stop():
                raise RuntimeError(
                    f"training returned at step {done} of {config.trainer.steps} without being "
                    "asked to stop"
                )
            stop.over = True
        except KeyboardInterrupt:
            stop.over = True
            return _end_early(folder, _where_stopped(folder, config, stop))
        except Exception as error:  # noqa: BLE001 (the boundary of a run: every error is recorded)
            stop.over = True
            # A traceback helps only with errors in the code. Any error may quote a secret, such as
            # the address of a database or a proxy.
            text = str(error) if isinstance(error, USER_ERRORS) else traceback.format_exc()
            secret = provenance.key_variables([config])
            logger.error("%s", redact(text, names=secret))
            return _end(folder, State.FAILED, redact(_one_line(error, config), names=secret))
        if done < config.trainer.steps:
            return _end_early(folder, f"asked to stop after step {done}")
        return _end(folder, State.DONE, None)


def _refusal(
    folder: RunFolder, config: RunConfig, commits: tuple[str | None, str | None]
) -> ScpoError | None:
    """Error of a run that may not be resumed; None if it may.

    ``commits``: the commit under which it stopped, and the present one.
    """
    # Before the check of the code, whose record it updates: a run of which the markers are restored
    # still needs the record as it was.
    lost = folder.lost_markers()
    if lost is not None:
        return lost
    across = config.machine.resume_across_versions
    try:
        check_weights(folder, config)
        code_record.check_resume(folder, config, across=across, commits=commits)
    except ConfigError as error:
        return error
    return None


def _end_early(folder: RunFolder, how: str) -> int:
    """Record the end of a run that was stopped; ``how`` is the reason without a request's."""
    request = folder.read_stop()
    if request is None:
        return _end(folder, State.INTERRUPTED, how)
    return _end(folder, request.state, request.reason)


def _start(
    folder: RunFolder, config: RunConfig, before: Status, number: int, commit: str | None
) -> None:
    """Record the beginning of an attempt, and set the environment variables of its libraries."""
    # Before `train` imports the libraries that read these variables.
    os.environ.update(thread_environment(config.machine.threads))

    # Transformers draws a progress bar for every file that it reads.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # The step is that of the last checkpoint. Until the trainer has cut the logs, they have later
    # lines of a killed attempt.
    checkpoints = folder.complete_checkpoints()
    folder.write_status(
        before.model_copy(
            update={
                "state": State.RUNNING,
                "attempt": number,
                "step": checkpoints[-1] if checkpoints else 0,
                "steps": config.trainer.steps,
                "reason": None,
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "boot": run_folders.boot_id(),
                "started_at": now(),
                "commit": commit,
            }
        )
    )
    folder.point_latest(number)
    provenance.record(folder, config, number, weights_sums(config))


def _where_stopped(folder: RunFolder, config: RunConfig, stop: Stop) -> str:
    """Reason of a run that a signal ended at once; an evaluation logs no step before its end."""
    if config.method.kind == "prompted" or stop.has_logged():
        return "stopped in the middle of a step"
    if folder.metrics.exists() and folder.metrics.stat().st_size > 0:
        return "stopped before this attempt had done a step"
    return "stopped before the first step; the same command starts it again"


def _end(folder: RunFolder, state: State, reason: str | None, *, refused: int | None = None) -> int:
    """Record the end of a run; returns the exit status.

    Args:
        folder: The run.
        state: The state in which it ends.
        reason: Why, for people.
        refused: Number of an attempt that was refused before it began.
    """
    try:
        before = folder.read_status()
        failures = before.failures
        if refused is not None:
            # A launcher ignores the status of another attempt, and would report that this end could
            # not be recorded.
            before = before.model_copy(update={"attempt": refused})
        elif state is State.FAILED:
            # A sweep gives up after `max_failures` failures. A refusal does not count: with other
            # code or settings, the run starts again without `retry`.
            failures += 1
        # The run was not RUNNING, so this attempt ends before it began: the reason why the last one
        # ended is kept.
        if state is State.FAILED and before.state is not State.RUNNING and before.reason:
            first = before.reason.partition(THEN)[0]
            # The run was killed and refused once: this refusal replaces that one.
            killed = first.startswith(NOT_RESUMED)
            reason = f"{NOT_RESUMED}{reason}" if killed else f"{first}{THEN}{reason}"
        elif refused is not None:
            reason = f"{NOT_RESUMED}{reason}"
        # The step of a run with damaged logs is left as it was.
        with contextlib.suppress(RecordError):
            before = before.model_copy(update={"step": _last_step(folder)})
        folder.write_status(
            before.model_copy(
                update={"state": state, "reason": reason, "failures": failures, "pid": None}
            )
        )
    except ScpoError as error:
        logger.error(
            "the run ended as %s (%s), which could not be recorded: %s", state, reason, error
        )
        if state is State.FAILED:
            notify_of_failure(folder.run_id, f"{reason}; not recorded: {error}")
        return EXIT_FAILED

    logger.info("%s: %s%s", folder.run_id, state, f" ({reason})" if reason else "")
    if state is State.FAILED:
        notify_of_failure(folder.run_id, reason)
    if state is State.DONE:
        _say_result(folder)
    return {State.DONE: EXIT_DONE, State.FAILED: EXIT_FAILED}.get(state, EXIT_INTERRUPTED)


def _say_result(folder: RunFolder) -> None:
    """Log the run's result and the path of its records."""
    for line in before_after(read_whole(folder, folder.metrics)):
        logger.info("%s", line)
    runs_dir = folder.path.parent
    report = "make report"
    if runs_dir.resolve() != Path("runs").resolve():
        report = command_on(runs_dir, "analysis report")
    logger.info("records: %s; curves and credit: %s", folder.path, report)


def _warn_of_other_code(folder: RunFolder, config: RunConfig) -> None:
    """Warn that a finished run keeps its numbers, although its code has changed since."""
    changed = [*code_record.changed_files(folder, config), *changed_weights(folder, config)]
    if changed:
        logger.warning(
            "what gave its numbers has changed since: %s. To run it again: `%s` first",
            code_record.shown_files(changed),
            command_on(folder.path.parent, "sweeps rm --finished", folder.run_id),
        )


def _last_step(folder: RunFolder) -> int:
    """Last logged step. Verifies all lines of both logs, so that a damaged run cannot end DONE."""
    read_whole(folder, folder.timing)
    lines = read_whole(folder, folder.metrics)
    return int(lines[-1]["step"]) if lines else 0


def _one_line(error: Exception, config: RunConfig | None = None) -> str:
    """Type and first line of an error; with ``config``, also the part of the run that raised it."""
    lines = str(error).strip().splitlines()
    name = type(error).__name__
    text = f"{name}: {lines[0]}" if lines else name
    # `KeyError: 'x'` does not show that an estimator of another package raised it.
    part = None
    if config is not None and not isinstance(error, ScpoError):
        part = failed_part(error, config)
    text = f"{text} (in {part})" if part else text
    # A search looks for it in the reason. Errors of libraries may name it in a later line only.
    full = no_space(error)
    if full is not None and no_space_in(text) is None:
        text += f": {os.strerror(full.errno or 0)}"
    return text


@contextmanager
def _copy_of_log(folder: RunFolder, attempt: int) -> Iterator[None]:
    """Also write the log to the attempt's folder, for a run in a terminal without a launcher."""
    handler = _LogCopy(folder.attempt_log(attempt))
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        # Closing writes the rest of the buffer.
        with contextlib.suppress(OSError):
            handler.close()


class _LogCopy(logging.FileHandler):
    """Handler that ignores errors such as a full disk: every line is also on the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
