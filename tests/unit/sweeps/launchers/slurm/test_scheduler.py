import os

import pytest

from scpo.records.status import JobState
from sweeps.launchers.slurm.scheduler import SchedulerError, Slurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Slurm's commands, replaced: each prints what it is told to."""

    def says(command, text, status=0):
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\ncat <<'END'\n{text}\nEND\nexit {status}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    says.asked = (tmp_path / "asked").read_text
    return says


def test_one_squeue_tells_of_all_jobs(slurm):
    slurm("squeue", "12_0|RUNNING|None|ablation-0a\n12_1|PENDING|Resources|ablation-0a\n13|COMPLETING|None|odd|name\n")
    seen = Slurm().jobs()
    assert {job_id: (one.name, one.state, one.why) for job_id, one in seen.items()} == {
        "12_0": ("ablation-0a", JobState.RUNNING, "None"),
        "12_1": ("ablation-0a", JobState.QUEUED, "Resources"),
        "13": ("odd|name", JobState.RUNNING, "None"),  # no state that is not known to be waiting counts as over
    }
    assert f"--user={os.getuid()}" in slurm.asked()


def test_no_jobs_are_an_answer_and_a_failing_squeue_is_none(slurm):
    slurm("squeue", "")
    assert Slurm().jobs() == {}
    slurm("squeue", "slurm_load_jobs error: Unable to contact slurm controller", 1)
    assert Slurm().jobs() is None


def test_sacct_tells_how_jobs_ended_and_without_accounting_nothing_is_known(slurm):
    slurm("sacct", "12_0|NODE_FAIL|0:0\n12_1|CANCELLED by 1000|0:15\n12_2|FAILED|3:0")
    assert Slurm().ends(["12_0", "12_1", "12_2"]) == {
        "12_0": "NODE_FAIL",
        "12_1": "CANCELLED by 1000, ended by signal 15",
        "12_2": "FAILED, exit status 3",
    }
    assert Slurm().ends([]) == {}
    slurm("sacct", "accounting_storage/none", 1)
    assert Slurm().ends(["12_0"]) == {}


def test_a_preemption_is_known_by_its_time(slurm):
    slurm("scontrol", "JobId=7 JobState=RUNNING PreemptEligibleTime=2026-11-20T10:00:00 PreemptTime=None Partition=gpu")
    assert Slurm().preempted("7") is False
    slurm("scontrol", "JobId=7 JobState=RUNNING PreemptTime=2026-11-20T10:03:00 Partition=gpu")
    assert Slurm().preempted("7") is True
    slurm("scontrol", "JobId=7 Restarts=1 StartTime=2026-11-20T10:05:00 PreemptTime=2026-11-20T10:03:00")
    assert Slurm().preempted("7") is False  # that was before it was requeued
    slurm("scontrol", "slurm_load_jobs error: Unable to contact slurm controller", 1)
    assert Slurm().preempted("7") is None


def test_a_command_that_slurm_refuses_says_why(slurm):
    slurm("scontrol", "Requested operation is presently disabled", 1)
    with pytest.raises(SchedulerError, match=r"scontrol requeue 7: .*presently disabled"):
        Slurm().requeue("7")
    slurm("scancel", "")
    Slurm().cancel("7_1")
    assert slurm.asked().splitlines()[-1] == "7_1"


def test_without_slurm_there_is_no_answer(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Slurm().jobs() is None
    with pytest.raises(SchedulerError, match="scancel is not installed"):
        Slurm().cancel("7")
