"""Runs of a W&B project: downloaded once, whole and unsampled, and read from the local copy ever after.

A copy is a folder a run, ``<cache>/<entity>/<project>/<run>/`` with ``run.json`` and
``history.jsonl``. A build that finds a copy asks nobody; ``refresh`` asks W&B again and downloads
the runs that went on since.
"""

import contextlib
import importlib.util
import json
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from scpo.errors import RecordError, ScpoError, first_line
from scpo.records.files import (
    FileSum,
    RunningSum,
    change,
    first_complaint,
    read_record,
    write_bytes,
    write_json,
)

from analysis.sources.run_records import Problem, noted
from analysis.sources.transaction_log import flat

logger = logging.getLogger(__name__)

HEAD, HISTORY = "run.json", "history.jsonl"
SAFE = re.compile(
    r"(?!\.+$)[A-Za-z0-9_.-]{1,128}"
)  # of a name that becomes a folder: a server may say anything
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


def safe_name(name: str) -> str:
    """The name as it is; ValueError for one that may not become a folder."""
    if not SAFE.fullmatch(name):
        raise ValueError(
            f"{name[:60]!r} is no name of a run: W&B's have at most 128 letters, digits and _ . -"
        )
    return name


class _ListedRun(BaseModel):
    """What W&B says of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[str, AfterValidator(safe_name)]
    state: str
    last_step: Annotated[int, Field(ge=-1, lt=1 << 53)]
    config: dict[str, Any]


class Download(_ListedRun):
    """One run's local copy."""

    folder: Path


class _Copy(_ListedRun):
    """``run.json``: the same, with the checksum of what was downloaded."""

    history: FileSum


