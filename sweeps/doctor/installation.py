"""Make a virtual environment with everything in it, or say in one line what is in the way.

    python3 -m sweeps.doctor.installation .venv --pins constraints.txt --extras alfworld,local --download 9 --disk 9

The Makefile calls it before anything is installed, so it uses the standard library only. An environment that was
interrupted, was moved or has another Python is made anew if this made it; what someone else made is never deleted.
"""

import argparse
import hashlib
import json
import locale
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeps.doctor import run_pip as pip
from sweeps.doctor.run_pip import AGAIN, InstallationError, say

ROOT = Path(__file__).resolve().parents[2]
STATE = "scpo-environment.json"  # lies in the environment: what it was made for, by whom, whether that is finished
MEGABYTE = 10**6


@dataclass(frozen=True)
class Environment:
    """The environment that shall be there. ``download``, ``disk``: MB, measured with the CPU build of torch."""

    folder: Path
    pins: Path
    extras: str
    torch_index: str
    download: int
    disk: int

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def made_for(self) -> dict[str, str]:
        """What decides whether one that is there is this one. Not the index of torch: it is named once, not always."""
        content = (ROOT / "pyproject.toml").read_bytes() + self.pins.read_bytes() + self.extras.encode()
        return {
            "folder": str(self.folder.absolute()),
            "project": str(ROOT),
            "python": _version(),
            "content": hashlib.sha256(content).hexdigest(),
        }

    def known(self) -> dict[str, object]:
        """What was written down about the one that is there; empty if nothing was or it cannot be read."""
        try:
            known = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def write_down(self, *, ours: bool, finished: bool) -> None:
        """What it is made for, whether this module made it, and whether all is there."""
        path = self.folder / STATE
        scratch = path.with_suffix(".tmp")
        known = {**self.made_for(), "ours": ours, "finished": finished}
        scratch.write_text(json.dumps(known), encoding="utf-8")
        scratch.replace(path)


def is_ready(environment: Environment) -> bool:
    """Whether nothing is left to do. Its own Python is to ask: a broken one cannot answer."""
    known = environment.known()
    return bool(known.get("finished")) and environment.made_for().items() <= known.items()


def install(environment: Environment) -> None:
    """Make the environment, or bring one that is there up to date.

    Raises:
        InstallationError: With what to do.
    """
    started = time.monotonic()
    check_locale(environment.folder)
    why = must_be_made(environment)
    ours = why is not None or bool(environment.known().get("ours"))
    if why is not None:
        check_python()
        check_compilers(environment.extras, os.environ)
        check_room(environment)
        _make(environment, why)
    environment.write_down(ours=ours, finished=False)
    say(
        f"pip: about {environment.download} MB to download, {environment.disk} MB in {environment.folder}. "
        "It compiles some packages (up to 2 min) and at the end unpacks all (1 min)"
    )
    command = pip.command(environment.python, environment.pins)
    if _pip_version(environment.python) < (23, 1):
        pip.run([*command, "--upgrade", "pip"])  # before, packages without a pyproject.toml were not built apart
    index = ["--index-url", environment.torch_index] if environment.torch_index else []
    _warn_of_cuda([*command, *index], environment.folder / "torch.json")
    if index:
        pip.run([*command, *index, "torch"])
    pip.run([*command, "-e", f"{ROOT}[{environment.extras}]"])
    environment.write_down(ours=ours, finished=True)
    say(f"{environment.folder} is ready after {time.monotonic() - started:.0f} s")


def must_be_made(environment: Environment) -> str | None:
    """Why the environment has to be made, or made anew; None: the one that is there can be brought up to date.

    Raises:
        InstallationError: Something is in its place that is not ours to delete and cannot be used.
    """
    folder, known = environment.folder, environment.known()
    if not folder.exists() or not any(folder.iterdir()):
        return "there was none"
    fault = _fault(environment, known)
    if fault is None or known.get("ours"):
        return fault
    if not known and not (folder / "pyvenv.cfg").exists():
        raise InstallationError(f"{folder} is no virtual environment. Name another: make setup VENV=<folder>")
    raise InstallationError(f"{folder} cannot be used: {fault}. Delete it (rm -r '{folder}'), {AGAIN}")


def _fault(environment: Environment, known: Mapping[str, object]) -> str | None:
    """What is wrong with an environment that is there; None: nothing that pip could not put right."""
    now = environment.made_for()
    if known and not known.get("finished"):
        return "its installation was interrupted"
    for key in ("folder", "project"):
        if known and known.get(key) != now[key]:
            return f"it was made in another place, {known.get(key)}"
    code = "import sys, pip; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run([environment.python, "-I", "-c", code], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"its Python does not start ({error.strerror})"
    if done.returncode != 0:
        return "its Python does not start or has no pip"
    there = done.stdout.strip()
    if there != _version() or known.get("python", there) != there:
        return f"it was made by Python {known.get('python', there)}, its Python is now {there} and yours {_version()}"
    activate = (environment.folder / "bin" / "activate").read_text(encoding="utf-8", errors="replace")
    return None if now["folder"] in activate else "it was made in another place"


