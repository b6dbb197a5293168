"""``python -m sweeps doctor [what sweep.py or train.py would take]``."""

import argparse
import json

from rich.console import Console

from scpo.findings import Level
from sweeps.doctor.examination import examine, show_findings, verdict
from sweeps.doctor.subject import read_subject
from sweeps.records.attempt import EXIT_DONE, EXIT_FAILED


def doctor(console: Console, arguments: argparse.Namespace) -> int:
    """What would go wrong with a run, an experiment or a search."""
    findings = examine(read_subject(arguments.words), arguments.deep)
    if arguments.json:
        seen = list(findings)
        console.print_json(json.dumps([one.as_record() for one in seen]))
    else:
        seen = show_findings(console, findings)
        more = "" if arguments.deep else "; --deep loads panels and scorer too"
        console.print(verdict(seen) + more, highlight=False)
    return EXIT_FAILED if any(one.level is Level.ERROR for one in seen) else EXIT_DONE


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The command's own words."""
    parser = commands.add_parser("doctor", help=doctor.__doc__)
    parser.add_argument("words", nargs="*", metavar="override", help="as for sweep.py or train.py")
    parser.add_argument("--deep", action="store_true", help="load panels, scorer and tokenizer too")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=doctor)
