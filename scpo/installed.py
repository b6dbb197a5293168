"""Installed packages, the command that installs missing ones, and the folder of this code."""

import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
"""The checkout, or a snapshot of it, that this code is run from."""

CODE_PARTS = ("scpo", "sweeps", "train.py")
"""Files and folders of the checkout whose code a run executes."""

CODE_SUFFIXES = (".py", ".yaml")
"""Suffixes of code; other files may be written next to it by tools."""

CORE = ("numpy", "pydantic", "hydra", "rich")
"""Modules of the core dependencies in pyproject.toml: every command imports them."""

CONSTRAINTS = {
    "verl": None,
    "verl-gpu": "constraints-verl-gpu.txt",
    "verl-cpu": "constraints-verl.txt",
}
"""Extra of pyproject.toml -> file with its tested versions, if that is not constraints.txt.

``verl`` has no such file: its vLLM determines the version of torch."""


def installed_version(package: str) -> str | None:
    """Version of a package, found without importing it; None if it is not installed.

    An import of torch or vllm takes seconds, and may fail on a machine without a GPU.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_vllm_for_cpu() -> bool:
    """True if the installed vLLM is a build for the CPU."""
    return (installed_version("vllm") or "").endswith("+cpu")


def install_command(*extras: str) -> str:
    """Command that installs extras of pyproject.toml in their tested versions, from the checkout.

    scpo is on no package index, so ``pip install 'scpo[...]'`` finds nothing.

    Args:
        extras: Names of extras. The first one in CONSTRAINTS determines the file.
    """
    pins = next((CONSTRAINTS[extra] for extra in extras if extra in CONSTRAINTS), "constraints.txt")
    constraints = f"-c {pins} " if pins else ""
    return f"pip install {constraints}-e '.[{','.join(extras)}]'"


def explain_wrong_python() -> str:
    """Message if this Python lacks the core packages; empty if it has them.

    A Python without them is usually the shell's own, because the environment of ``make setup`` was
    not activated. Call this before any installed package is imported.
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
