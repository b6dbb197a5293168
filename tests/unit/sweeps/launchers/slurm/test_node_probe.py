"""The probe of a node, by an srun that runs its command here, hangs, or refuses."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scpo.stop_signals import CountsSignals
from sweeps.launchers.slurm import node_probe
from sweeps.launchers.slurm.cluster_settings import Site
from sweeps.launchers.slurm.node_probe import Answer, Need, ProbedPartition, ask_node
from tests.support.fake_commands import fake_python

GPU = ProbedPartition("gpu", Site(), gpus=True)
CPU = ProbedPartition("cpu", Site(), gpus=False)
# As srun on a node: the flags are its own, the rest is run there.
RUNS = 'while case $1 in --*) true;; *) false;; esac; do shift; done; SLURMD_NODENAME=node7 exec "$@"'
HANGS = "echo $$ >>{top}/pids; exec sleep 60"
NO_GPU = "echo 'srun: error: Unable to allocate resources: ask for a GPU here' >&2; exit 1"


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """srun and scancel, replaced: ``srun.calls()`` has a line of flags for each srun."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake_python(tmp_path / "bin" / "scancel", f'echo "$@" >>{tmp_path}/cancelled')

    def plant(script):
        logs = f'for flag in "$@"; do case $flag in --*) printf "%s " $flag;; esac; done >>{tmp_path}/calls'
        fake_python(tmp_path / "bin" / "srun", f"{logs}\necho >>{tmp_path}/calls\n{script.format(top=tmp_path)}")

    plant.calls = lambda: (tmp_path / "calls").read_text().splitlines()
    plant.cancelled = lambda: (tmp_path / "cancelled").read_text() if (tmp_path / "cancelled").exists() else ""
    return plant


@pytest.fixture
def needs(tmp_path):
    (tmp_path / "sn ap").mkdir()
    (tmp_path / "sn ap" / "train.py").touch()
    return (
        Need("the snapshot of the code", tmp_path / "sn ap" / "train.py", "r"),
        Need("the Python of the environment", Path(sys.executable), "x"),
        Need("machine.runs_dir", tmp_path, "w"),
    )


def flags(call):
    return dict(word.lstrip("-").partition("=")[::2] for word in call.split())


def name_of(call):
    return flags(call)["job-name"]


def gone(pid):
    return not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_node_that_can_use_every_path_answers_with_its_name(srun, needs):
    srun(RUNS)
    assert ask_node(GPU, needs, 20) == Answer("node7")
    assert srun.cancelled() == ""


def test_each_path_that_the_node_cannot_use_is_in_the_answer(srun, needs, tmp_path):
    srun("echo 'a line of the prolog'; echo scpo-probe; " + RUNS)
    (tmp_path / "python").touch(mode=0o644)
    lost = Need("the snapshot of the code", tmp_path / "gone" / "train.py", "r")
    plain = Need("the Python of the environment", tmp_path / "python", "x")
    answer = ask_node(GPU, (lost, needs[1], plain, needs[2]), 20)
    assert answer == Answer("node7", (lost, plain))
    assert str(plain) == f"execute the Python of the environment: {tmp_path}/python"


def test_the_sites_settings_choose_the_nodes_and_no_variable_of_this_shell_goes_there(srun, needs):
    srun(RUNS)
    site = Site(account="lab", qos="short", constraint="a800", more={"reservation": "rl", "comment": "x"})
    ask_node(ProbedPartition("gpu", site, gpus=True), needs, 20)
    (call,) = srun.calls()
    expected = {"partition": "gpu", "account": "lab", "qos": "short", "constraint": "a800", "reservation": "rl",
                "time": "1", "ntasks": "1", "mem": "100M", "export": "NONE", "immediate": "20"}  # fmt: skip
    assert expected.items() <= flags(call).items()
    assert not {"comment", "gpus-per-node"} & set(flags(call))


@pytest.mark.parametrize("memory_gb", [None, 0])
def test_memory_is_left_to_partitions_that_give_it_themselves(srun, needs, memory_gb):
    srun(RUNS)
    ask_node(ProbedPartition(None, Site(memory_gb=memory_gb), gpus=False), needs, 20)
    assert not {"mem", "partition"} & set(flags(srun.calls()[0]))


