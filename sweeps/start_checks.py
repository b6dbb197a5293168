"""Checks before run folders are created: the packages, data, models and keys that runs need.

A part of the doctor's checks: those whose errors no later step can repair.
"""

import importlib.util
import tomllib
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement

from scpo.errors import ConfigError
from scpo.findings import Finding, Level, error
from scpo.installed import REPOSITORY, install_command, installed_version
from scpo.schema.env import AlfworldConfig
from scpo.schema.run import RunConfig
from sweeps.doctor import deep, model_files, services
from sweeps.doctor.packages import of_trainer
from sweeps.doctor.subject import Subject, distinct


def refuse_what_cannot_start(configs: Iterable[RunConfig]) -> None:
    """Check configurations that are about to start on this machine.

    Raises:
        ConfigError: A run would fail; one line for each reason, with its fix.
    """
    if reasons := obstacles(configs):
        raise ConfigError("\n".join(reasons))


def obstacles(configs: Iterable[RunConfig]) -> list[str]:
    """Reasons why runs would fail on this machine, each once and with its fix."""
    reasons = []
    for config in distinct(configs):
        for finding in _errors(config):
            reason = f"{finding.check}: {finding.text}; fix: {finding.fix}"
            if reason not in reasons:
                reasons.append(reason)
    return reasons


def _errors(config: RunConfig) -> Iterator[Finding]:
    subject = Subject((config,), 1)
    missing = list(_missing_packages(config))
    if missing:
        yield from missing
        return
    findings = list(model_files.check_models(subject))
    findings += model_files.check_scorers(subject)
    if config.method.kind == "prompted":
        findings += services.check_keys(subject)
    # Generated games need no files, and the check would start a process.
    if not (isinstance(config.env, AlfworldConfig) and config.env.games == "generated"):
        findings += deep.check_data(subject)
    yield from (finding for finding in findings if finding.level is Level.ERROR)


def _missing_packages(config: RunConfig) -> Iterator[Finding]:
    """The first missing package of the environment's and the trainer's extras."""
    described = REPOSITORY / "pyproject.toml"
    # A job's snapshot holds the code without pyproject.toml.
    if not described.exists():
        return
    project = tomllib.loads(described.read_text(encoding="utf-8"))["project"]
    for extra in (config.env.name, of_trainer(config)):
        for requirement in map(Requirement, project["optional-dependencies"].get(extra, ())):
            module = requirement.name.lower().replace("-", "_")
            if (
                installed_version(requirement.name) is None
                and importlib.util.find_spec(module) is None
            ):
                fix = install_command(config.env.name, extra)
                if extra.startswith("verl"):
                    fix = f"in a virtual environment of its own: {fix} (docs/verl.md)"
                if extra == "verl":
                    fix += "; without a GPU: trainer=verl_cpu, or trainer=local scale=study"
                what = f"trainer={config.trainer.name} env={config.env.name}"
                yield error(what, f"{requirement.name} is not installed", fix)
                return
