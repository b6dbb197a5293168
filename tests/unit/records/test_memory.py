"""What a run's processes take together, on a made-up /proc and driver, and on this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scpo.records import memory
from scpo.records.memory import (
    GIB,
    HOST,
    NodeMemory,
    free_gib,
    installed_gpus,
    smallest_gib,
    tree_gib,
    usable_cores,
    used_gib,
    visible_gpus,
)

PAGE = os.sysconf("SC_PAGE_SIZE")
ONE_GIB = GIB // PAGE


def process(proc, number, parent, resident, *, shared=0, name="python"):
    (proc / str(number)).mkdir(parents=True)
    (proc / str(number) / "stat").write_text(f"{number} ({name}) S {parent} 1 1 0")
    (proc / str(number) / "statm").write_text(f"9999 {resident} {shared} 1 0 1 0")


def test_a_process_and_all_that_descend_from_it_are_counted_and_shared_memory_is_not(tmp_path):
    process(tmp_path, 10, 1, 3 * ONE_GIB, shared=ONE_GIB)
    process(tmp_path, 11, 10, ONE_GIB, name="scorer (1) x")
    process(tmp_path, 12, 11, ONE_GIB)
    process(tmp_path, 13, 1, 50 * ONE_GIB)
    (tmp_path / "14").mkdir()  # ended while we looked
    assert tree_gib(10, tmp_path) == pytest.approx(4)
    assert tree_gib(10, tmp_path / "none") == 0


SMI = "0, GPU-aaaa-1, 1024\n1, GPU-bbbb-2, 2048\n2, GPU-cccc-3, 71680\n"


@pytest.mark.parametrize(
    ("visible", "found"),
    [("", {"0": 1, "1": 2, "2": 70}), ("0,1", {"0": 1, "1": 2}), ("GPU-bbbb", {"1": 2}), ("7", {})],
)
def test_only_the_runs_own_gpus_are_looked_at(visible, found):
    assert used_gib(visible, ask=lambda _: SMI.splitlines()) == found


@pytest.mark.parametrize("word", ["[N/A]", "[GPU is lost]", "[Insufficient Permissions]"])
def test_a_gpu_whose_memory_the_driver_does_not_show_is_one_of_unknown_size(word, monkeypatch):
    """Each such answer stopped the sweep, also for runs on the CPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(memory, "query_driver", lambda _: [f"NVIDIA GB10, {word}", "Card, 24564"])
    assert installed_gpus() == [("NVIDIA GB10", None), ("Card", pytest.approx(23.99, abs=0.01))]
    assert smallest_gib(installed_gpus()) == pytest.approx(23.99, abs=0.01)
    assert smallest_gib([("NVIDIA GB10", None)]) is None
    assert visible_gpus() == ["0", "1"]
    assert used_gib(ask=lambda _: [f"0, GPU-aaaa-1, {word}", "1, GPU-bbbb-2, 2048"]) == {"1": 2}


def test_without_a_driver_no_gpus_are_reported():
    assert used_gib(ask=lambda _: []) == {}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux: nothing, the measure is left out")
def test_a_child_that_is_gone_again_has_left_its_peak():
    hold = "held = bytearray(300_000_000); print(len(held), flush=True); input()"
    with NodeMemory(poll_s=0.02) as memory:
        alone = memory.take()[HOST]
        child = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(0.3)
        child.communicate(b"\n")
        peak, after = memory.take()[HOST], memory.take()[HOST]
    assert peak > alone + 0.25
    assert after < peak - 0.25


def test_the_page_cache_counts_as_free_and_a_containers_limit_is_respected(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1048576 kB\nMemAvailable: 4194304 kB\n")
    assert free_gib(meminfo, tmp_path) == 4
    (tmp_path / "memory.max").write_text("max\n")
    assert free_gib(meminfo, tmp_path) == 4
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB // 2}\n")
    assert free_gib(meminfo, tmp_path) == 1.5
    assert free_gib(tmp_path / "none", tmp_path) is None


def test_cores_are_counted_where_the_system_has_no_masks_of_them(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert usable_cores() == 6
