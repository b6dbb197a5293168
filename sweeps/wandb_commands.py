"""Commands for Weights & Biases.

``python -m sweeps sync`` pushes offline runs, each once. ``python -m sweeps view ENTITY/PROJECT``
saves a view of a project: curves of success, credit, health and speed, as mean and standard
deviation over the runs of a group.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from scpo.errors import ConfigError, UnreadableError, first_line
from scpo.installed import install_command
from scpo.progress import counted
from scpo.records import RunFolder
from scpo.records.files import check_readable
from scpo.records.health import read_rules
from scpo.records.redaction import redact
from scpo.records.wandb_address import use_address
from sweeps.doctor.services import has_any_wandb_key, wandb_url, why_unreachable
from sweeps.terminal import say, say_error

NAME = "SCPO overview"
SUCCESS = (
    "train/success_rate",
    "val/valid_seen/success_rate",
    "val/valid_unseen/success_rate",
    "val/test/success_rate",
)
CREDIT = (
    "credit/steps",
    "credit/aux_mean",
    "credit/effective",
    "credit/active_groups",
    "credit/precision",
)
SPEED = ("timing_s/step",)
PINNED = (
    "val/valid_seen/success_rate",
    "val/valid_unseen/success_rate",
    "train/success_rate",
    "credit/steps",
)

# Maximum number of groups in a plot; a study has more rows than W&B's default of ten.
MOST_GROUPS = 50
# Seconds after which a push is given up: W&B repeats its requests for hours.
PUSH_S = 900
# Pushes one offline folder; returns success and a message.
Push = Callable[[Path], tuple[bool, str]]


def push(offline: Path) -> tuple[bool, str]:
    """Push one offline folder with ``wandb sync``; returns success and its last output line.

    A push that takes longer than ``PUSH_S`` is stopped; the next call sends the folder again.
    """
    command = [sys.executable, "-m", "wandb", "sync", str(offline.resolve())]
    # wandb writes logs of its own into the working directory: make that the run's folder.
    of_run = offline.parents[1]
    try:
        done = subprocess.run(
            command,
            cwd=of_run,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=PUSH_S,
        )
    except subprocess.TimeoutExpired:
        return False, f"W&B took longer than {PUSH_S} s; the same command sends it again"
    output = (done.stdout + done.stderr).splitlines()
    lines = [line.strip() for line in output if line.strip()]
    message = redact(lines[-1]) if lines else f"exit status {done.returncode}"
    return done.returncode == 0, message


def check_server(command: str) -> None:
    """Raise ConfigError if the key for W&B is missing or its server cannot be reached.

    W&B itself fails with a longer message, or silently repeats its requests for hours.
    """
    if not has_any_wandb_key():
        raise ConfigError(
            f"{command}: there is no key for W&B; `wandb login` once, or set WANDB_API_KEY"
        )
    url = wandb_url()
    # wandb prints the address that it uses: make that the one without a password.
    use_address(url)
    if unreachable := why_unreachable(url):
        raise ConfigError(
            f"{command}: {url} does not answer: {unreachable}. Nothing was sent; give the same "
            "command where the server can be reached, or name a proxy (HTTPS_PROXY)"
        )


def sync(console: Console, folders: Sequence[RunFolder], push_one: Push = push) -> bool:
    """Push every offline folder that was not pushed yet; True if all succeeded.

    False also if a run may not be read, because it may have such folders.
    """
    offline = []
    all_read = True
    for folder in folders:
        # `glob` finds nothing in a folder that may not be read.
        try:
            check_readable(folder.path)
        except UnreadableError as error:
            all_read = False
            say_error(console, f"{folder.run_id}: {error}")
        for path in sorted(folder.path.glob("wandb/offline-run-*")):
            offline.append((folder, path))
    if not offline:
        say(
            console,
            f"{counted(len(folders), 'run')}, none with an offline W&B folder "
            "(wandb.mode=offline writes them)",
        )
        return all_read
    # Another ``push_one`` (of a test) sends nothing to W&B.
    if push_one is push:
        check_server("sync")
    failed = 0
    for folder, path in offline:
        # `wandb sync` leaves a file *.synced in a folder that it has pushed.
        if list(path.glob("*.synced")):
            say(console, f"{folder.run_id}: synced before")
            continue
        say(console, f"{folder.run_id}: sending {path.name}")
        worked, message = push_one(path)
        if worked:
            say(console, f"{folder.run_id}: {message}")
        else:
            failed += 1
            say_error(console, f"{folder.run_id}: {message}")

    say(console, f"{counted(len(offline), 'offline folder')}, {failed} could not be synced")
    return all_read and not failed


def add_view_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``view``."""
    parser.add_argument(
        "project", metavar="ENTITY/PROJECT", help="where the runs are mirrored to (wandb.project)"
    )
    parser.add_argument("--name", default=NAME, help=f"what the view is called (default: {NAME})")
    parser.set_defaults(run=save_view)


def save_view(console: Console, arguments: argparse.Namespace) -> int:
    """Save a new view of a W&B project: success, credit and health, averaged over seeds.

    Raises:
        ConfigError: A package, a key or the project's entity is missing, or W&B refused.
    """
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", arguments.project):
        raise ConfigError(
            f"view {arguments.project}: give ENTITY/PROJECT, as in the address of the project's "
            "page"
        )

    check_server("view")
    entity, project = arguments.project.split("/")
    view = overview(entity, project, arguments.name)
    try:
        view.save()
    except Exception as error:
        # wandb's dozen error classes have no common base; the first line names the cause.
        raise ConfigError(
            f"view {arguments.project}: W&B did not save it: {first_line(error)}"
        ) from error

    say(console, f"{arguments.name}: {view.url}")
    return 0


def overview(entity: str, project: str, name: str = NAME) -> Any:
    """Build the view as an object of wandb-workspaces; nothing is sent.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        # Imported by name, because mypy rejects a plain import of modules without __all__.
        panels: Any = import_module("wandb_workspaces.reports.v2")
        views: Any = import_module("wandb_workspaces.workspaces")
    except ImportError as error:
        raise ConfigError(f"view: {error}; {install_command('track')} adds what it needs") from None

    metrics_by_title = {
        "Success": SUCCESS,
        "Credit": CREDIT,
        "Health": health_metrics(),
        "Speed": SPEED,
    }
    sections = []
    for title, metrics in metrics_by_title.items():
        plots = []
        for metric in metrics:
            plots.append(
                panels.LinePlot(
                    title=metric,
                    y=[metric],
                    groupby_aggfunc="mean",
                    groupby_rangefunc="stddev",
                    max_runs_to_show=MOST_GROUPS,
                )
            )
        sections.append(views.Section(name=title, panels=plots, is_open=True))
    return views.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=views.WorkspaceSettings(max_runs=MOST_GROUPS),
        runset_settings=views.RunsetSettings(
            groupby=[views.Metric("Group")],
            pinned_columns=[f"summary:{metric}" for metric in PINNED],
        ),
    )


def health_metrics() -> tuple[str, ...]:
    """Metrics that conf/health.yaml examines and that the other sections do not show."""
    shown = {*SUCCESS, *CREDIT, *SPEED}
    # Each once, although a metric may have several rules; in the order of the file.
    metrics: dict[str, None] = {}
    for rule in read_rules().values():
        # The rule of a stall has no metric.
        metric = getattr(rule, "metric", None)
        # W&B cannot plot a pattern with *.
        if metric is not None and "*" not in metric and metric not in shown:
            metrics[metric] = None
    return tuple(metrics)
