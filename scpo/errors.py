"""Errors of the project: what was wrong, the value, what is allowed and how to fix it.

Every class also derives from the standard exception that a caller would expect, so that
``except ValueError`` keeps working.
"""

import errno
import os


class ScpoError(Exception):
    """Base of every error that scpo raises on purpose."""


class ConfigError(ScpoError, ValueError):
    """Invalid configuration: unknown name or key, value out of range, impossible combination."""


class StepBatchError(ScpoError, ValueError):
    """A batch that breaks the data contract; the message names the offending row."""


class ContractError(ScpoError, AssertionError):
    """Contract that an estimator, matcher, scorer or trainer violates; names law and place."""


class ScorerError(ScpoError, RuntimeError):
    """Scorer that cannot be loaded, or whose results are not similarities in [0, 1]."""


class ScorerUnavailable(ScorerError):
    """Scorer that keeps failing where the configuration allows training without shaping."""


class GameError(ScpoError, ValueError):
    """A game file that is missing, corrupt or of another format."""


class CatalogueError(ScpoError, ValueError):
    """Catalogue files that are missing, corrupt or of another format, or an unknown goal."""


class PanelError(ScpoError, ValueError):
    """A panel that cannot be built, or that is not the one a run was started with."""


class EnvironmentFailure(ScpoError, RuntimeError):
    """An environment that kept failing after the retries its failure policy allows."""


class RolloutError(ScpoError, RuntimeError):
    """Rollout that lost episodes or steps, or is stuck; nothing is trained on the remainder."""


class ChatError(ScpoError, RuntimeError):
    """Chat endpoint that rejected a request, or returned no usable answer after all retries."""


class RecordError(ScpoError, ValueError):
    """A run record that cannot be read or belongs to another configuration."""


class UnreadableError(RecordError):
    """A record or folder that this user has no permission to read; it may be undamaged."""


class MisnamedError(RecordError):
    """A folder or link under a run's name that does not hold that run."""


class RecordWriteError(ScpoError, OSError):
    """Record that could not be written (disk full, no permission); the previous one is intact."""


# Errnos of a full disk, a quota and a limit on the size of files (``ulimit -f``).
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

RAISE_FILE_LIMIT = "raise the limit on the size of files (`ulimit -f`)"


def no_space(error: BaseException) -> OSError | None:
    """The OSError of a full disk, quota or file-size limit that caused an error; None if none did.

    Trying again cannot help then, so callers do not count such an error as a failure to retry.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in FULL:
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def no_space_in(reason: str) -> int | None:
    """The errno of a full disk, quota or file-size limit that a recorded reason names, or None.

    For the reasons of other processes, of which only the text is kept.
    """
    return next((number for number in FULL if os.strerror(number) in reason), None)


def refuse_without_space(error: BaseException, what: str) -> None:
    """Raise RecordWriteError if a full disk, quota or file-size limit caused an error.

    Args:
        error: The error.
        what: What could not be done, for the message.
    """
    cause = no_space(error)
    if cause is None:
        return
    place = f" ({cause.filename})" if cause.filename else ""
    remedy = "make room there or in the folder of temporary files (TMPDIR)"
    if cause.errno == errno.EFBIG:
        remedy = RAISE_FILE_LIMIT
    raise RecordWriteError(
        cause.errno or 0,
        f"{what}: {cause.strerror}{place}; {remedy} and start the same command again",
    ) from error


def first_line(error: BaseException) -> str:
    """First informative line of an error's message, or the class name if the message is empty.

    Errors of libraries (transformers, sqlite) go on for many lines that a table or a log line
    cannot hold.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