class _Listed(BaseModel):
    """``project.json``: the runs there were."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str
    runs: list[Annotated[str, AfterValidator(safe_name)]]


def read_project(name: str, settings: Settings) -> tuple[tuple[Download, ...], tuple[Problem, ...]]:
    """The runs of ``entity/project``, and what went wrong on the way.

    A copy that is there stands in when W&B cannot be reached.

    Raises:
        RecordError: The name is no project, the key is wrong, or W&B cannot be reached and there is
            no copy.
    """
    if len(parts := name.split("/")) != 2 or not all(map(SAFE.fullmatch, parts)):
        raise RecordError(f"{name!r} is no W&B project: expected entity/project, e.g. my-team/scpo")
    folder = settings.cache / parts[0] / parts[1]
    copied = (folder / LISTED).is_file()
    if copied and not settings.refresh:
        logger.info("W&B %s: local copy in %s; --refresh asks W&B again", name, folder)
        return _copies(folder)
    try:
        refused = _download(name, folder, settings)
    except RecordError as error:
        if not copied:
            raise
        downloads, problems = _copies(folder)
        return downloads, (*problems, Problem(name, f"{error} The local copy in {folder} is used."))
    downloads, problems = _copies(folder)
    return downloads, (*problems, *refused)


def _copies(folder: Path) -> tuple[tuple[Download, ...], tuple[Problem, ...]]:
    """Every copy that is whole, and what is wrong with the others."""
    listed = read_record(folder / LISTED, _Listed, "list of a project's runs", _again(folder))
    downloads: list[Download] = []
    problems: list[Problem] = []
    for run in listed.runs:
        with noted(problems, f"{listed.project}/{run}"):
            downloads.append(_copy(folder / run))
    return tuple(downloads), tuple(problems)


def _copy(folder: Path) -> Download:
    head = read_record(folder / HEAD, _Copy, "copy of a run", _again(folder))
    if damage := change(folder / HISTORY, head.history, whole=True):
        raise RecordError(f"{folder / HISTORY} {damage}. {_again(folder)}")
    return Download(**head.model_dump(exclude={"history"}), folder=folder)


def _again(folder: Path) -> str:
    return f"Delete {folder} and give the command again with --refresh"


def _download(name: str, folder: Path, settings: Settings) -> tuple[Problem, ...]:
    """Download what is not there yet; returns what W&B said that no run can be made of."""
    if importlib.util.find_spec("wandb") is None:
        raise RecordError("reading W&B projects needs wandb: pip install 'scpo[track]'")
    api = _attempt("log in to W&B", lambda: _api(settings), settings)
    runs = _attempt(
        f"list the runs of {name}",
        lambda: list(api.runs(name, per_page=RUNS_A_PAGE, lazy=False)),
        settings,
    )
    ids, problems = [], []
    for run in runs:
        try:
            listed = _ListedRun(
                id=run.id, state=run.state, last_step=run.lastHistoryStep, config=dict(run.config)
            )
        except (ValidationError, TypeError, ValueError, AttributeError) as error:
            what = first_complaint(error) if isinstance(error, ValidationError) else str(error)
            problems.append(Problem(name, f"W&B lists a run that can be none ({what}); left out"))
            continue
        _attempt(
            f"download run {listed.id} of {name}",
            partial(_save, run, listed, folder / listed.id, settings),
            settings,
        )
        ids.append(listed.id)
    write_json(folder / LISTED, {"project": name, "runs": ids})
    return tuple(problems)


def _api(settings: Settings) -> Any:
    """Wandb's own service process repeats what a server or the network spoils; it would do so for minutes.

    It waits whole seconds: of less than one it keeps nothing, and takes its own two.
    """
    import wandb

    service = wandb.setup().settings
    service.x_graphql_retry_max = settings.attempts - 1
    service.x_graphql_retry_wait_min_seconds = math.ceil(settings.first_wait_s)
    service.x_graphql_retry_wait_max_seconds = math.ceil(
        settings.first_wait_s * 2**settings.attempts
    )
    service.x_graphql_timeout_seconds = settings.timeout_s
    return wandb.Api(
        timeout=round(
            settings.attempts * (settings.timeout_s + settings.first_wait_s * 2**settings.attempts)
        )
    )


def _save(run: Any, listed: _ListedRun, folder: Path, settings: Settings) -> None:
    """Nothing to do for a run whose copy has all its steps; ``run.json`` comes last, so that it vouches for both."""
    with contextlib.suppress(RecordError):  # not there, or damaged: it is downloaded again
        if _copy(folder) == Download(**listed.model_dump(), folder=folder):
            return
    rows = (
        list(run.scan_history(page_size=settings.page, use_cache=False))
        if listed.last_step >= 0
        else []
    )
    if not all(isinstance(row, dict) and type(row.get("_step")) is int for row in rows):
        raise RecordError(
            f"W&B run {listed.id} has a history without steps; nothing was kept of it"
        )
    _check_whole([row["_step"] for row in rows], listed.last_step)
    lines = ({"step": row["_step"], **flat(row)} for row in rows)
    history = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    write_bytes(folder / HISTORY, history, readable=True)
    write_json(
        folder / HEAD, {**listed.model_dump(), "history": RunningSum.of(history).now().model_dump()}
    )


def _check_whole(steps: list[int], last_step: int) -> None:
    if steps != sorted(set(steps)) or (steps and steps[-1] != last_step):
        raise IncompleteReadError(
            f"{len(steps)} steps came, out of order or not up to step {last_step}"
        )


def _attempt(what: str, act: Callable[[], Any], settings: Settings) -> Any:
    """Do it, again after answers that were cut short; what W&B refuses is refused for good."""
    from wandb.errors import AuthenticationError, CommError, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    wait = settings.first_wait_s
    for left in reversed(range(settings.attempts)):
        try:
            return act()
        except (AuthenticationError, UsageError) as error:
            fix = "Check WANDB_API_KEY (or run `wandb login`) and the connection"
            raise RecordError(f"cannot {what}: {first_line(error).rstrip('.')}. {fix}.") from error
        except (CommError, WandbApiFailedError, IncompleteReadError, ValueError) as error:
            cut_short = isinstance(error, IncompleteReadError) or "EOF" in str(error)
            if left == 0 or not cut_short:
                raise RecordError(
                    f"cannot {what}: {first_line(error).rstrip('.')}. Check the name and the "
                    f"connection."
                ) from error
        except (
            AttributeError,
            LookupError,
            TypeError,
        ) as error:  # wandb's, about JSON of another form
            raise RecordError(
                f"cannot {what}: its server did not answer as W&B does ({type(error).__name__}: "
                f"{first_line(error)}). Check WANDB_BASE_URL and the name."
            ) from error
        time.sleep(wait)
        wait *= 2
    raise AssertionError("unreachable")
