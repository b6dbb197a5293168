import pytest

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
