"""Checks before run folders are created: packages, data, models, scorers and API keys.

These are the checks of ``sweeps doctor`` whose errors mean that a run would fail on this machine.
"""

import importlib.util
import tomllib
from collections.abc import Callable, Iterable, Iterator

from packaging.requirements import Requirement
from pydantic import BaseModel

from scpo.errors import ConfigError
from scpo.findings import Finding, Level, error
from scpo.installed import REPOSITORY, installed_version
from scpo.schema.env import AlfworldConfig
from scpo.schema.run import RunConfig
from sweeps.doctor import deep, model_files, services
from sweeps.doctor.packages import extra_of_trainer, install_fix
from sweeps.doctor.subject import Subject, distinct, needs_scorer

Check = Callable[[Subject], Iterable[Finding]]
# Findings by the name of the check and the settings that it reads.
Answers = dict[tuple[str | None, ...], list[Finding]]


def refuse_what_cannot_start(configs: Iterable[RunConfig]) -> None:
    """Check the configurations of runs that are about to start on this machine.

    Raises:
        ConfigError: At least one run would fail. The message has one line for each reason, with
            its fix.
    """
    reasons = obstacles(configs)
    if reasons:
        raise ConfigError("\n".join(reasons))


def obstacles(configs: Iterable[RunConfig], *, keys: bool = True) -> list[str]:
    """Reasons why runs would fail on this machine, with their fixes and without duplicates.

    ``keys``: whether keys of API models that are not set are among them.
    """
    reasons = []
    answers: Answers = {}
    for config in distinct(configs):
        for finding in _errors(config, answers, keys=keys):
            reason = f"{finding.check}: {finding.text}; fix: {finding.fix}"
            if reason not in reasons:
                reasons.append(reason)
    return reasons


def _errors(config: RunConfig, answers: Answers, *, keys: bool) -> Iterator[Finding]:
    """Errors of one run. A missing package is reported first, without any other check."""
    missing = _missing_package(config)
    if missing is not None:
        yield missing
        return

    subject = Subject((config,), runs=1)
    findings = list(_once(answers, model_files.check_models, subject, config.model))
    if needs_scorer(config):
        findings += _once(answers, model_files.check_scorers, subject, config.scorer)
    if keys and config.method.kind == "prompted":
        findings += services.check_keys(subject)
    # Generated games need no files, so the data check would start a process for nothing.
    generated = isinstance(config.env, AlfworldConfig) and config.env.games == "generated"
    if not generated:
        findings += _once(answers, deep.check_data, subject, config.env, config.data_folder)
    for finding in findings:
        if finding.level is Level.ERROR:
            yield finding


def _once(
    answers: Answers, check: Check, subject: Subject, section: BaseModel, *more: str | None
) -> list[Finding]:
    """Findings of a check that waits for the network or a process, for each section only once."""
    key = (check.__name__, section.model_dump_json(), *more)
    if key not in answers:
        answers[key] = list(check(subject))
    return answers[key]


def _missing_package(config: RunConfig) -> Finding | None:
    """Error for the first missing package of the environment's or trainer's extra, if any."""
    pyproject = REPOSITORY / "pyproject.toml"
    # Slurm jobs run from a snapshot of the code, which has no pyproject.toml.
    if not pyproject.exists():
        return None
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    for extra in (config.env.name, extra_of_trainer(config)):
        for line in project["optional-dependencies"].get(extra, ()):
            package = Requirement(line).name
            if not _is_installed(package):
                check = f"trainer={config.trainer.name} env={config.env.name}"
                return error(check, f"{package} is not installed", _install_fix(config, extra))
    return None


def _is_installed(package: str) -> bool:
    """True if the package has metadata, or a module of its name can be imported."""
    module = package.lower().replace("-", "_")
    return installed_version(package) is not None or importlib.util.find_spec(module) is not None


def _install_fix(config: RunConfig, extra: str) -> str:
    """Command that installs an extra, and alternatives to it."""
    fix = install_fix(config.env.name, extra)
    if extra == "verl":
        fix += "; without a GPU: trainer=verl_cpu, or trainer=local scale=study"
    return fix
