"""What nodes cannot read is seen before a job is submitted."""

import pytest

from scpo.errors import ConfigError
from sweeps.launchers.slurm import reachable


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
