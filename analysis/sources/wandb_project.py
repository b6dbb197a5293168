"""Download the runs of a W&B project once, with all steps, and then read the local copy.

The copy of a run is a folder ``<cache>/<entity>/<project>/<run>/`` with ``run.json`` and
``history.jsonl``. If the project has a copy, no network is used, except with ``refresh``, which
asks W&B again and downloads the runs that have changed.
"""

import contextlib
import importlib.util
import json
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from analysis.sources import verl_agent_logs
from analysis.sources.configurations import leaves, setting_of
from analysis.sources.run_records import Problem, Run, RunHead, noted
from scpo.errors import RecordError, ScpoError, first_line
from scpo.installed import install_command
from scpo.records.files import (
    FileSum,
    RunningSum,
    change,
    first_complaint,
    read_record,
    write_bytes,
    write_json,
)
from scpo.records.identity import read_configuration
from scpo.records.status import State
from scpo.records.wandb_address import set_up
from scpo.records.wandb_mirror import misnamed, with_floats

logger = logging.getLogger(__name__)

# Files of a run's copy: the run as W&B lists it, and its metrics with one line per step.
HEAD, HISTORY = "run.json", "history.jsonl"

# Allowed names of entities and projects and ids of runs. They become names of folders, and a server
# may send anything.
SAFE = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,128}")

# Number of runs in one answer of the server.
RUNS_A_PAGE = 50

# File with the ids of a project's runs. It is written last, so a copy without it is incomplete.
LISTED = "project.json"

# A project as ``scpo.load_runs`` takes it, or its address in a browser.
ADDRESS = re.compile(r"(?:wandb:|https?://(?:www\.)?wandb\.ai/)([^/\s]+/[^/\s]+)/?")


class IncompleteReadError(ScpoError, EOFError):
    """W&B's answer did not contain the whole history of a run."""


@dataclass(frozen=True)
class Settings:
    """Settings of reading W&B projects.

    Attributes:
        cache: Folder of local copies.
        refresh: Ask W&B even if there is a copy.
        timeout_s: Time limit for one answer, in seconds.
        attempts: Largest number of attempts at each request.
        first_wait_s: Seconds between the first two attempts; doubled after each further one.
        page: Number of steps in one answer.
    """

    cache: Path = Path(".cache/scpo/wandb")
    refresh: bool = False
    timeout_s: float = 30.0
    attempts: int = 4
    first_wait_s: float = 1.0
    page: int = 500


def project_name(text: str) -> str:
    """``entity/project`` of ``wandb:entity/project`` or of an address; any other text as it is."""
    address = ADDRESS.fullmatch(text)
    return address[1] if address else text


def safe_name(name: str) -> str:
    """Return the id of a run unchanged; ValueError if no folder may have this name."""
    if not SAFE.fullmatch(name):
        raise ValueError(
            f"{name[:60]!r} is not the id of a run: "
            "W&B's have at most 128 letters, digits and _ . -"
        )
    return name


class _ListedRun(BaseModel):
    """A run as W&B lists it. ``last_step`` is -1 for a run that has logged nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[str, AfterValidator(safe_name)]
    state: str
    last_step: Annotated[int, Field(ge=-1, lt=1 << 53)]
    config: dict[str, Any]


class Download(_ListedRun):
    """Local copy of a run, without its history, which is a file in ``folder``."""

    folder: Path


class _Copy(_ListedRun):
    """``run.json``: the listed run with the checksum of its history."""

    history: FileSum


class _Listed(BaseModel):
    """``project.json``: ids of the project's runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str
    runs: list[Annotated[str, AfterValidator(safe_name)]]


def read_project(name: str, settings: Settings) -> tuple[tuple[Download, ...], tuple[Problem, ...]]:
    """Read the runs of ``entity/project``.

    A local copy is used, if there is one, unless ``settings.refresh`` is set. With ``refresh``, it
    is used only if W&B cannot be read.

    Returns:
        The copies of the runs, and problems with runs that could not be read.

    Raises:
        RecordError: The name is not ``entity/project``, the list of the copy's runs is damaged, or
            there is no copy and W&B cannot be read (wandb is not installed, the key is wrong, or
            there is no connection).
    """
    parts = name.split("/")
    if len(parts) != 2 or not all(map(SAFE.fullmatch, parts)):
        raise RecordError(
            f"{name!r} is not a W&B project: expected entity/project, e.g. my-team/scpo"
        )
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
    """Read the copies of a project's runs; damaged ones become problems."""
    listed = read_record(folder / LISTED, _Listed, "list of a project's runs", _again(folder))
    downloads: list[Download] = []
    problems: list[Problem] = []
    for run in listed.runs:
        with noted(problems, f"{listed.project}/{run}"):
            downloads.append(_copy(folder / run))
    return tuple(downloads), tuple(problems)


