"""Installed packages, the command that installs missing ones, and the folder of this code."""

import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
"""The checkout, or a snapshot of it, that this code is run from."""

CORE = ("numpy", "pydantic", "hydra", "rich")
"""Modules of the core dependencies in pyproject.toml: every command imports them."""

CONSTRAINTS = {
    "verl": None,
    "verl-gpu": "constraints-verl-gpu.txt",
    "verl-cpu": "constraints-verl.txt",
}
"""Extra of pyproject.toml -> file with its tested versions, if that is not constraints.txt.

``verl`` has no entry: its torch is the one that its vLLM was built for."""


def installed_version(package: str) -> str | None:
    """The version of a package, without importing it; None: it is not installed.

    Importing would take seconds (torch, vllm) and may itself fail on a machine without a GPU.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def install_command(*extras: str) -> str:
    """Command that installs extras of pyproject.toml in their tested versions, from the checkout.

    scpo is on no package index, so ``pip install 'scpo[...]'`` finds nothing.

    Args:
        extras: Names of extras; the first that has constraints of its own decides the file.
    """
    pins = next((CONSTRAINTS[extra] for extra in extras if extra in CONSTRAINTS), "constraints.txt")
    constraints = f"-c {pins} " if pins else ""
    return f"pip install {constraints}-e '.[{','.join(extras)}]'"


def explain_wrong_python() -> str:
    """The line for a Python without the core packages; empty: this one has them.

    Mostly the shell's own Python, since the environment of ``make setup`` was not activated. To be
    asked before anything that is installed is imported.
    """
    missing = [name for name in CORE if find_spec(name) is None]
    if not missing:
        return ""
    if (REPOSITORY / ".venv/bin/python").exists():
        fix = "source .venv/bin/activate, or call .venv/bin/python instead of python"
    else:
        by_hand = install_command("alfworld", "local")
        fix = f"make setup, then source .venv/bin/activate; or {by_hand}"
    return f"{sys.executable} has no {', '.join(missing)}; {fix}"
