"""Runs the checks and shows what they say."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from scpo.errors import ScpoError
from scpo.findings import Finding, Level, error
from sweeps.doctor import cluster, deep, machine, model_files, packages, services
from sweeps.doctor.subject import Subject

Check = Callable[[Subject], Iterator[Finding]]

QUICK: dict[str, Check] = {
    "packages": packages.check_packages,
    "cpus": machine.check_cpus,
    "memory": machine.check_memory,
    "gpus": machine.check_gpus,
    "disk": machine.check_disk,
    "run folder": machine.check_run_folder,
    "slurm": cluster.check_slurm,
    "data": model_files.check_data,
    "models": model_files.check_models,
    "scorers": model_files.check_scorers,
    "endpoints": services.check_endpoints,
    "wandb": services.check_wandb,
}
SLOW: dict[str, Check] = {
    "panels": deep.check_panels,
    "shop": deep.check_shop,
    "loaded scorer": deep.check_loaded_scorer,
    "tokenizer": deep.check_tokenizer,
}
COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


def examine(subject: Subject, slow: bool) -> Iterator[Finding]:
    """All findings; a check that breaks is a finding too, and the others go on."""
    for name, check in (QUICK | SLOW if slow else QUICK).items():
        try:
            yield from check(subject)
        except (ScpoError, OSError, ValueError, LookupError) as failure:
            text = f"the check itself failed: {type(failure).__name__}: {failure}"
            yield error(name, text, "mend what it says, or report it")


def show_findings(console: Console, findings: Iterable[Finding]) -> list[Finding]:
    """One line each, as they come, and the mend below; returns them."""
    seen = []
    for one in findings:
        seen.append(one)
        level = f"[{COLOURS[one.level]}]{one.level:<7}[/]"
        console.print(f"{level}  {escape(one.check)}: {escape(one.text)}", soft_wrap=True, highlight=False)
        if one.mend:
            console.print(f"         mend: {escape(one.mend)}", soft_wrap=True, highlight=False)
    return seen


def verdict(findings: Sequence[Finding]) -> str:
    """How many of what."""
    counts = {level: sum(one.level is level for one in findings) for level in Level}
    return ", ".join(f"{count} {level}" for level, count in counts.items())