def _copy(folder: Path) -> Download:
    """Read the copy of a run; RecordError if it is missing or damaged."""
    head = read_record(folder / HEAD, _Copy, "copy of a run", _again(folder))
    if damage := change(folder / HISTORY, head.history, whole=True):
        raise RecordError(f"{folder / HISTORY} {damage}. {_again(folder)}")
    return Download(**head.model_dump(exclude={"history"}), folder=folder)


def _again(folder: Path) -> str:
    """How to replace a damaged copy, for error messages."""
    return f"Delete {folder} and give the command again with --refresh"


def run_of(download: Download, project: str) -> Run:
    """The run of a local copy, which a trainer of this project or verl-agent has logged.

    Raises:
        RecordError: The configuration is neither ours nor verl-agent's, or that of another run.
    """
    if verl_agent_logs.is_verl_agent(download.config):
        run = _verl_agent_run(download, project)
        planned = verl_agent_logs.steps_of(run.config)
    else:
        run = _own_run(download, project)
        planned = run.config.get("trainer", {}).get("steps")

    # verl's processes often crash at exit, after the last step, and W&B then lists a crashed run.
    if planned and download.last_step >= planned:
        return replace(run, state=State.DONE)
    return run


def _own_run(download: Download, project: str) -> Run:
    run_id, stored, commit = read_configuration(download.config, download.id)
    config = with_floats(stored)
    try:
        head = RunHead.model_validate(config)
    except ValidationError as error:
        raise _unknown_configuration(run_id, first_complaint(error)) from error
    if reason := misnamed(download.config, download.id):
        raise RecordError(f"W&B run {download.id} is not the run that its id names: {reason}")
    return Run(
        id=run_id,
        folder=download.folder,
        head=head,
        config=config,
        # Panels are not uploaded, so they are not part of the setting.
        setting=setting_of(config, {}),
        state=_state_of(download),
        step=download.last_step,
        commit=commit,
        logs=(HISTORY,),
        project=project,
    )


def _verl_agent_run(download: Download, project: str) -> Run:
    try:
        head = RunHead.model_validate(verl_agent_logs.head_of(download.config))
    except ValidationError as error:
        raise _unknown_configuration(download.id, first_complaint(error)) from error
    except KeyError as error:
        raise _unknown_configuration(download.id, f"no {error.args[0]}") from error
    return Run(
        id=download.id,
        folder=download.folder,
        head=head,
        config=download.config,
        setting=verl_agent_logs.setting_of(download.config),
        state=_state_of(download),
        step=download.last_step,
        commit=None,
        logs=(HISTORY,),
        foreign=True,
        project=project,
    )


def _unknown_configuration(run_id: str, what: str) -> RecordError:
    return RecordError(
        f"W&B run {run_id} has a configuration that is neither scpo's nor verl-agent's ({what})"
    )


def _state_of(download: Download) -> str:
    return State.DONE if download.state == "finished" else download.state.upper()


# Downloading