def check_locale(folder: Path) -> None:
    """Python reads the names of the folders to import from (.pth files) in the locale's encoding, up to 3.12."""
    names = f"{folder.absolute()}{ROOT}"
    encoding = locale.getencoding()
    if not names.isascii() and encoding.lower().replace("-", "") != "utf8":
        raise InstallationError(
            f"{ROOT} cannot be read by Python in this locale ({encoding}). Either export LC_ALL=C.UTF-8, {AGAIN}, "
            "or move the checkout to a path of ASCII letters"
        )


def check_python() -> None:
    """Debian and Ubuntu ship Python without what ``venv`` needs."""
    try:
        import ensurepip
        import venv  # noqa: F401 (is it there?)

        ensurepip.version()
    except (ImportError, AttributeError, OSError) as error:
        raise InstallationError(
            f"Python {_version()} ({sys.executable}) cannot make virtual environments: {error}. "
            f"Debian, Ubuntu: apt-get install python{_version()}-venv, {AGAIN}"
        ) from error


def check_compilers(extras: str, variables: Mapping[str, str]) -> None:
    """For the packages that are compiled here."""
    if "alfworld" not in extras.split(","):
        return
    tools = {
        "make": ("make",),
        "a C compiler": (variables.get("CC", "gcc"), "gcc"),
        "a C++ compiler": (variables.get("CXX", "g++"), "g++", "c++", "clang++"),
    }
    missing = [name for name, ways in tools.items() if not any(shutil.which(way.split()[0]) for way in ways if way)]
    if missing:
        raise InstallationError(
            f"{' and '.join(missing)} missing: {pip.COMPILED}, are compiled here. {pip.COMPILERS}, {AGAIN}"
        )


def check_room(environment: Environment) -> None:
    """The environment, the packages that wait to be unpacked, and pip's cache lie on one disk or on three."""
    cache = Path(os.environ.get("PIP_CACHE_DIR") or Path.home())
    replaced = sum(file.lstat().st_size for file in environment.folder.rglob("*")) // MEGABYTE
    wanted = {
        environment.folder.absolute(): environment.disk - replaced,
        Path(tempfile.gettempdir()): environment.download,
        cache: environment.download,
    }
    disks: dict[int, dict[Path, int]] = {}
    for folder, megabytes in wanted.items():
        there = next(one for one in (folder, *folder.parents) if one.exists())
        disks.setdefault(there.stat().st_dev, {})[there] = megabytes
    for places in disks.values():
        need, free = sum(places.values()), shutil.disk_usage(next(iter(places))).free // MEGABYTE
        if free < need:
            names = ", ".join(map(str, places))
            raise InstallationError(f"the disk of {names} has {free} MB free, {need} MB are needed. Make room, {AGAIN}")


def _make(environment: Environment, why: str) -> None:
    say(f"making {environment.folder} with Python {platform.python_version()} ({sys.executable}): {why}")
    if environment.folder.exists():
        shutil.rmtree(environment.folder)
    environment.folder.mkdir(parents=True)
    environment.write_down(ours=True, finished=False)  # first: whatever is left of it, one may delete it
    command = [sys.executable, "-m", "venv", str(environment.folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        text = done.stdout + done.stderr
        sys.stderr.write(text)
        raise InstallationError(pip.cause(text, f"python -m venv ended with exit status {done.returncode}, see above"))


def _pip_version(python: Path) -> tuple[int, ...]:
    asked = [str(python), "-I", "-c", "import pip; print(pip.__version__)"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.strip().split(".")[:2])


def _warn_of_cuda(command: list[str], report: Path) -> None:
    """The default Linux build of torch brings gigabytes of CUDA packages: say so while it can still be stopped."""
    asked = [*command, "--quiet", "--retries", "0", "--dry-run", "--report", str(report), "torch"]
    subprocess.run(asked, capture_output=True, check=False)  # if this fails, so will the installation, and say why
    if report.exists() and '"name": "nvidia-' in report.read_text(encoding="utf-8"):
        say("NOTE: this torch comes with CUDA, a download of about 3 GB. Without a GPU, stop now (Ctrl-C) and run")
        say("      make setup TORCH_INDEX=<CPU index of pytorch.org, section 'Get started'>   (README, 'Which torch')")
        time.sleep(5)


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def main(arguments: list[str]) -> int:
    """0: the environment is ready. 1: it is not, and one line says what to do. 130: interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pins", type=Path, required=True, help="versions, as for pip install -c")
    parser.add_argument("--extras", required=True, help="of pyproject.toml, with commas")
    parser.add_argument("--torch-index", default="", help="a package index with another build of torch")
    parser.add_argument("--download", type=int, required=True, help="MB that pip fetches")
    parser.add_argument("--disk", type=int, required=True, help="MB that the environment takes")
    parser.add_argument("--check", action="store_true", help="do nothing; exit status 0: nothing is left to do")
    options = vars(parser.parse_args(arguments))
    check = options.pop("check")
    environment = Environment(**options)
    if check:
        return 0 if is_ready(environment) else 1
    try:
        install(environment)
    except InstallationError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {pip.cause(str(error), str(error))}")
        return 1
    except KeyboardInterrupt:
        say("stopped. The same command starts again; what pip has downloaded it keeps")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