def test_a_probe_for_which_no_node_is_free_is_cancelled_and_nothing_is_proven(srun, needs, tmp_path):
    srun(HANGS)
    begun = time.monotonic()
    answer = ask_node(GPU, needs, 1)
    assert time.monotonic() - begun < 10
    assert answer == Answer(None, why="no node of partition gpu was free within 1 s")
    (call,) = srun.calls()
    assert srun.cancelled().split() == [f"--user={os.getuid()}", f"--name={name_of(call)}"]
    assert gone((tmp_path / "pids").read_text().strip())


def test_an_srun_that_gives_up_waiting_is_not_asked_again_with_a_gpu(srun, needs):
    srun("echo 'srun: error: Unable to allocate resources: Requested nodes are busy' >&2; exit 1")
    assert "was free within 20 s" in ask_node(GPU, needs, 20).why
    assert len(srun.calls()) == 1


def test_a_partition_that_takes_no_job_without_a_gpu_is_asked_with_one(srun, needs):
    srun(f'case "$*" in *--gres=gpu:a800:1*) ;; *) {NO_GPU};; esac\n{RUNS}')
    assert ask_node(ProbedPartition("gpu", Site(gres="gpu:a800:4"), gpus=True), needs, 20) == Answer("node7")
    first, second = srun.calls()
    assert "gres" not in flags(first)
    assert name_of(first) != name_of(second)


@pytest.mark.parametrize(("where", "calls"), [(GPU, 2), (CPU, 1)])
def test_what_the_scheduler_refuses_is_unproven_with_its_words(srun, needs, where, calls):
    srun(NO_GPU)
    assert ask_node(where, needs, 20) == Answer(None, why="srun: Unable to allocate resources: ask for a GPU here")
    assert len(srun.calls()) == calls


def test_a_silent_slurmctld_is_asked_once_and_the_job_it_may_have_is_cancelled(srun, needs):
    srun("echo 'srun: error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    assert "Unable to contact slurm controller" in ask_node(GPU, needs, 20).why
    (call,) = srun.calls()
    assert name_of(call) in srun.cancelled()


def test_an_answer_that_breaks_off_proves_nothing(srun, needs):
    srun("echo 'scpo-probe node node7'; echo 'srun: error: Node failure on node7' >&2; exit 1")
    assert ask_node(CPU, needs, 20) == Answer(None, why="srun: Node failure on node7")


def test_without_srun_nothing_is_proven(needs, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_node(CPU, needs, 20) == Answer(None, why="srun: No such file or directory")


def test_inside_an_allocation_the_probe_is_a_job_of_its_own(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "lab")
    found = node_probe._environment()
    assert {key: value for key, value in found.items() if key.startswith("SLURM_")} == {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_ACCOUNT": "lab",
    }


def stop_when_it_waits(pids, number):
    """Signal this process once srun waits."""

    def send():
        while not pids.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


def test_ctrl_c_cancels_the_probe(srun, needs, tmp_path):
    srun(HANGS)
    stop_when_it_waits(tmp_path / "pids", signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ask_node(GPU, needs, 50)
    assert name_of(srun.calls()[0]) in srun.cancelled()
    assert gone((tmp_path / "pids").read_text().strip())


def test_a_launcher_that_counts_signals_counts_this_one(srun, needs, tmp_path):
    srun(HANGS)
    counts = CountsSignals()
    with counts:
        stop_when_it_waits(tmp_path / "pids", signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            ask_node(GPU, needs, 50)
    assert counts.signals == 1
    assert name_of(srun.calls()[0]) in srun.cancelled()


def test_sigterm_ends_the_process_after_the_probe_is_cancelled(srun, needs, tmp_path):
    srun(HANGS)
    code = (
        "from sweeps.launchers.slurm.cluster_settings import Site\n"
        "from sweeps.launchers.slurm.node_probe import ProbedPartition, ask_node\n"
        "ask_node(ProbedPartition(None, Site(), gpus=False), (), 50)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    while not (tmp_path / "pids").exists() and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM
    assert name_of(srun.calls()[0]) in srun.cancelled()
    assert gone((tmp_path / "pids").read_text().strip())
