"""Packages as ``pip install`` leaves them, and Python processes that find them."""

import os
import subprocess
import sys

from tests.support.run_records import ROOT


def write_package(folder, files):
    """Write the files of a package, its dist-info among them: {relative path: text}."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def python(folder, *words):
    """Run Python in the checkout, with the packages of a folder."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
