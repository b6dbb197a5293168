import pytest

from sweeps.launchers.slurm import job as slurm_job
from sweeps.launchers.slurm.job import Cause, cause_of_warning
from sweeps.launchers.slurm.job_records import Job

JOB = Job(name="a", index=None, job_id="1", limit_s=3600, warn_s=600, max_timeouts=3)


@pytest.mark.parametrize(
    ("elapsed_s", "preempted", "cause"),
    [
        (10, True, Cause.PREEMPTION),
        (3500, True, Cause.PREEMPTION),  # Slurm's word goes first
        (3000, False, Cause.TIMEOUT),
        (10, None, Cause.PREEMPTION),  # no time limit is that near
        (2939, None, Cause.PREEMPTION),
        (2940, None, Cause.TIMEOUT),  # the warning may come a minute early
        (3500, None, Cause.TIMEOUT),
    ],
)
def test_a_time_limit_is_told_from_a_preemption(elapsed_s, preempted, cause):
    assert cause_of_warning(JOB, elapsed_s, preempted) is cause


def test_the_first_lines_of_a_job_name_its_node_and_what_is_installed_there(monkeypatch):
    monkeypatch.setattr(slurm_job, "installed_gpus", lambda: [("A800", 79.15)] * 2)
    monkeypatch.setattr(slurm_job, "driver_version", lambda: "580.65.06")
    versions = {"torch": "2.11.0", "verl": "0.9.1"}
    monkeypatch.setattr(slurm_job, "installed_version", versions.get)
    line = slurm_job.node_report()
    assert "driver 580.65.06, GPUs: A800 79 GiB, A800 79 GiB, torch 2.11.0, verl 0.9.1" in line
    assert "\n" not in line
    monkeypatch.setattr(slurm_job, "installed_gpus", list)
    monkeypatch.setattr(slurm_job, "driver_version", lambda: None)
    assert "driver none, GPUs: none" in slurm_job.node_report()
