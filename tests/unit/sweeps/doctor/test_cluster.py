"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import pytest

from scpo.findings import Level
from scpo.schema.run import SlurmLauncher
from sweeps.compose.configuration import compose_run
from sweeps.doctor import cluster as cluster_checks
from sweeps.doctor.subject import Subject
from sweeps.launchers.slurm import reachable
from sweeps.launchers.slurm.node_probe import Answer
from tests.support.doctor_findings import assert_finds

SITE = "partition: a800\n"


@pytest.fixture
def cluster(subject, tmp_path, commands, monkeypatch):
    """A subject on Slurm: commands that answer, and a site with the partition `a800`."""

    def make(row="a800|up|2-00:00:00|64|gpu:a800:4(S:0-1)|1/3/0/4", sacct="exit 0", without=(), site=SITE, time_h=24):
        for name in set(cluster_checks.COMMANDS) - set(without):
            commands(name, {"sinfo": f"echo '{row}'", "sacct": sacct}.get(name, "exit 0"))
        path = tmp_path / "site.yaml"
        if site is not None:
            path.write_text(site)
        launcher = SlurmLauncher(
            name="slurm", gpus=4, cpus=32, gpu_gb=80.0, parallelism=8, time_h=time_h, warn_s=1800, max_timeouts=3,
            max_failures=3, site=str(path),
        )  # fmt: skip
        config = subject().first.model_copy(update={"launcher": launcher})
        monkeypatch.setattr(reachable, "file_system", lambda _: "nfs4")
        return Subject((config,), 1)

    return make


def test_a_cluster_that_fits(cluster):
    assert {one.level for one in cluster_checks.check_slurm(cluster())} == {Level.OK}


def test_fewer_jobs_at_a_time_than_arrays_are_an_error_as_in_the_sweep(cluster, commands, subject):
    on_slurm = cluster(time_h=None)
    commands("scontrol", "echo 'MaxArraySize            = 3'")
    words = ["launcher=slurm_a800x4", "launcher.parallelism=1", f"launcher.site={on_slurm.first.launcher.site}"]
    planned = subject("+experiment=one", "scale=paper", *words, "seeds=[0,1,2,3]")
    found = list(cluster_checks.check_slurm(planned))
    assert_finds(found, "error", "launcher.parallelism=1 jobs may run at a time, and these runs make", "parallelism=<")
    assert not any(one.level is Level.OK for one in found if one.check == "slurm limits")


def test_without_a_partition_of_the_sites_the_default_one_is_looked_at(cluster):
    rows = "large|up|2-00:00:00|64|gpu:4|1/3/0/4\ndefault*|up|2-00:00:00|8|gpu:4|1/3/0/4"
    found = cluster_checks.check_slurm(cluster(row=rows, site=""))
    assert_finds(found, "error", "nodes have 8 cores")


def test_a_machine_without_slurm(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(without=("sbatch", "sacct"))), "error", "not found: sbatch, sacct")


def test_a_run_that_fits_no_gpu_has_the_fix_of_its_memory(cluster, subject):
    """Its fix was launcher.time_h=<hours>."""
    site = f"launcher.site={cluster().first.launcher.site}"
    words = ("scale=paper", "model=qwen2_5_7b", "launcher=slurm_a800x4", site)
    large = cluster_checks.check_slurm(subject(*words, "trainer=verl_1gpu"))
    (found,) = (one for one in large if one.check == "slurm job")
    assert found.text.startswith("7B with trainer=verl needs about 139 GiB of each GPU")
    assert found.text.endswith("a GPU has 80")
    assert found.fix.startswith("More trainer.verl.gpus, among which weights, gradients and optimizer are divided")
    short = cluster_checks.check_slurm(subject(*words, "launcher.time_h=0.1"))
    assert_finds(short, "error", "launcher.warn_s=1800 is not less than the time limit", "launcher.time_h=<hours>")


