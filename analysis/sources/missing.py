"""What a builder says when there is nothing to build from."""

from collections.abc import Sequence

from analysis.sources.rows import Section
from scpo.errors import ScpoError

DEFAULT = "ablation"


class MissingRunsError(ScpoError, LookupError):
    """No finished run has what an output needs; ``command`` makes the runs."""

    def __init__(self, needed: str, command: str) -> None:
        super().__init__(f"no {needed}. Make them with:\n{command}")
        self.needed = needed
        self.command = command


def missing_runs(needed: str, parts: Sequence[Section], *experiments: str) -> MissingRunsError:
    """The error with the commands of these experiments; of none, of the recorded ones that are not finished.

    What W&B lacks (diagnostics are not sent there) only an experiment of ours can make.
    """
    recorded = [name for part in parts for name in part.sweeps]
    names = experiments or tuple(dict.fromkeys(recorded)) or (DEFAULT,)
    scale = f" scale={parts[0].scale}" if parts and parts[0].scale != "mini" else ""
    return MissingRunsError(needed, "\n".join(f"python sweep.py +experiment={name}{scale}" for name in names))
