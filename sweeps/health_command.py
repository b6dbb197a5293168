"""``python -m sweeps health``: replay the rules of conf/health.yaml on runs, finished ones too."""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.tracking import RunFolder, State
from scpo.tracking.health import RULES, Remark, examine, read_rules, stalled
from scpo.tracking.whole_logs import read_whole
from sweeps.terminal import say, say_error


def remarks_of(folder: RunFolder, *, live: bool, rules: Path = RULES) -> list[Remark]:
    """What the rules say of a run now; RecordError if its logs are damaged."""
    read = read_rules(rules)
    found = examine(read_whole(folder, folder.metrics), read)
    return found + (stalled(read_whole(folder, folder.timing), datetime.now(UTC), read) if live else [])


def show_health(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> bool:
    """One line for each remark; True if there is none."""
    if not arguments.rules.is_file():
        raise ConfigError(f"--rules {arguments.rules}: there is no such file; {RULES} is one to copy")
    told: dict[str, list[Remark]] = {}
    for folder in folders:
        try:
            live = folder.read_status().state is State.RUNNING
            told[folder.run_id] = remarks_of(folder, live=live, rules=arguments.rules)
        except RecordError as error:
            say_error(console, str(error))
    if arguments.json:
        console.print_json(json.dumps({name: [vars(one) for one in remarks] for name, remarks in told.items()}))
    else:
        for name, remarks in told.items():
            for one in remarks:
                say(console, f"{name}: {one.level}: {one}")
        marked = sum(map(bool, told.values()))
        say(console, f"{counted(len(told), 'run')} looked at, {marked} with remarks ({arguments.rules.name})")
    return not any(told.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments, beside the patterns."""
    parser.add_argument("--rules", type=Path, default=RULES, help="another file of rules (default: conf/health.yaml)")
    parser.add_argument("--json", action="store_true", help="for programs")
