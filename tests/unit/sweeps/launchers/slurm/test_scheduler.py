import os

import pytest

from scpo.records.status import JobState
from sweeps.launchers.slurm.job_lines import is_end
from sweeps.launchers.slurm.scheduler import NoSuchJobError, SchedulerError, Slurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Slurm's commands, replaced: each prints what it is told to."""

    def says(command, text, status=0):
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\ncat <<'END'\n{text}\nEND\nexit {status}\n")
        path.chmod(0o755)

    def prints(command, data):
        """Exactly these bytes, and a warning."""
        (tmp_path / f"{command}.bytes").write_bytes(data)
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\necho warning: busy >&2\ncat {tmp_path}/{command}.bytes\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    says.asked = (tmp_path / "asked").read_text
    says.environment = (tmp_path / "env").read_text
    says.prints = prints
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
    slurm("sacct", "Slurm accounting storage is disabled", 1)
    assert Slurm().ends(["12_0"]) == {}


QUEUE = b"12_0|RUNNING|None|ablation-0a\n12_1|PENDING|Resources|ablation-0a\n"


@pytest.mark.parametrize(
    "notice",
    [
        b"NOTICE: maintenance on Friday",
        b"3 nodes are down",
        b"2026-11-27 maintenance",
        b"| gpu | is full | until | Monday |",
        b"CLUSTER: c1",
        b"Stra\xdfe gesperrt",
    ],
)
def test_lines_that_are_not_about_a_job_are_skipped(slurm, notice):
    slurm.prints("squeue", notice + b"\n" + QUEUE + notice)
    assert list(Slurm().jobs()) == ["12_0", "12_1"]
    slurm.prints("sacct", notice + b"\n12_0|NODE_FAIL|0:0\n12_1.batch|FAILED|1:0\n" + notice)
    assert Slurm().ends(["12_0"]) == {"12_0": "NODE_FAIL"}


@pytest.mark.parametrize("cut", range(1, 35))
def test_an_answer_of_squeue_that_is_cut_off_within_a_line_is_none(slurm, cut):
    """It was a ValueError, or the job counted as gone because its name had lost its end."""
    last = QUEUE.splitlines()[1]
    slurm.prints("squeue", QUEUE.removesuffix(last + b"\n") + last[:cut])
    assert Slurm().jobs() is None


@pytest.mark.parametrize(
    "line",
    ["12_1", "12_1|", "12_1|PENDING", "12_1|PENDING|None", "12_1||None|ablation-0a", "12_[0-1|PENDING|None|a"],
)
def test_a_job_line_of_squeue_without_all_its_fields_makes_the_answer_none(slurm, line):
    slurm("squeue", f"12_0|RUNNING|None|ablation-0a\n{line}")
    assert Slurm().jobs() is None


@pytest.mark.parametrize("line", ["101_0", "101_0|NODE_F", "101_0||0:0", "102_[0,2,...]|PENDING|0:0"])
def test_a_job_line_of_sacct_without_all_its_fields_makes_the_answer_none(slurm, line):
    slurm("sacct", line)
    assert Slurm().ends(["101_0"]) is None


def test_waiting_elements_of_an_array_are_read_from_their_group(slurm):
    slurm("sacct", "102_0|FAILED|1:0\n102_[3-3%4]|PENDING|0:0\n102_[5,7-8,10-14:2%4]|PENDING|0:0")
    waiting = dict.fromkeys([f"102_{index}" for index in (3, 5, 7, 8, 10, 12, 14)], "PENDING")
    assert Slurm().ends(["102_3", "102_0"], ["ablation-0a"]) == {"102_0": "FAILED, exit status 1", **waiting}
    # By the id of the array, as a waiting element has no record of its own.
    assert slurm.asked().split()[-2:] == ["--jobs=102", "--name=ablation-0a"]
    slurm("squeue", "102_[3,5-6%4]|PENDING|Priority|ablation-0a\n103+0|RUNNING|None|other")
    assert list(Slurm().jobs()) == ["102_3", "102_5", "102_6", "103+0"]


def test_states_may_have_words_after_them(slurm):
    slurm("sacct", "1|OUT_OF_MEMORY|0:125\n2|CANCELLED by 1000|0:0\n3|COMPLETED+|\n4|OUT_OF_MEMORY|137:0")
    ends = Slurm().ends(["1"])
    assert list(ends.values()) == [
        "OUT_OF_MEMORY",
        "CANCELLED by 1000",
        "COMPLETED+",
        "OUT_OF_MEMORY, exit status 137",
    ]
    assert all(map(is_end, ends.values()))
    live = "PENDING RUNNING REQUEUED SUSPENDED CONFIGURING COMPLETING SPECIAL_EXIT NEW_STATE"
    assert not any(map(is_end, live.split()))


@pytest.mark.parametrize(
    "error",
    [
        "slurm_persist_conn_open: Connection refused",
        "Unable to contact slurmdbd",
        "Problem talking to the database: Unspecified error",
        "Access/permission denied",
        "",
    ],
)
def test_an_error_of_sacct_is_no_answer_unless_accounting_is_disabled(slurm, error):
    slurm("sacct", f"sacct: error: {error}", 1)
    assert Slurm().ends(["12_0"]) is None


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        ("Kill job error on job id 12: Invalid job id specified", True),
        ("Kill job error on job id 12: Job/step already completing or completed", True),
        ("Kill job error on job id 12: Unable to contact slurm controller (connect failure)", False),
        ("Kill job error on job id 12: Access/permission denied", False),
        ("", False),
    ],
)
def test_scancel_of_a_job_that_slurm_does_not_have_fails_otherwise_than_without_an_answer(slurm, error, gone):
    slurm("scancel", f"scancel: error: {error}", 1)
    with pytest.raises(SchedulerError) as failed:
        Slurm().cancel("12")
    assert isinstance(failed.value, NoSuchJobError) is gone


@pytest.mark.parametrize("end", range(1, len("101_0|FAILED|125:0")))
def test_an_answer_of_sacct_that_is_cut_off_within_a_line_is_none(slurm, end):
    slurm.prints("sacct", b"101_1|FAILED|1:0\n" + b"101_0|FAILED|125:0"[:end])
    assert Slurm().ends(["101_0"]) is None


def test_preferences_of_the_users_shell_hide_no_job(slurm, monkeypatch):
    for name in ("SQUEUE_STATES", "SQUEUE_FORMAT2", "SACCT_FORMAT", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "RUNNING")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    slurm.prints("squeue", QUEUE)
    Slurm().jobs()
    passed = dict(line.partition("=")[::2] for line in slurm.environment().splitlines())
    assert [name for name in passed if name.startswith(("SQUEUE", "SACCT", "SLURM_TIME"))] == []
    assert (passed["SLURM_CONF"], passed["SLURM_BITSTR_LEN"]) == ("/etc/slurm.conf", "0")


def test_a_command_that_cannot_be_started_is_no_answer(slurm, tmp_path):
    slurm("squeue", "")
    (tmp_path / "squeue").write_bytes(b"\0")  # no program
    assert Slurm().jobs() is None


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
