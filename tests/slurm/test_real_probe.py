"""A real Slurm whose only node is taken for another host: what its node can and cannot read, a full node, a stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from scpo.errors import ConfigError
from sweeps import dispatch
from sweeps.compose.matrix import expand
from sweeps.launchers.slurm.cluster_settings import Site
from sweeps.launchers.slurm.launcher import Cluster
from sweeps.launchers.slurm.node_probe import Need, ProbedPartition, ask_node
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.launchers.slurm.submission import call_sbatch
from tests.slurm import test_real_slurm as real

pytestmark = real.pytestmark
GPU = ProbedPartition("gpu", Site(gres="gpu:a800"), gpus=True)
CALL = """
import sys
from pathlib import Path
from tests.slurm.test_real_probe import sweep_from_outside
sweep_from_outside(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def sweep_from_outside(runs: Path, site: Path) -> None:
    """sweep.py, as on a host that is no node."""
    words = ("seeds=[0]", "trainer.steps=1", "wandb.mode=disabled", "launcher=slurm_a800x4", "launcher.time_h=0.1")
    machine = (f"machine.runs_dir={runs}", f"launcher.site={site}", "launcher.warn_s=60")
    matrix = expand("ablation_order", (*words, *machine))

    def launcher_for(configs):
        return Cluster(configs[0].launcher, runs, Slurm(), call_sbatch, outside=lambda: True)

    dispatch.run(Console(width=500), matrix, launcher_for, Observer(Slurm()))


def queue() -> list[str]:
    return real.slurm("squeue", "--noheader", "--format=%j %T", "--states=PENDING,RUNNING").splitlines()


def jobs_submitted() -> int:
    """Number of the last job: it counts all that were ever queued."""
    lines = real.slurm("scontrol", "show", "config").splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("NEXT_JOB_ID")))


@pytest.fixture
def full_node():
    """The node is another job's."""
    wrap = ("--exclusive", "--gpus-per-node=4", "--output=/dev/null", "--job-name=other", "--wrap=sleep 60")
    real.slurm("sbatch", *wrap)
    real.wait_until(lambda: queue() == ["other RUNNING"], 20)
    yield
    real.slurm("scancel", "--name=other")
    real.wait_until(lambda: not real.slurm("squeue", "--noheader").strip(), 30)


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"partition": "gpu", "gres": "gpu:a800"}))
    return path


def test_a_node_that_can_use_the_folders_answers_with_its_name(tmp_path):
    (tmp_path / "it's here").touch()
    needs = (Need("code", tmp_path / "it's here", "r"), Need("Python", Path(sys.executable), "x"))
    answer = ask_node(GPU, (*needs, Need("runs", tmp_path, "w")), 20)
    assert (answer.node, answer.lacking) == (os.uname().nodename.partition(".")[0], ())


def test_what_the_node_cannot_use_is_in_its_answer(tmp_path):
    needs = (Need("code", tmp_path / "gone", "r"), Need("Python", Path(sys.executable), "x"))
    answer = ask_node(GPU, needs, 20)
    assert answer.node
    assert answer.lacking == needs[:1]


def test_the_probe_waits_for_a_full_node_until_its_time_limit_and_leaves_the_queue(full_node, tmp_path):
    begun = time.monotonic()
    answer = ask_node(GPU, (Need("runs", tmp_path, "w"),), 3)
    assert time.monotonic() - begun < 10
    assert (answer.node, answer.why) == (None, "no node of partition gpu was free within 3 s")
    assert queue() == ["other RUNNING"]


def test_ctrl_c_takes_a_waiting_probe_out_of_the_queue(full_node, tmp_path):
    seen = []

    def stop():
        real.wait_until(lambda: len(queue()) == 2, 20)
        seen.extend(queue())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        ask_node(GPU, (Need("runs", tmp_path, "w"),), 60)
    assert any(line.startswith("scpo-probe-") and line.endswith("PENDING") for line in seen)
    assert queue() == ["other RUNNING"]


def test_a_refusal_of_slurm_is_shown_in_its_words(tmp_path):
    answer = ask_node(ProbedPartition("gpuu", Site(), gpus=False), (Need("runs", tmp_path, "w"),), 20)
    assert answer.node is None
    assert "nvalid partition" in answer.why


@pytest.mark.timeout(240)
def test_a_folder_of_another_mount_namespace_is_refused_before_sbatch_and_a_shared_one_is_submitted(tmp_path, site):
    """The private folder lies under a mount that only the submitting process has, as on another host."""
    hidden, point = tmp_path / "hidden", tmp_path / "point"
    hidden.mkdir()
    point.mkdir()
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs mount namespaces: unshare --mount")

    def call(runs: Path, *before: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(real.ROOT)}
        command = [*before, sys.executable, "-c", CALL, str(runs), str(site)]
        return subprocess.run(command, cwd=real.ROOT, env=env, capture_output=True, text=True, check=False)

    before = jobs_submitted()
    mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
    done = call(point / "runs", "unshare", "--mount", "sh", "-c", mount, str(hidden), str(point))
    assert done.returncode == 1, done.stdout + done.stderr
    complaint = done.stderr.splitlines()[-1]
    assert complaint.startswith(f"{ConfigError.__module__}.{ConfigError.__name__}: node ")
    assert f"cannot read the snapshot of the code: {point}/runs/.snapshots/" in complaint
    assert f"cannot write to machine.runs_dir: {point}/runs" in complaint
    assert "the Python of the environment" not in complaint
    assert queue() == []
    assert jobs_submitted() == before + 1  # the probe
    folders = [path for path in (hidden / "runs").iterdir() if (path / "status.json").exists()]
    assert len(folders) == 2
    assert not any((folder / "job.json").exists() for folder in folders)
    assert not (hidden / "runs" / ".submissions").exists()

    done = call(tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "can use the snapshot of the code, the Python of the environment, machine.runs_dir" in done.stdout
    assert "submitted 2 runs" in done.stdout
    real.slurm("scancel", "--user=root")
    real.wait_until(lambda: not real.slurm("squeue", "--noheader").strip(), 60)