def test_a_cluster_without_accounting(cluster):
    found = cluster_checks.check_slurm(cluster(sacct="echo 'Slurm accounting storage is disabled' >&2; exit 1"))
    assert_finds(found, "warning", "accounting storage is disabled", "slurmdbd")


def test_a_site_file_that_is_not_there(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(site=None)), "error", "No such file", "launcher.site=")


def test_a_wrong_key_in_the_site_file_is_mended_there(cluster, tmp_path):
    (finding,) = (one for one in cluster_checks.check_slurm(cluster(site="partitoin: a800")) if one.fix)
    assert "unknown key partitoin" in finding.text
    assert finding.fix == f"edit {tmp_path / 'site.yaml'}"


@pytest.mark.parametrize(
    ("gres", "known"), [("gpu", True), ("gpu:a800", True), ("gpu:a800:4", True), ("gpu:h100", False)]
)
def test_a_gres_that_no_node_of_the_partition_has(cluster, gres, known):
    found = list(cluster_checks.check_slurm(cluster(site=f"{SITE}gres: {gres}\n")))
    if not known:
        assert_finds(found, "error", f"gres: {gres}; its nodes have gpu, gpu:a800", "leave it out")
    assert any("gres" in finding.text for finding in found) is not known


def test_a_gres_that_names_no_gpu(cluster):
    found = cluster_checks.check_slurm(cluster(site=f"{SITE}gres: nvme:1\n"))
    assert_finds(found, "error", "gres: got 'nvme:1'; it names the GPUs that jobs ask for", "edit ")


def test_a_key_in_the_site_file(cluster):
    found = cluster_checks.check_slurm(cluster(site=f"{SITE}setup: [export HF_TOKEN=abc]\n"))
    assert_finds(found, "warning", "holds HF_TOKEN in clear", "export it in the shell")


def test_a_job_whose_time_limit_nobody_knows(cluster):
    found = cluster_checks.check_slurm(cluster(time_h=None))
    assert_finds(found, "error", "give the longest time of a job", "launcher.time_h=")


@pytest.mark.parametrize(("memory", "few"), [("1", True), ("4000", False), ("0", False), ("null", False)])
def test_a_job_that_asks_for_less_memory_than_it_needs(cluster, memory, few):
    found = list(cluster_checks.check_slurm(cluster(site=f"{SITE}memory_gb: {memory}\n")))
    if few:
        assert_finds(found, "warning", "memory_gb: 1, a job needs 4 GB by estimate", "leave memory_gb out")
    assert any(finding.check == "slurm memory" for finding in found) is few


def test_a_partition_that_the_cluster_lacks(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(row="")), "error", "has no such partition")


BAD_PARTITIONS = {
    "down": ("a800|down|2-00:00:00|64|gpu:4|1/3/0/4", "error", "is down"),
    "drained": ("a800|up|2-00:00:00|64|gpu:4|0/0/2/2", "warning", "up, and none of its 2 nodes takes jobs now"),
    "few cores": ("a800|up|2-00:00:00|16|gpu:4|1/3/0/4", "error", "nodes have 16 cores, a job asks for 32"),
    "few GPUs": ("a800|up|2-00:00:00|64|gpu:a800:2|1/3/0/4", "error", "nodes have 2 GPUs, a job asks for 4"),
    "no GPUs": ("a800|up|2-00:00:00|64|(null)|1/3/0/4", "error", "nodes have 0 GPUs"),
    "odd limit": ("a800|up|31:00|64|gpu:a800:4|1/3/0/4", "warning", "allows 0.5167 h, a job asks for 24 h"),
    "short limit": ("a800|up|12:00:00|64|gpu:a800:4|1/3/0/4", "warning", "allows 12 h, a job asks for 24 h"),
}


@pytest.mark.parametrize(("row", "level", "text"), BAD_PARTITIONS.values(), ids=BAD_PARTITIONS)
def test_a_partition_that_does_not_fit(cluster, row, level, text):
    assert_finds(cluster_checks.check_slurm(cluster(row=row)), level, text)


