"""The containers, the documentation and CI install by one script, whose calls of pip are written down here."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = ("docker/Dockerfile", "docker/scpo.def", "docs/verl.md", ".ci/run")


@pytest.fixture
def pip(tmp_path):
    """``pip(*words)``: the words of every call of pip that docker/install.sh makes."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = pip ]; then shift 2; echo "$@" >>{calls}; else exec {sys.executable} "$@"; fi\n'
    )
    python.chmod(0o700)

    def run(*words):
        env = {**os.environ, "PYTHON": str(python)}
        subprocess.run([ROOT / "docker" / "install.sh", *words], env=env, check=True, timeout=60)
        return [line.split() for line in calls.read_text().splitlines()]

    return run


def test_torch_comes_before_flash_attn_which_is_built_with_it_and_all_is_pinned(pip):
    calls = pip()
    assert all("constraints-verl-gpu.txt" in call for call in calls)
    torch, flash, all_of_it = calls
    assert "torch" in torch
    assert flash[-2:] == ["--no-build-isolation", "flash-attn"]
    assert re.fullmatch(r"\.\[alfworld,webshop,verl-gpu,.*\]", all_of_it[-1])


def test_the_dry_run_looks_up_what_the_extra_names_but_the_source(pip):
    (call,) = pip("--dry-run")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(extras["verl-gpu"]) - {"flash-attn"}
    assert {"--dry-run", "--no-deps", *named} <= set(call)
    assert "flash-attn" not in call


@pytest.mark.parametrize("name", FILES)
def test_nobody_installs_the_gpu_environment_in_words_of_his_own(name):
    text = (ROOT / name).read_text()
    assert "docker/install.sh" in text
    assert not re.search(r"pip install .*(verl-gpu|flash-attn)|dry-run .*verl", text)


def test_both_containers_share_a_base_and_hold_what_an_installation_reads():
    docker, apptainer = ((ROOT / name).read_text() for name in FILES[:2])
    assert (
        re.search(r"^FROM (\S+)$", docker, re.MULTILINE)[1] == re.search(r"^From: (\S+)$", apptainer, re.MULTILINE)[1]
    )
    kept = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().split()
    for name in (
        "pyproject.toml",
        "constraints-verl-gpu.txt",
        "docker/install.sh",
        "scpo",
        "sweeps",
        "analysis",
        "conf",
    ):
        assert (ROOT / name).exists()
        assert f"!{name}" in kept
        assert f" {name}" in apptainer
