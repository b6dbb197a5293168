"""What nodes cannot read is seen before a job is submitted."""

from pathlib import Path

import pytest

from scpo.errors import ConfigError
from sweeps.launchers.slurm import reachable
from sweeps.launchers.slurm.cluster_settings import Site
from sweeps.launchers.slurm.node_probe import Answer, ProbedPartition


def test_run_folders_in_this_hosts_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reachable, "node_names", lambda: {"node1"})
    monkeypatch.setattr(reachable, "file_system", lambda _: "tmpfs")
    with pytest.raises(ConfigError, match="on tmpfs: in this host's memory, where no node can read it"):
        reachable.check_reachable(tmp_path)


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "ext4"])
def test_network_file_systems_and_unknown_ones_are_not_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(reachable, "node_names", lambda: {"node1"})
    monkeypatch.setattr(reachable, "file_system", lambda _: kind)
    reachable.check_reachable(tmp_path)
    assert bool(list(reachable.local_folders(tmp_path))) == (kind == "ext4")


def test_on_a_cluster_of_this_one_machine_every_folder_will_do(tmp_path, monkeypatch):
    monkeypatch.setattr(reachable.socket, "gethostname", lambda: "node1.example.org")
    monkeypatch.setattr(reachable, "node_names", lambda: {"node1"})
    monkeypatch.setattr(reachable, "file_system", lambda _: "tmpfs")
    reachable.check_reachable(tmp_path)


GPU = ProbedPartition("gpu", Site(), gpus=True)
NEEDS = reachable.needs_of_jobs(Path("/home/me/runs"), Path("/home/me/runs/.snapshots/ab"))


def test_what_a_node_cannot_use_is_refused_with_the_node_the_paths_and_the_key():
    with pytest.raises(ConfigError) as caught:
        reachable.check_on_node(GPU, NEEDS, 60, lambda *_: Answer("node7", (NEEDS[0], NEEDS[2])))
    text = str(caught.value)
    assert text.startswith(
        "node node7 (partition gpu) cannot read the snapshot of the code: "
        "/home/me/runs/.snapshots/ab/train.py, cannot write to machine.runs_dir: /home/me/runs. Nothing was submitted"
    )
    assert "machine.runs_dir=<a folder there>" in text
    assert "launcher.probe_s=0" in text


def test_without_an_answer_one_line_tells_that_jobs_check_it_themselves():
    busy = Answer(None, why="no node of partition gpu was free within 60 s")
    text = reachable.check_on_node(GPU, NEEDS, 60, lambda *_: busy)
    assert text == (
        "not tested if nodes can read the code and Python: no node of partition gpu was free within 60 s. "
        "Each job tests it on its node, and ends with one line (exit status 78) if the node cannot"
    )


def test_the_node_that_can_use_all_is_named():
    assert reachable.check_on_node(GPU, NEEDS, 60, lambda *_: Answer("node7")) == (
        "node node7 (partition gpu) can use the snapshot of the code, the Python of the environment, machine.runs_dir"
    )