def test_a_limit_of_the_account_and_a_folder_that_nodes_may_not_see(cluster, commands, tmp_path, monkeypatch):
    on_slurm = cluster()
    commands("scontrol", "echo 'MaxArraySize            = 1001'")
    monkeypatch.setattr(reachable, "file_system", lambda _: "ext4")
    found = list(cluster_checks.check_slurm(on_slurm))
    assert any("1001 jobs of an array" in one.text for one in found)
    assert_finds(found, "warning", "(ext4): no network file system", "file system that the nodes share")
    monkeypatch.setattr(reachable, "file_system", lambda _: "nfs4")
    assert {one.level for one in cluster_checks.check_slurm(on_slurm)} == {Level.OK}


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_where_slurm_names_no_node_folders_on_a_local_disk_are_not_called_readable(
    cluster, commands, monkeypatch, kind
):
    on_slurm = cluster()
    commands("sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setattr(reachable, "file_system", lambda _: kind)
    (files,) = (one for one in cluster_checks.check_slurm(on_slurm) if one.check == "slurm files")
    if kind == "nfs4":
        assert files.level is Level.OK
    else:
        assert files.level is Level.WARNING
        assert files.text.startswith("could not be checked, as Slurm names no node: machine.runs_dir")


def test_a_slurm_that_does_not_answer_is_named_once_with_the_partition(cluster, commands):
    first = cluster(site="partition: a800\ncpu_partition: cpu\n")
    api = compose_run(["scale=paper", "method=plain", "model=gpt_4o"]).model_copy(
        update={"launcher": first.first.launcher.model_copy(update={"gpus": None, "cpus": None})}
    )
    commands("sinfo", "echo 'Unable to contact slurm controller' >&2; exit 1")
    found = list(cluster_checks.check_slurm(Subject((first.first, api), 2)))
    said = [(one.check, one.text) for one in found if "Unable to contact" in one.text]
    assert said == [("partition a800", "not checked; sinfo: Unable to contact slurm controller")]


@pytest.fixture
def asked_node(monkeypatch):
    """The doctor on a host outside of the cluster; takes the answer that a node gives."""
    asked = []

    def plant(answer):
        monkeypatch.setattr(cluster_checks, "is_outside", lambda: True)
        monkeypatch.setattr(cluster_checks, "ask_node", lambda where, needs, _: asked.append(needs) or answer(needs))
        return asked

    return plant


def test_the_deep_doctor_lets_a_node_test_the_folder_that_will_hold_the_run_folders(cluster, asked_node):
    asked = asked_node(lambda _: Answer("node7"))
    on_slurm = cluster()
    (found,) = cluster_checks.check_node(on_slurm)
    assert (found.level, found.text) == (Level.OK, "node7 (partition a800) can execute Python and write run folders")
    ((python, folder),) = asked
    assert (python.use, folder.use) == ("x", "w")
    assert folder.path.exists()
    assert on_slurm.runs_dir.absolute().is_relative_to(folder.path)


def test_a_node_that_cannot_execute_python_is_an_error_and_a_busy_cluster_a_warning(cluster, asked_node):
    asked_node(lambda needs: Answer("node7", needs[:1]))
    assert_finds(cluster_checks.check_node(cluster()), "error", "cannot execute the Python of the environment", "share")
    asked_node(lambda _: Answer(None, why="no node was free within 60 s"))
    assert_finds(cluster_checks.check_node(cluster()), "warning", "no node was free", "later")


def test_where_the_site_file_is_missing_or_this_host_is_a_node_no_node_is_asked(cluster, asked_node, monkeypatch):
    asked = asked_node(lambda _: Answer("node7"))
    assert list(cluster_checks.check_node(cluster(site=None))) == []
    monkeypatch.setattr(cluster_checks, "is_outside", lambda: False)
    assert list(cluster_checks.check_node(cluster())) == []
    assert asked == []
