from itertools import product
from pathlib import Path

import pytest

from scpo.records import State
from scpo.records.status import JobState, Observed
from sweeps.records.reconcile import Action, Decision, decide, reconcile

LIMIT = 3
RECORDED = (State.NEW, *(state for state in State if state.recorded))
LIVE_JOBS = (JobState.QUEUED, JobState.RUNNING, JobState.ORPHANED, JobState.UNKNOWN)
STOPS = (None, State.INTERRUPTED, State.CANCELLED, State.PRUNED)
EVERY = [Observed(*case) for case in product(RECORDED, (False, True), (None, *JobState), STOPS, (0, LIMIT - 1, LIMIT))]

WITHOUT_A_JOB = {
    (State.NEW, False): (Action.START, "NEW"),
    (State.NEW, True): (Action.LEAVE, "NEW"),
    (State.PENDING, False): (Action.START, "PENDING"),
    (State.PENDING, True): (Action.LEAVE, "PENDING"),
    (State.RUNNING, False): (Action.START, "LOST"),
    (State.RUNNING, True): (Action.LEAVE, "RUNNING"),
    (State.DONE, False): (Action.SKIP, "DONE"),
    (State.DONE, True): (Action.SKIP, "DONE"),
    (State.FAILED, False): (Action.START, "FAILED"),
    (State.FAILED, True): (Action.LEAVE, "FAILED"),
    (State.INTERRUPTED, False): (Action.START, "INTERRUPTED"),
    (State.INTERRUPTED, True): (Action.LEAVE, "INTERRUPTED"),
    (State.CANCELLED, False): (Action.LEAVE, "CANCELLED"),
    (State.CANCELLED, True): (Action.LEAVE, "CANCELLED"),
    (State.PRUNED, False): (Action.SKIP, "PRUNED"),
    (State.PRUNED, True): (Action.SKIP, "PRUNED"),
}
WITH_A_JOB = {  # nobody holds the run on this machine
    (State.PENDING, JobState.QUEUED): (Action.LEAVE, "QUEUED"),
    (State.PENDING, JobState.RUNNING): (Action.LEAVE, "RUNNING"),
    (State.PENDING, JobState.ORPHANED): (Action.ADOPT, "QUEUED"),
    (State.PENDING, JobState.UNKNOWN): (Action.LEAVE, "UNKNOWN"),
    (State.PENDING, JobState.ENDED): (Action.START, "LOST"),
    (State.RUNNING, JobState.QUEUED): (Action.LEAVE, "QUEUED"),  # killed with its node, requeued by the scheduler
    (State.RUNNING, JobState.RUNNING): (Action.LEAVE, "RUNNING"),
    (State.RUNNING, JobState.UNKNOWN): (Action.LEAVE, "UNKNOWN"),
    (State.RUNNING, JobState.ENDED): (Action.START, "LOST"),
    (State.INTERRUPTED, JobState.QUEUED): (Action.LEAVE, "QUEUED"),  # requeued after its checkpoint
    (State.INTERRUPTED, JobState.ENDED): (Action.START, "INTERRUPTED"),
    (State.FAILED, JobState.ENDED): (Action.START, "FAILED"),
    (State.FAILED, JobState.QUEUED): (Action.LEAVE, "QUEUED"),
    (State.DONE, JobState.RUNNING): (Action.SKIP, "DONE"),  # the job's last seconds
    (State.PRUNED, JobState.RUNNING): (Action.SKIP, "PRUNED"),
    (State.CANCELLED, JobState.QUEUED): (Action.LEAVE, "CANCELLED"),
}


def test_the_table_without_jobs_has_every_case():
    assert set(WITHOUT_A_JOB) == {(state, alive) for state in RECORDED for alive in (False, True)}


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Observed(State.RUNNING, alive=True), "run by another process"),
        (Observed(State.RUNNING, alive=True, job=JobState.ENDED), "run by another process"),
        (Observed(State.RUNNING, alive=True, job=JobState.RUNNING), "running as a Slurm job"),
        (Observed(State.RUNNING, job=JobState.RUNNING), "running as a Slurm job"),
        (Observed(State.PENDING, job=JobState.QUEUED), "waiting in the queue of Slurm"),
    ],
)
def test_a_run_that_its_job_runs_is_not_said_to_be_of_another_process(run, why):
    assert decide(run, LIMIT) == Decision(Action.LEAVE, why)


