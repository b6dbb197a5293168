"""Run or resume one run in this process.

    python train.py method=scpo seed=0 [key=value ...]     compose one run and run it here
    python train.py runs/<id>                              resume that run, as slots and jobs do
    python train.py --prepare key=value ...                only make its folder (verl, verl-agent)
    python train.py key=value ... --cfg job                print the whole configuration and stop

A whole experiment: python sweep.py +experiment=<name>
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from scpo.start import explain_wrong_start

if wrong := explain_wrong_start():
    sys.exit(f"error: {wrong}")

import yaml

from scpo.errors import ConfigError, ScpoError
from scpo.records import RunFolder, State, run_config
from scpo.records.identity import run_id
from scpo.records.redaction import redact_texts
from scpo.records.run_folders import RUNS_DIR, command_on
from scpo.schema.run import RunConfig
from sweeps.compose.configuration import compose_run
from sweeps.compose.hints import explain_flag, explain_launcher
from sweeps.compose.overrides import options, parse_all, replaced
from sweeps.records import attempt as entry
from sweeps.records.process import EXIT_BAD_CONFIG, EXIT_DONE, LOG_FORMAT
from sweeps.start_checks import refuse_what_cannot_start
from sweeps.terminal import complaint, replace_what_cannot_be_printed


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """Import the trainer, and with it torch, only once the run is ours and its threads are set."""
    from scpo.trainers import train as run_training

    run_training(config, folder, should_stop)


def open_ahead(config: RunConfig) -> None:
    """Import and open shared objects of this and similar runs, in a process to fork them from."""
    from scpo.trainers.local import trainer

    trainer.open_ahead(config)


def open_run(what: list[str], *, prepare: bool = False) -> RunFolder:
    """The run folder that is named, or that the overrides describe.

    With ``prepare``, it may be for another machine, and what this one lacks does not matter.
    """
    if len(what) == 1 and "=" not in what[0]:
        path = Path(what[0])
        if what[0] and path.name in ("", ".."):
            # `.` in a run folder: the run is known by its folder's name.
            path = path.resolve()
        folder = RunFolder(path)
        if not folder.status.exists():
            refuse_bare_word(what[0])
        run_config.check(folder)
        return folder
    if why := explain_launcher(what):
        raise ConfigError(why)
    for remark in replaced(parse_all(what)):
        logging.getLogger("train").warning("%s", remark)
    config = compose_run(what)
    if not prepare:
        config.check_started_here()
        check_can_start(config)
    return run_config.ensure(config)


def refuse_bare_word(word: str) -> None:
    """Answer a word that is neither an override nor a run folder."""
    if not word:
        raise ConfigError(
            f"'' is no run folder; `{command_on(RUNS_DIR, 'sweeps status')}` lists those there are"
        )
    if word == "help":
        raise ConfigError("'help' is no run folder; python train.py --help shows what there is")
    if word in options("method"):
        raise ConfigError(
            f"{word!r} is no run folder; the method of that name: python train.py method={word}"
        )
    if word.startswith("~"):
        key = word.removeprefix("~")
        raise ConfigError(
            f"{word}: every key is needed and cannot be left out; write {key}=<value> or {key}=null"
        )


def check_can_start(config: RunConfig) -> None:
    """Reject a run that would fail here, before its folder exists; finished runs pass."""
    folder = RunFolder(Path(config.machine.runs_dir) / run_id(config))
    if not (folder.status.exists() and folder.read_status().state is State.DONE):
        refuse_what_cannot_start([config])


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="run folder | key=value", help="what to run")
    parser.add_argument(
        "--attempt", type=int, help="given by a launcher: the attempt whose log has this output"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="make the run's folder, print it and stop"
    )
    parser.add_argument(
        "--cfg", choices=["job"], help="print the whole configuration, every reference filled in"
    )
    arguments, unknown = parser.parse_known_intermixed_args()
    # The whole configuration of the default run can be shown; only starting it has to be asked for.
    if not arguments.what and not unknown and not arguments.cfg:
        parser.error("what to run? a run folder, or key=value ...; method=scpo is the default run")
    replace_what_cannot_be_printed()
    if (
        "WANDB_SWEEP_ID" in os.environ
    ):  # `wandb agent` started it: its sweep learns nothing of a run that stays offline
        os.environ.setdefault("WANDB_MODE", "online")
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    try:
        if unknown:
            raise ConfigError(explain_flag(unknown[0], [*unknown, *arguments.what], "train.py"))
        if arguments.cfg:
            config = compose_run(arguments.what).model_dump(mode="json")
            # A value may be that of an environment variable which the files of conf/ read.
            shown = redact_texts(config)
            sys.stdout.write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True))
            return EXIT_DONE
        folder = open_run(arguments.what, prepare=arguments.prepare)
        if arguments.prepare:
            sys.stdout.write(f"{folder.path}\n")
            return EXIT_DONE
        run_config.check(folder).check_started_here()
        return entry.run(folder, train, arguments.attempt)
    except (ScpoError, OSError) as error:
        logging.getLogger("train").error("%s", complaint(error))
        return EXIT_BAD_CONFIG


if __name__ == "__main__":
    entry.leave(main())
