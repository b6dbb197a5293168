"""Checks of Python and packages against pyproject.toml and constraints.txt."""

import platform
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from scpo.findings import Finding, error, ok, warning
from scpo.installed import REPOSITORY, install_command, installed_version
from scpo.schema.run import RunConfig
from sweeps.doctor.subject import Subject, needs_scorer


def check_packages(subject: Subject, root: Path = REPOSITORY) -> Iterator[Finding]:
    """Check Python, the packages of the core and the needed extras, and tested versions."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    yield _python(project["requires-python"])
    optional = project["optional-dependencies"]
    # An environment or a trainer without packages of its own has no extra; trainer=verl_agent has
    # its packages in verl-agent's environment.
    extras = [extra for extra in needed_extras(subject) if extra in optional]
    wrong = list(_missing_or_old(project["dependencies"], "make setup"))
    for extra in extras:
        # One command for all extras, because one command for each may change torch in between.
        wrong += _missing_or_old(optional[extra], install_fix(*extras))
    yield from wrong
    if not wrong:
        yield ok("packages", f"all there for: {', '.join(['core', *extras])}")
    yield from _against_constraints(root / "constraints.txt")


def install_fix(*extras: str) -> str:
    """Command that installs these extras, those of verl in an environment of their own."""
    fix = install_command(*extras)
    if any(extra.startswith("verl") for extra in extras):
        return f"in a virtual environment of its own: {fix} (docs/verl.md)"
    return fix


def needed_extras(subject: Subject) -> list[str]:
    """Extras of pyproject.toml that these configurations need."""
    needed: set[str] = set()
    for config in subject.configs:
        needed.update(_extras_of_run(config))
    if subject.search:
        needed.add("search")
    return sorted(needed)


def extra_of_trainer(config: RunConfig) -> str:
    """Extra with the packages that train or prompt the model."""
    if config.model.kind == "api":
        return "agents"
    if config.trainer.name == "verl" and config.trainer.verl.engine == "hf":
        # The extra without vLLM.
        return "verl-cpu"
    return config.trainer.name


def _extras_of_run(config: RunConfig) -> Iterator[str]:
    yield config.env.name
    yield extra_of_trainer(config)
    if needs_scorer(config):
        yield from _extras_of_scorer(config)
    if config.wandb.mode != "disabled":
        yield "track"
    if config.launcher.name == "slurm":
        yield "slurm"


def _extras_of_scorer(config: RunConfig) -> Iterator[str]:
    if config.scorer.kind == "bi_encoder":
        # It includes the package with the files of all-MiniLM-L6-v2.
        yield "local"
    if config.scorer.kind == "cross_encoder" and config.trainer.name != "verl":
        # The scorer uses the torch and transformers of this extra; verl's extras bring their own.
        yield "local"


def _python(allowed: str) -> Finding:
    version = platform.python_version()
    if Version(version) in SpecifierSet(allowed):
        return ok("python", f"{version} (allowed: {allowed})")
    return error("python", f"{version}; allowed: {allowed}", "make setup PYTHON=<a newer python>")


def _missing_or_old(requirements: list[str], install: str) -> Iterator[Finding]:
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = installed_version(requirement.name)
        if version is None:
            yield error("packages", f"{requirement.name} is not installed", install)
        elif not requirement.specifier.contains(version, prereleases=True):
            yield error(
                "packages",
                f"{requirement.name} {version}; allowed: {requirement.specifier}",
                install,
            )


def _against_constraints(path: Path) -> Iterator[Finding]:
    """Warn about versions other than the tested ones: they may work, but may not reproduce."""
    if not path.exists():
        yield warning(
            "constraints", f"there is no {path.name}", "run from a checkout of the project"
        )
        return

    pins = [
        Requirement(line)
        for line in path.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    differing = []
    for pin in pins:
        version = installed_version(pin.name)
        if version is not None and not pin.specifier.contains(version, prereleases=True):
            differing.append(f"{pin.name} {version} (tested: {str(pin.specifier).lstrip('=')})")

    if differing:
        yield warning(
            "constraints",
            ", ".join(differing),
            "pip install -c constraints.txt <package>, or make setup",
        )
    else:
        installed = [str(pin) for pin in pins if installed_version(pin.name)]
        yield ok("constraints", f"tested versions: {', '.join(installed)}")
