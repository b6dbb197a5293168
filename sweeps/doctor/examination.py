"""``python -m sweeps doctor [overrides of sweep.py or train.py]``: run checks, show findings."""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from scpo.errors import ScpoError
from scpo.findings import Finding, Level, error
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import parse_all, read_request
from sweeps.doctor import cluster, deep, gpu_path, machine, model_files, packages, services
from sweeps.doctor.subject import Subject, distinct
from sweeps.records.process import EXIT_DONE, EXIT_FAILED
from sweeps.terminal import say, say_markup

Check = Callable[[Subject], Iterator[Finding]]

QUICK: dict[str, Check] = {
    "packages": packages.check_packages,
    "cpus": machine.check_cpus,
    "memory": machine.check_memory,
    "gpus": machine.check_gpus,
    "gpu memory": gpu_path.check_gpu_memory,
    "driver": gpu_path.check_driver,
    "flash-attn": gpu_path.check_attention,
    "cores for Ray": gpu_path.check_ray_cores,
    "sockets": gpu_path.check_sockets,
    "ray": gpu_path.check_ray,
    "hours": gpu_path.check_hours,
    "webshop nouns": gpu_path.check_noun_rule,
    "disk": machine.check_disk,
    "run folder": machine.check_run_folder,
    "slurm": cluster.check_slurm,
    "data": deep.check_data,
    "models": model_files.check_models,
    "tokens": model_files.check_tokens,
    "scorers": model_files.check_scorers,
    "endpoints": services.check_endpoints,
    "wandb": services.check_wandb,
}
SLOW: dict[str, Check] = {
    "panels": deep.check_panels,
    "environment": deep.check_environment,
    "loaded scorer": deep.check_loaded_scorer,
    "tokenizer": deep.check_tokenizer,
    "slurm node": cluster.check_node,
}
COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


def read_subject(overrides: Sequence[str]) -> Subject:
    """Compose the overrides as sweep.py or train.py would; raises the same ConfigErrors."""
    keys = {override.key for override in parse_all(overrides)}
    if "search" in keys:
        # Imported here because Optuna is an optional extra.
        from sweeps.search.plan import make_plan

        request = read_request(overrides)
        plan = make_plan(request.name, request.overrides)
        # One configuration is enough for all trials: they differ in hyper-parameters only.
        return Subject((plan.base,), plan.settings * len(plan.seeds), plan.search)
    if "experiment" in keys:
        request = read_request(overrides)
        runs = expand(request.name, request.overrides).runs
        # Runs that differ only in the seed need the same machine, so one of them is checked.
        every_run = tuple(runs.values())
        return Subject(tuple(distinct(every_run)), len(runs), planned=every_run)
    return Subject((compose_run(overrides),), 1)


def examine(subject: Subject, slow: bool) -> Iterator[Finding]:
    """Run the checks; each finding once, although several configurations may have it.

    A check that raises becomes a finding, and the others still run.
    """
    checks = QUICK | SLOW if slow else QUICK
    seen: set[Finding] = set()
    for name, check in checks.items():
        try:
            for finding in check(subject):
                if finding not in seen:
                    seen.add(finding)
                    yield finding
        except (ScpoError, OSError, ValueError, LookupError) as failure:
            text = f"the check itself failed: {type(failure).__name__}: {failure}"
            yield error(name, text, "fix this cause, or report it")


def doctor(console: Console, arguments: argparse.Namespace) -> int:
    """Show what would go wrong with a run, an experiment or a search."""
    findings = examine(read_subject(arguments.overrides), arguments.deep)
    if arguments.json:
        seen = list(findings)
        console.print_json(json.dumps([finding.as_record() for finding in seen]))
    else:
        seen = show_findings(console, findings)
        more = "" if arguments.deep else "; --deep loads panels and scorer too"
        counts = Counter(finding.level for finding in seen)
        console.print(
            ", ".join(f"{counts[level]} {level}" for level in Level) + more, highlight=False
        )
    if any(finding.level is Level.ERROR for finding in seen):
        return EXIT_FAILED
    return EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="*", metavar="override", help="as for sweep.py or train.py"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="load panels, scorer and tokenizer too; ask a Slurm node",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=doctor)


def show_findings(console: Console, findings: Iterable[Finding]) -> list[Finding]:
    """Print what is ok as it arrives, then warnings and errors with their fixes; returns all.

    Errors come last, right above the shell's prompt, where they are seen after any other lines.
    """
    seen = []
    for finding in findings:
        seen.append(finding)
        if finding.level is Level.OK:
            _show(console, finding)
    for level in (Level.WARNING, Level.ERROR):
        for finding in seen:
            if finding.level is level:
                _show(console, finding)
    return seen


def _show(console: Console, finding: Finding) -> None:
    level = f"[{COLOURS[finding.level]}]{finding.level:<7}[/]"
    say_markup(console, f"{level}  {escape(finding.check)}: {escape(finding.text)}")
    if finding.fix:
        say(console, f"         fix: {finding.fix}")