def _download(name: str, folder: Path, settings: Settings) -> tuple[Problem, ...]:
    """Download new and changed runs; returns a problem for each invalid entry of W&B's list."""
    if importlib.util.find_spec("wandb") is None:
        raise RecordError(f"reading W&B projects needs wandb: {install_command('track')}")
    api = _attempt("log in to W&B", lambda: _api(settings), settings)
    runs = _attempt(
        f"list the runs of {name}",
        lambda: list(api.runs(name, per_page=RUNS_A_PAGE, lazy=False)),
        settings,
    )
    ids = []
    problems = []
    for run in runs:
        try:
            listed = _ListedRun(
                id=run.id,
                state=run.state,
                last_step=run.lastHistoryStep,
                config=dict(run.config),
            )
        except (ValidationError, TypeError, ValueError, AttributeError) as error:
            what = first_complaint(error) if isinstance(error, ValidationError) else str(error)
            problems.append(Problem(name, f"W&B lists a run with invalid values ({what})"))
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
    """Create wandb's API with our limits on retries.

    By default, wandb's service process repeats failed requests for minutes.
    """
    import wandb

    longest_wait_s = settings.first_wait_s * 2**settings.attempts

    set_up(wandb)
    service = wandb.setup().settings
    service.x_graphql_retry_max = settings.attempts - 1
    # Rounded up: the setting takes whole seconds, and 0 would become wandb's default of two.
    service.x_graphql_retry_wait_min_seconds = math.ceil(settings.first_wait_s)
    service.x_graphql_retry_wait_max_seconds = math.ceil(longest_wait_s)
    service.x_graphql_timeout_seconds = settings.timeout_s
    return wandb.Api(timeout=round(settings.attempts * (settings.timeout_s + longest_wait_s)))


def _save(run: Any, listed: _ListedRun, folder: Path, settings: Settings) -> None:
    """Download a run, unless an undamaged copy equals W&B's list in state, last step and config.

    ``run.json``, with the checksum of the history, is written last.
    """
    with contextlib.suppress(RecordError):
        if _copy(folder) == Download(**listed.model_dump(), folder=folder):
            return
    rows = []
    if listed.last_step >= 0:
        # scan_history returns every step; `history` returns a sample.
        rows = list(run.scan_history(page_size=settings.page, use_cache=False))
    if not all(isinstance(row, dict) and type(row.get("_step")) is int for row in rows):
        raise RecordError(
            f"W&B run {listed.id} has a history without steps; nothing was kept of it"
        )

    _check_whole([row["_step"] for row in rows], listed.last_step)
    lines = ({"step": row["_step"], **flat(row)} for row in rows)
    history = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    write_bytes(folder / HISTORY, history, readable=True)
    checksum = RunningSum.of(history).now().model_dump()
    write_json(folder / HEAD, {**listed.model_dump(), "history": checksum})


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a line of the history, without W&B's own keys (``_step``, ...).

    Names of nested metrics are joined by dots; empty mappings are dropped.
    """
    logged = {key: value for key, value in line.items() if not key.startswith("_")}
    return {key: value for key, value in leaves(logged) if value != {}}


def _check_whole(steps: list[int], last_step: int) -> None:
    """Raise IncompleteReadError unless the steps increase and end at ``last_step``.

    ``last_step`` is -1 for a run without steps.
    """
    last = steps[-1] if steps else -1
    if steps != sorted(set(steps)) or last != last_step:
        raise IncompleteReadError(
            f"{len(steps)} steps came, out of order or not up to step {last_step}"
        )


def _attempt(what: str, act: Callable[[], Any], settings: Settings) -> Any:
    """Call ``act``, up to ``settings.attempts`` times if W&B's answer is cut short.

    Requests that W&B rejects (a wrong key, an unknown project) are not repeated.

    Args:
        what: The request, for the message: "cannot <what>".
        act: Sends the request and returns the answer.
        settings: Number of attempts and the wait between them.

    Raises:
        RecordError: The request was rejected, or every attempt failed.
    """
    from wandb.errors import AuthenticationError, CommError, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    wait_s = settings.first_wait_s
    for attempts_left in reversed(range(settings.attempts)):
        try:
            return act()
        except (AuthenticationError, UsageError) as error:
            fix = "Check WANDB_API_KEY (or run `wandb login`) and the connection"
            raise RecordError(f"cannot {what}: {first_line(error).rstrip('.')}. {fix}.") from error
        except (CommError, WandbApiFailedError, IncompleteReadError, ValueError) as error:
            cut_short = isinstance(error, IncompleteReadError) or "EOF" in str(error)
            if attempts_left == 0 or not cut_short:
                raise RecordError(
                    f"cannot {what}: {first_line(error).rstrip('.')}. "
                    "Check the name and the connection."
                ) from error
        except (AttributeError, LookupError, TypeError) as error:
            # wandb raises these if the server's JSON has an unexpected form.
            raise RecordError(
                f"cannot {what}: its server did not answer as W&B does ({type(error).__name__}: "
                f"{first_line(error)}). Check WANDB_BASE_URL and the name."
            ) from error
        time.sleep(wait_s)
        wait_s *= 2

    raise AssertionError("unreachable")
