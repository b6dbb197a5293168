import pytest

from scpo.errors import RecordError
from scpo.records.files import write_json
from scpo.records.status import JobState
from sweeps.launchers.slurm.job_records import Job, read_job, write_job
from sweeps.launchers.slurm.scheduler import ListedJob
from tests.support import fake_runs as fake

JOB = Job(name="ablation-0a", index=1, job_id="12_1", limit_s=3600, warn_s=600, max_timeouts=3)
QUEUE = {
    "12_0": ListedJob("ablation-0a", JobState.RUNNING, ""),
    "12_1": ListedJob("ablation-0a", JobState.QUEUED, "Priority"),
}


def test_a_job_is_what_was_written(tmp_path):
    folder = fake.make_run(tmp_path)
    assert read_job(folder) is None
    write_job(folder, JOB)
    assert read_job(folder) == JOB
    write_json(folder.job, {"name": 3})
    with pytest.raises(RecordError, match=r"job\.json is no valid job"):
        read_job(folder)


STATES = {
    "with its id": (JOB, QUEUE, JobState.QUEUED),
    "gone from the queue": (JOB, {}, JobState.ENDED),
    "no answer": (JOB, None, JobState.UNKNOWN),
    "without its id, in the queue": (JOB.model_copy(update={"job_id": None}), QUEUE, JobState.ORPHANED),
    "without its id, another place": (JOB.model_copy(update={"job_id": None, "index": 2}), QUEUE, JobState.ENDED),
    "without its id, another name": (JOB.model_copy(update={"job_id": None, "name": "x"}), QUEUE, JobState.ENDED),
    "a reused id of another job": (JOB, {"12_1": ListedJob("x", JobState.RUNNING, "")}, JobState.ENDED),
}


@pytest.mark.parametrize(("job", "seen", "state"), STATES.values(), ids=STATES)
def test_the_queue_tells_how_a_job_stands(job, seen, state):
    assert job.state(seen) is state


def test_a_job_that_was_submitted_by_itself_is_found_by_its_name():
    alone = JOB.model_copy(update={"job_id": None, "index": None})
    assert alone.found_in({"13": ListedJob("ablation-0a", JobState.QUEUED, "")}) == "13"