@pytest.mark.parametrize(("state", "alive"), WITHOUT_A_JOB)
def test_every_state_has_one_action(state, alive):
    run = Observed(state, alive)
    assert (decide(run, LIMIT).action, run.state) == WITHOUT_A_JOB[state, alive]


@pytest.mark.parametrize(("state", "job"), WITH_A_JOB)
def test_a_job_says_more_than_a_lock_that_is_free(state, job):
    run = Observed(state, job=job)
    assert (decide(run, LIMIT).action, run.state) == WITH_A_JOB[state, job]


def test_no_run_is_started_that_something_may_be_running():
    for run in EVERY:
        if run.alive or run.job in LIVE_JOBS:
            assert decide(run, LIMIT).action is not Action.START, run


def test_no_run_is_started_that_is_settled_or_asked_to_be():
    for run in EVERY:
        if run.recorded.settled or (run.recorded is not State.NEW and run.stop and run.stop.settled):
            assert decide(run, LIMIT).action is not Action.START, run


def test_everything_else_is_started_unless_it_has_failed_too_often():
    for run in EVERY:
        free = not run.alive and run.job not in LIVE_JOBS
        settled = run.recorded.settled or (run.stop is not None and run.stop.settled)
        unsettled = run.recorded is State.NEW or not settled
        if free and unsettled:
            given_up = run.recorded is State.FAILED and run.failures >= LIMIT
            assert decide(run, LIMIT).action is (Action.LEAVE if given_up else Action.START), run


def test_only_orphans_are_adopted():
    for run in EVERY:
        if decide(run, LIMIT).action is Action.ADOPT:
            assert run.job is JobState.ORPHANED, run


def test_a_run_that_was_told_to_stop_and_has_no_process_shows_as_stopped():
    assert Observed(State.RUNNING, stop=State.CANCELLED).state == "CANCELLED"
    assert Observed(State.RUNNING, stop=State.PRUNED, job=JobState.ENDED).state == "PRUNED"
    assert Observed(State.RUNNING, alive=True, stop=State.CANCELLED).state == "RUNNING"
    assert Observed(State.RUNNING, stop=State.INTERRUPTED).state == "LOST"


def test_the_commands_in_a_reason_are_for_the_run():
    decision = decide(Observed(State.FAILED, failures=LIMIT), LIMIT)
    assert "sweeps retry alfworld-tiny-scpo-s0-1234{here}`" in decision.reason("alfworld-tiny-scpo-s0-1234")
    assert "RUN" not in decide(Observed(State.DAMAGED), LIMIT).reason("a")


def test_what_is_not_on_disk_is_started_and_what_is_not_wanted_is_left_out():
    plan = reconcile(["a", "b"], {"b": Observed(State.DONE), "c": Observed(State.FAILED)}, LIMIT)
    assert {run_id: one.action for run_id, one in plan.items()} == {"a": Action.START, "b": Action.SKIP}


def test_the_reason_names_the_way_out():
    assert "retry" in decide(Observed(State.FAILED, failures=LIMIT), LIMIT).why
    assert "retry" in decide(Observed(State.CANCELLED), LIMIT).why


def test_the_commands_in_a_reason_are_for_the_folder_of_the_runs():
    have = {
        "damaged": Observed(State.DAMAGED), "cancelled": Observed(State.CANCELLED), "pruned": Observed(State.PRUNED),
        "failed": Observed(State.FAILED, failures=LIMIT),
    }  # fmt: skip
    for run_id, one in reconcile(have, have, LIMIT, Path("elsewhere")).items():
        assert one.why.count("python -m sweeps") == one.why.count(" --runs-dir elsewhere`") > 0, run_id
    assert "--runs-dir" not in str(reconcile(have, have, LIMIT))
    assert "{" not in str([one.why for one in reconcile(have, have, LIMIT).values()])


@pytest.mark.parametrize("state", [State.RUNNING, State.INTERRUPTED, State.FAILED])
def test_a_run_without_a_checkpoint_is_not_said_to_go_on_from_one(state):
    assert decide(Observed(state), LIMIT).why.endswith(", no checkpoint yet")
    assert decide(Observed(state, checkpoint=True), LIMIT).why.endswith(" from its last checkpoint")
