"""Errors of the project. Each says what was wrong, what was got, what is allowed and how to fix it.

Every class is also the standard-library exception a caller would expect, so that ``except ValueError`` keeps working.
"""


class ScpoError(Exception):
    """Base of every error that scpo raises on purpose."""


class ConfigError(ScpoError, ValueError):
    """A configuration that cannot be used: unknown name, misspelt key, value out of range, impossible combination."""


class StepBatchError(ScpoError, ValueError):
    """A batch that breaks the data contract; the message names the offending row."""


class ContractError(ScpoError, AssertionError):
    """An estimator, or a trainer's way from advantages to tokens, that breaks a law; the message names law and row."""


class ScorerError(ScpoError, RuntimeError):
    """A scorer that cannot be loaded or that answered with something other than similarities in [0, 1]."""


class ScorerUnavailable(ScorerError):
    """A scorer that keeps failing where the configuration says to go on without shaping."""


class GameError(ScpoError, ValueError):
    """A game file that is missing, corrupt or of another format."""


class CatalogueError(ScpoError, ValueError):
    """Catalogue files that are missing, corrupt or of another format, or a goal that a catalogue does not hold."""


class PanelError(ScpoError, ValueError):
    """A panel that cannot be built, or that is not the one a run was started with."""


class EnvironmentFailure(ScpoError, RuntimeError):
    """An environment that kept failing after the retries its failure policy allows."""


class RolloutError(ScpoError, RuntimeError):
    """A rollout that lost episodes or steps, or that no longer answers; nothing is trained on what is left of it."""


class ChatError(ScpoError, RuntimeError):
    """A chat endpoint that refused a request, or gave no usable answer after the attempts that are allowed."""


class RecordError(ScpoError, ValueError):
    """A run record that cannot be read or belongs to another configuration."""


class RecordWriteError(ScpoError, OSError):
    """A record that could not be written (disk full, no permission); the previous version is intact."""


def first_line(error: BaseException) -> str:
    """What an error says, without the lines on which libraries quote the place; the name of one that says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
