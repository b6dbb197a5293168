"""Runs of a W&B project: downloaded once, whole and unsampled, and read from the local copy ever after.

A copy is a folder a run, ``<cache>/<entity>/<project>/<run>/`` with ``run.json`` and ``history.jsonl``. A build that
finds a copy asks nobody; ``refresh`` asks W&B again and downloads the runs that went on since.
"""

import importlib.util
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.sources.run_records import Problem
from analysis.sources.transaction_log import flat
from scpo.errors import RecordError, ScpoError
from scpo.tracking.atomic import write_bytes

logger = logging.getLogger(__name__)

HEAD, HISTORY = "run.json", "history.jsonl"
RUNS_A_PAGE = 50
LISTED = "project.json"  # written last: a copy without it was broken off


class IncompleteReadError(ScpoError, EOFError):
    """A history that came without its end."""


@dataclass(frozen=True)
class Settings:
    """How projects are read."""

    cache: Path = Path(".cache/scpo/wandb")
    refresh: bool = False
    timeout_s: float = 30.0  # for one answer
    attempts: int = 4
    first_wait_s: float = 1.0  # doubles with each attempt
    page: int = 500  # steps in one answer


@dataclass(frozen=True)
class Download:
    """One run's local copy."""

    id: str
    state: str
    last_step: int
    config: dict[str, Any]
    folder: Path
    log: str = HISTORY


def read_project(name: str, settings: Settings) -> tuple[tuple[Download, ...], tuple[Problem, ...]]:
    """The runs of ``entity/project``, and what went wrong on the way.

    A copy that is there stands in when W&B cannot be reached.

    Raises:
        RecordError: The name is no project, the key is wrong, or W&B cannot be reached and there is no copy.
    """
    if len(parts := name.split("/")) != 2 or not all(parts):
        raise RecordError(f"{name!r} is no W&B project: expected entity/project, e.g. my-team/scpo")
    folder = settings.cache / parts[0] / parts[1]
    copied = (folder / LISTED).is_file()
    if copied and not settings.refresh:
        logger.info("W&B %s: local copy in %s; --refresh asks W&B again", name, folder)
        return _copies(folder), ()
    try:
        _download(name, folder, settings)
    except RecordError as error:
        if not copied:
            raise
        return _copies(folder), (Problem(name, f"{error} The local copy in {folder} is used."),)
    return _copies(folder), ()


def _copies(folder: Path) -> tuple[Download, ...]:
    return tuple(_copy(folder / run) for run in json.loads((folder / LISTED).read_bytes())["runs"])


def _copy(folder: Path) -> Download:
    try:
        return Download(**json.loads((folder / HEAD).read_bytes()), folder=folder)
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(
            f"{folder / HEAD} is damaged ({error}). Delete {folder.parent} to download the project again."
        ) from error


def _download(name: str, folder: Path, settings: Settings) -> None:
    if importlib.util.find_spec("wandb") is None:
        raise RecordError("reading W&B projects needs wandb: pip install 'scpo[track]'")
    api = _attempt("log in to W&B", lambda: _api(settings), settings)
    runs = _attempt(
        f"list the runs of {name}", lambda: list(api.runs(name, per_page=RUNS_A_PAGE, lazy=False)), settings
    )
    for run in runs:
        save = partial(_save, run, folder / run.id, settings)
        _attempt(f"download run {run.id} of {name}", save, settings)
    listed = {"project": name, "runs": [run.id for run in runs]}
    write_bytes(folder / LISTED, json.dumps(listed, indent=1).encode(), readable=True)


def _api(settings: Settings) -> Any:
    """Wandb's own service process repeats what a server or the network spoils; it would do so for minutes."""
    import wandb

    service = wandb.setup().settings
    service.x_graphql_retry_max = settings.attempts - 1
    service.x_graphql_retry_wait_min_seconds = settings.first_wait_s
    service.x_graphql_retry_wait_max_seconds = settings.first_wait_s * 2**settings.attempts
    service.x_graphql_timeout_seconds = settings.timeout_s
    return wandb.Api(
        timeout=round(settings.attempts * (settings.timeout_s + settings.first_wait_s * 2**settings.attempts))
    )


def _save(run: Any, folder: Path, settings: Settings) -> None:
    """Nothing to do for a run whose copy has all its steps; ``run.json`` comes last, so that it vouches for both."""
    head = {"id": run.id, "state": run.state, "last_step": run.lastHistoryStep, "config": dict(run.config)}
    if (folder / HEAD).is_file() and _copy(folder) == Download(**head, folder=folder):
        return
    rows = list(run.scan_history(page_size=settings.page, use_cache=False)) if head["last_step"] >= 0 else []
    _check_whole([row["_step"] for row in rows], head["last_step"])
    lines = ({"step": row["_step"], **flat(row)} for row in rows)
    write_bytes(folder / HISTORY, "".join(f"{json.dumps(line)}\n" for line in lines).encode(), readable=True)
    write_bytes(folder / HEAD, json.dumps(head).encode(), readable=True)


def _check_whole(steps: list[int], last_step: int) -> None:
    if steps != sorted(set(steps)) or (steps and steps[-1] != last_step):
        raise IncompleteReadError(f"{len(steps)} steps came, out of order or not up to step {last_step}")


def _attempt(what: str, act: Callable[[], Any], settings: Settings) -> Any:
    """Do it, again after answers that were cut short; what W&B refuses is refused for good."""
    from wandb.errors import AuthenticationError, CommError, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    wait = settings.first_wait_s
    for left in reversed(range(settings.attempts)):
        try:
            return act()
        except (AuthenticationError, UsageError) as error:
            raise RecordError(
                f"cannot {what}: {_first_line(error)}. Check WANDB_API_KEY (or run `wandb login`) and the connection."
            ) from error
        except (CommError, WandbApiFailedError, IncompleteReadError, ValueError) as error:
            if left == 0 or not _cut_short(error):
                raise RecordError(f"cannot {what}: {_first_line(error)}. Check the name and the connection.") from error
        time.sleep(wait)
        wait *= 2
    raise AssertionError("unreachable")


def _cut_short(error: Exception) -> bool:
    return isinstance(error, IncompleteReadError) or "EOF" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
