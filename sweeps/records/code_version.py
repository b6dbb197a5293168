"""Which code runs: a hash of each of its files, so that a run is resumed by the code that began it and by no other.

A commit says less: one that fixes a typo in a text changes no number, an uncommitted edit of an estimator does, and
some checkouts have no git. ``conf/`` is left out, since a run keeps its whole configuration, and so is slurm/site.yaml.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scpo.checksums import text_sum
from scpo.errors import ConfigError
from scpo.tracking import RunFolder
from scpo.tracking.atomic import write_json
from scpo.tracking.records import read_record
from sweeps.records import provenance

FILE = "code.json"  # in the run folder: the code that wrote its steps
PARTS = ("scpo", "sweeps", "train.py")
ENDINGS = (".py", ".yaml")  # all that these folders hold, and nothing that a tool leaves beside it
SHOWN = 6


class CodeRecord(BaseModel):
    """code.json: path -> hash of its content."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, str]


def code_files() -> dict[str, str]:
    """Path -> hash of each file of the code that runs; the same in a checkout, a copy of it and a job's snapshot."""
    return {name: text_sum(path.read_bytes()) for name, path in sorted(_paths(provenance.REPOSITORY))}


def _paths(root: Path) -> Iterator[tuple[str, Path]]:
    for part in PARTS:
        found = [root / part] if (root / part).is_file() else (root / part).rglob("*")
        yield from ((str(path.relative_to(root)), path) for path in found if path.suffix in ENDINGS and path.is_file())


def check_resume(folder: RunFolder, *, across: bool, commits: tuple[str | None, str | None]) -> None:
    """Refuse to go on from a checkpoint of other code; note which code goes on.

    Steps of two versions of the code in one curve would be nobody's result.

    Args:
        folder: The run.
        across: ``machine.resume_across_versions``: go on all the same.
        commits: Under which the run stopped, and now: all that older runs have noted.

    Raises:
        ConfigError: The code has changed; the message names the files.
    """
    path, now = folder.path / FILE, code_files()
    checkpoints = folder.complete_checkpoints()
    if checkpoints and not across:
        if path.exists():
            before = read_record(path, CodeRecord, "record of the code").files
            differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        else:
            differing = [] if commits[0] == commits[1] else [f"commit {commits[0]}, now {commits[1]}"]
        if differing:
            raise ConfigError(
                f"{folder.run_id} stopped at step {checkpoints[-1]} under other code. Changed since: "
                f"{_some(differing)}. Restore {'it' if len(differing) == 1 else 'them'} (the run began under commit "
                f"{commits[0]}), or add machine.resume_across_versions=true, or delete {folder.path} to start again"
            )
    write_json(path, CodeRecord(files=now).model_dump())


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
