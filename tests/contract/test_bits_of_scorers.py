"""On a CPU a score is a function of its pair: every bit is the same in any company, by whichever instructions."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bits_of_scorers import PAIRS
from tests.support.rerankers import save_reranker

pytest.importorskip("torch", reason="needs torch: make setup")

ROOT = Path(__file__).parents[2]
OLDER = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "2"},
    "DEFAULT": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
                "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"},
}  # fmt: skip
"""Makes torch, MKL and oneDNN compute as on an older processor (MKL_ENABLE_INSTRUCTIONS works on Intel only). What this
processor has itself is for the tests of each scorer."""


@pytest.fixture(scope="module")
def rerankers(tmp_path_factory):
    return [str(save_reranker(tmp_path_factory.mktemp(family), family)) for family in ("xlm_r", "bert")]


@pytest.mark.parametrize("instructions", OLDER)
def test_company_changes_no_bit_of_a_score_on_an_older_processor(rerankers, instructions):
    import torch

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip(f"needs x86, whose instruction sets can be forced: this is {platform.machine()}")
    if instructions == "AVX2" and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("needs AVX2: run it on a processor that has it")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.bits_of_scorers", *rerankers],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **OLDER[instructions]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["instructions"], found["pairs"]) == (instructions, len(PAIRS))
    assert set(rerankers) <= found["company"].keys()
    assert all(counts == {"shuffled": 0, "in two calls": 0} for counts in found["company"].values()), found
