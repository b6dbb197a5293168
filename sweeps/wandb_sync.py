"""``python -m sweeps sync``: push what offline runs wrote for Weights & Biases, each once."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError
from scpo.tracking import RunFolder
from sweeps.terminal import say, say_error

Push = Callable[[Path], tuple[bool, str]]


def push(offline: Path) -> tuple[bool, str]:
    """Hand one offline folder to ``wandb sync``: whether that worked, and the last thing it said."""
    command = [sys.executable, "-m", "wandb", "sync", str(offline)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return done.returncode == 0, said[-1] if said else f"exit status {done.returncode}"


def check_key(command: str) -> None:
    """Refuse what W&B would refuse later, in more words."""
    if "WANDB_API_KEY" not in os.environ and not (Path.home() / ".netrc").exists():
        raise ConfigError(f"{command}: there is no key for W&B; `wandb login` once, or set WANDB_API_KEY")


def sync(console: Console, folders: Sequence[RunFolder], push_one: Push = push) -> bool:
    """Push every offline folder that was not pushed yet; True if all went through."""
    found = [(folder, path) for folder in folders for path in sorted(folder.path.glob("wandb/offline-run-*"))]
    if not found:
        say(console, f"{len(folders)} runs, none with an offline W&B folder (wandb.mode=offline writes them)")
        return True
    if push_one is push:
        check_key("sync")
    failed = 0
    for folder, path in found:
        if list(path.glob("*.synced")):
            say(console, f"{folder.run_id}: synced before")
            continue
        worked, said = push_one(path)
        failed += not worked
        (say if worked else say_error)(console, f"{folder.run_id}: {said}")
    say(console, f"{len(found)} offline folders, {failed} could not be synced")
    return not failed
