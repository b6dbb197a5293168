"""Limits of a cluster, and how arrays are split and share the jobs that may run."""

import os
from io import StringIO

import pytest
from rich.console import Console

from scpo.errors import ConfigError
from scpo.records import RunFolder
from sweeps import dispatch
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.launchers.slurm import launcher as cluster
from sweeps.launchers.slurm.job_limits import JobLimits, array_size_of, shares, split
from sweeps.launchers.slurm.refusal import RefusedError
from sweeps.launchers.slurm.scheduler import Slurm
from tests.support.fake_slurm import FakeSlurm

SLURM = "launcher=slurm_a800x4"
WORDS = [SLURM, "launcher.time_h=1", "launcher.warn_s=60"]


@pytest.mark.parametrize(("runs", "size", "parts"), [(5, None, [5]), (5, 5, [5]), (6, 5, [3, 3]), (11, 5, [4, 4, 3])])
def test_an_array_is_split_at_the_clusters_limit(runs, size, parts):
    names = [str(number) for number in range(runs)]
    found = split(names, size)
    assert [len(part) for part in found] == parts
    assert [name for part in found for name in part] == names


@pytest.mark.parametrize(
    ("sizes", "running", "given"),
    [([12], 8, [8]), ([3], 8, [3]), ([10, 2], 6, [5, 1]), ([1, 1], 8, [1, 1]), ([], 8, [])],
)
def test_arrays_share_the_jobs_that_may_run_at_a_time(sizes, running, given):
    assert shares(sizes, running) == given


def test_fewer_jobs_at_a_time_than_arrays_are_refused():
    with pytest.raises(ConfigError, match=r"parallelism=1 jobs may run at a time, and these runs make 2 arrays"):
        shares([3, 3], 1)
    with pytest.raises(ConfigError, match=r"make 2 arrays \(the cluster's MaxArraySize is 3\), of which"):
        shares([3, 3], 1, 3)


def test_max_array_size_is_read_and_0_means_no_arrays():
    assert array_size_of(["MaxArraySize            = 1001", "MaxJobCount = 10000"]) == 1001
    assert array_size_of(["MaxArraySize = 0"]) == 1
    assert array_size_of([]) is None


def test_the_limits_of_the_account_and_its_quality_of_service_are_read(tmp_path, monkeypatch):
    scripts = {
        "scontrol": "echo 'MaxArraySize = 1001'",
        "sacctmgr": (
            'case "$*" in *associations*) echo "lab|20|100|normal"; echo "other|1|1|none";; '
            '*qos*) echo "normal|16||  |200"; echo "none|1|1||";; esac'
        ),
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Slurm().limits("lab") == JobLimits(array_size=1001, submitted=100, running=16)
    assert Slurm().limits("lab", "none") == JobLimits(array_size=1001, submitted=1, running=1)


def test_notices_and_rows_that_are_cut_off_are_no_limits(tmp_path, monkeypatch):
    """Of "lab|20|100|normal", the limit was 1 job."""
    (tmp_path / "sacctmgr").write_text("#!/bin/sh\necho 'NOTICE: maintenance on Friday'\nprintf 'lab|20|1'\n")
    (tmp_path / "sacctmgr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Slurm().limits() == JobLimits()
    assert Slurm().limits("lab") == JobLimits()


def test_without_slurm_there_are_no_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Slurm().limits() == JobLimits()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Seven runs that ask for the same, and a cluster that keeps what it is given."""
    monkeypatch.setattr(cluster, "freeze", lambda runs_dir, *_: runs_dir / "snapshot")
    monkeypatch.setattr(cluster, "check_reachable", lambda _: None)
    config = compose_run([*WORDS, "scale=paper"])
    folders = {f"run-{number}": RunFolder(tmp_path / f"run-{number}") for number in range(7)}
    for folder in folders.values():
        folder.path.mkdir()
    return {name: (folder, config) for name, folder in folders.items()}


class Submitted(FakeSlurm):
    """Keeps the submissions."""

    def __call__(self, submission):
        self.arrays = [*getattr(self, "arrays", []), submission]
        return super().__call__(submission)


def submitted(runs, tmp_path, limits):
    slurm = Submitted(job_limits=limits)
    config = next(iter(runs.values()))[1]
    return slurm, cluster.Cluster(config.launcher, tmp_path, slurm, slurm, outside=lambda: False)


def test_more_runs_than_an_array_may_have_become_several_that_share_the_limit(runs, tmp_path):
    slurm, pool = submitted(runs, tmp_path, JobLimits(array_size=3, running=6))
    ids = pool.submit_all(runs, "table")
    assert len(set(ids)) == 7
    assert [len(one.runs) for one in slurm.arrays] == [3, 3, 1]
    assert sum(one.running for one in slurm.arrays) == 6
    planned = list(pool.planned({name: config for name, (_, config) in runs.items()}))
    assert [(len(one.runs), one.running) for one in planned] == [(len(one.runs), one.running) for one in slurm.arrays]


def test_an_account_that_may_run_fewer_jobs_than_there_are_arrays_is_left_to_slurms_queue(runs, tmp_path):
    slurm, pool = submitted(runs, tmp_path, JobLimits(array_size=3, running=2))
    assert len(pool.submit_all(runs, "table")) == 7
    assert [one.running for one in slurm.arrays] == [1, 1, 1]


def test_the_papers_main_table_fits_the_launcher_as_shipped(tmp_path):
    matrix = expand("main_table", ("scale=paper", SLURM))
    launcher = dispatch.launcher_of(matrix)
    slurm = FakeSlurm()
    planned = list(cluster.Cluster(launcher, tmp_path, slurm, slurm).planned(dict(matrix.runs)))
    assert sum(len(submission.runs) for submission in planned) == len(matrix.runs)
    assert sum(submission.running for submission in planned) <= launcher.parallelism


def test_what_the_account_may_not_submit_stays_pending_and_is_told(runs, tmp_path):
    slurm, pool = submitted(runs, tmp_path, JobLimits(submitted=5))
    with pytest.raises(
        RefusedError,
        match=r"may have 5 jobs .* Not submitted: 2 runs; submitted before that: 5 runs",
    ):
        pool.submit_all(runs, "table")
    assert len(slurm.submitted) == 5
    assert sum((folder.path / "job.json").exists() for folder, _ in runs.values()) == 5
    with pytest.raises(RefusedError, match=r"Not submitted: 7 runs$"):
        pool.submit_all(runs, "table")  # all five are still queued
    assert len(slurm.submitted) == 5


def test_a_dry_run_refuses_a_folder_that_sbatch_would_misread(runs, tmp_path):
    _, pool = submitted(runs, tmp_path / "a\nb", JobLimits(array_size=3, running=6))
    with pytest.raises(ConfigError, match="sbatch reads % as a pattern and a line break as the end"):
        next(pool.planned({name: config for name, (_, config) in runs.items()}))


def test_a_dry_run_with_more_arrays_than_jobs_at_a_time_shows_them_before_the_error(runs, tmp_path):
    pytest.importorskip("submitit", reason="needs submitit: make setup")
    _, pool = submitted(runs, tmp_path, JobLimits(array_size=3))
    pool.launcher = pool.launcher.model_copy(update={"parallelism": 2})
    console = Console(file=StringIO(), width=300)
    with pytest.raises(ConfigError, match=r"parallelism=2 .* make 3 arrays \(the cluster's MaxArraySize is 3\)"):
        pool.preview(console, {name: config for name, (_, config) in runs.items()})
    assert "#SBATCH --array=0-2" in console.file.getvalue()
