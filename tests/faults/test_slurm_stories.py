"""Promises of a sweep on a scheduler with a clock of its own: what dies, is preempted or times out."""

import contextlib
import errno
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from rich.console import Console

from scpo.errors import RecordWriteError
from scpo.records import State, StopRequest, run_config, run_folders
from scpo.records.status import JobState
from sweeps import __main__ as command_line
from sweeps import dispatch
from sweeps.compose.matrix import expand
from sweeps.launchers.slurm import launcher as cluster
from sweeps.launchers.slurm import observer
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import SchedulerError
from sweeps.records import cancellation
from tests.faults import counting
from tests.support.fake_runs import QUICK, steps
from tests.support.fake_slurm import FakeSlurm, Killed, quick_records

HOUR = 3600.0
SLURM = ("launcher=slurm_a800x4", "launcher.time_h=1", "launcher.warn_s=600", "launcher.max_timeouts=2")


@pytest.fixture(scope="module")
def matrix():
    return expand("ablation_monotonicity", [*QUICK, *SLURM, "seeds=[0,1]"])


@pytest.fixture(scope="module")
def pair():
    return expand("ablation_monotonicity", [*QUICK, *SLURM, "seeds=[0]"])


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """An empty place for runs: the matrix' runs_dir is relative."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").symlink_to(run_folders.Path(__file__).parents[2] / "slurm")
    with quick_records():
        yield FakeSlurm()


def sweep(matrix, slurm):
    """One call of sweep.py; what it printed."""
    out = StringIO()

    def launcher_for(configs):
        return cluster.Cluster(configs[0].launcher, run_folders.Path("runs"), slurm, slurm, outside=lambda: False)

    status = dispatch.run(Console(file=out, width=200), matrix, launcher_for, Observer(slurm))
    assert status == 0, out.getvalue()
    return out.getvalue()


def folders():
    return run_folders.list_runs(run_folders.Path("runs"))


def shown(slurm):
    observer = Observer(slurm, slurm.sleep)
    return Counter(observer.observe(folder).state for folder in folders())


def die():
    raise Killed


def no_run_has_two_jobs(slurm):
    return all(count == 1 for count in Counter(job.folder.run_id for job in slurm.queue.values()).values())


def test_a_sweep_submits_and_leaves_and_a_second_one_submits_nothing(matrix, slurm):
    assert "submitted 4 runs as jobs 100 (4 runs)" in sweep(matrix, slurm)
    assert shown(slurm) == {"QUEUED": 4}
    assert "4 waiting in the queue of Slurm" in sweep(matrix, slurm)
    slurm.run_all()
    assert "4 finished before" in sweep(matrix, slurm)
    assert len(slurm.submitted) == 4
    assert all(steps(folder) == [0, 1, 2, 3, 4] for folder in folders())


def test_a_driver_that_dies_before_sbatch_has_submitted_nothing(matrix, slurm):
    slurm.before_submit = die
    with pytest.raises(Killed):
        sweep(matrix, slurm)
    slurm.before_submit = lambda: None
    assert "submitted 4 runs" in sweep(matrix, slurm)


def test_jobs_of_a_driver_that_died_after_sbatch_are_adopted_not_doubled(matrix, slurm):
    slurm.after_submit = die
    with pytest.raises(Killed):
        sweep(matrix, slurm)
    slurm.after_submit = lambda: None
    assert {read_job(folder).job_id for folder in folders()} == {None}
    assert shown(slurm) == {"QUEUED": 4}
    assert "4 submitted by a call that died before it could record the job" in sweep(matrix, slurm)
    assert {read_job(folder).job_id for folder in folders()} == set(slurm.queue)
    slurm.run_all()
    assert (shown(slurm), len(slurm.submitted)) == ({"DONE": 4}, 4)


def test_a_scheduler_that_does_not_answer_gets_nothing_twice(matrix, slurm):
    sweep(matrix, slurm)
    slurm.answers = False
    assert shown(slurm) == {"UNKNOWN": 4}
    assert "4 the scheduler does not say whether its job lives" in sweep(matrix, slurm)
    assert len(slurm.submitted) == 4


def test_jobs_of_which_squeue_lists_none_are_not_submitted_twice_while_sacct_knows_them(matrix, slurm):
    sweep(matrix, slurm)
    slurm.lists = False
    assert shown(slurm) == {"UNKNOWN": 4}
    assert "4 the scheduler does not say whether its job lives" in sweep(matrix, slurm)
    assert len(slurm.submitted) == 4
    slurm.lists = True
    slurm.run_all()
    assert (shown(slurm), len(slurm.submitted)) == ({"DONE": 4}, 4)


def test_a_dead_job_is_lost_and_submitted_again(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))

    def dies(_job, step, _supervisor):
        if step == 3:
            raise Killed

    folder = slurm.queue[job_id].folder
    slurm.run_until_killed(job_id, dies)
    assert (folder.read_status().state, shown(slurm)["LOST"]) == (State.RUNNING, 1)
    assert "submitted 1 run" in sweep(matrix, slurm)
    slurm.run_all()
    assert steps(folder) == [0, 1, 2, 3, 4]
    assert (shown(slurm), slurm.submitted.count(folder.run_id)) == ({"DONE": 4}, 2)


def test_a_preempted_run_checkpoints_is_requeued_and_goes_on(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def preempted(job, step, supervisor):
        if step == 3 and not read_job(folder).preemptions:
            job.preempted = True
            supervisor.warn()

    assert slurm.run(job_id, preempted) is State.INTERRUPTED
    assert (folder.read_status().reason, folder.complete_checkpoints()[-1]) == ("preempted", 3)
    assert slurm.queue[job_id].state is JobState.QUEUED
    assert "4 waiting in the queue of Slurm" in sweep(matrix, slurm)
    assert slurm.run(job_id, preempted) is State.DONE
    assert (read_job(folder).preemptions, read_job(folder).timeouts) == (1, 0)
    assert slurm.submitted.count(folder.run_id) == 1


def test_a_run_that_gets_on_between_its_time_limits_is_requeued_until_it_is_done(matrix, slurm):
    slurm.step_s = 0.8 * HOUR  # a step and a half in each hour
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    states = [slurm.run(job_id, lambda job, step, supervisor: supervisor.warn()) for _ in range(5)]
    assert states == [State.INTERRUPTED] * 4 + [State.DONE]  # max_timeouts is 2
    assert (read_job(folder).timeouts, read_job(folder).fruitless) == (5, 0)


def test_timeouts_are_counted_apart_and_where_none_got_further_the_run_has_failed(matrix, slurm):
    slurm.step_s = 1.1 * HOUR  # no step ends within the limit
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    preemptions = iter([True, False, False, False, False])
    states = []
    for preempted in preemptions:

        def warned(job, _step, supervisor, preempted=preempted):
            job.preempted = preempted
            supervisor.warn()

        states.append(slurm.run(job_id, warned))
    assert states == [State.INTERRUPTED] * 4 + [State.FAILED]
    assert (read_job(folder).preemptions, read_job(folder).timeouts) == (1, 4)
    assert (
        "cut off by its time limit of 1 h 3 times without a further step, launcher.max_timeouts is 2"
        in folder.read_status().reason
    )
    assert "give a longer launcher.warn_s (600 leaves a step and its checkpoint 580 s)" in folder.read_status().reason
    assert "launcher.time_h (it is cut to max_time_h of launcher.site)" in folder.read_status().reason
    assert steps(folder) == [0]
    assert job_id not in slurm.queue


def test_a_warning_that_came_before_the_process_did_is_not_needed(matrix, slurm, caplog):
    slurm.step_waited_s = 0.9 * HOUR  # Slurm warned at 0.83, and lets a step wait for a busy node
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    assert slurm.run(job_id) is State.INTERRUPTED
    # The last 20 s before the limit are kept to requeue the job.
    assert "time limit; it checkpoints after its present step, or is killed in 280 s" in caplog.text
    assert (folder.read_status().reason, folder.complete_checkpoints()) == ("time limit", [0])
    assert (slurm.queue[job_id].state, read_job(folder).timeouts) == (JobState.QUEUED, 1)
    slurm.step_waited_s = 0.0
    assert slurm.run(job_id) is State.DONE


def test_a_job_that_is_preempted_before_its_process_starts_is_requeued_and_counted(matrix, slurm):
    slurm.preempts_at_start = True  # the signal came while Python was starting, which ignores it
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    assert slurm.run(job_id) is State.PENDING
    assert (slurm.queue[job_id].state, read_job(folder).preemptions) == (JobState.QUEUED, 1)
    assert not list(folder.path.glob("attempt_*"))
    slurm.preempts_at_start = False
    assert slurm.run(job_id) is State.DONE
    assert read_job(folder).preemptions == 1


@pytest.mark.parametrize("earlier", [None, StopRequest(state=State.INTERRUPTED, reason="of an earlier attempt")])
@pytest.mark.parametrize("cause", ["time limit", "preempted"])
def test_a_run_that_is_warned_while_it_loads_stops_after_one_step(pair, slurm, cause, earlier):
    """It took the request for one to an earlier attempt, and trained on until it was killed."""
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    if earlier is not None:
        folder.request_stop(earlier)

    def warned(supervisor):
        slurm.queue[job_id].preempted = cause == "preempted"
        supervisor.warn()
        supervisor.check()

    slurm.while_loading = warned
    assert slurm.run(job_id) is State.INTERRUPTED
    assert (folder.read_status().reason, folder.complete_checkpoints()) == (cause, [0])
    record = read_job(folder)
    assert (record.timeouts, record.preemptions) == ((1, 0) if cause == "time limit" else (0, 1))
    slurm.while_loading = lambda _supervisor: None
    assert slurm.run(job_id) is State.DONE
    assert steps(folder) == [0, 1, 2, 3, 4]


def test_time_limits_that_are_near_before_the_process_starts_end_in_a_failure(matrix, slurm):
    slurm.step_waited_s, slurm.step_s = 0.9 * HOUR, 0.2 * HOUR
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def dies(_job, step, supervisor):  # before its first checkpoint
        supervisor.check()
        supervisor.process.kill()

    states = [slurm.run(job_id, dies) for _ in range(3)]
    assert states == [State.INTERRUPTED] * 2 + [State.FAILED]
    assert "cut off by its time limit of 1 h 3 times" in folder.read_status().reason
    assert read_job(folder).timeouts == 3


def test_a_step_that_outlasts_the_warning_is_cut_off_in_time_to_be_requeued(matrix, slurm):
    slurm.step_s = 0.3 * HOUR
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def hangs(_job, step, supervisor):
        if step == 2:
            supervisor.warn()
            supervisor.check()
            slurm.now_s += HOUR

    assert slurm.run(job_id, hangs) is State.INTERRUPTED
    assert (folder.read_status().reason, slurm.queue[job_id].state) == ("time limit", JobState.QUEUED)
    assert folder.complete_checkpoints() == [0]
    slurm.step_s = 60.0
    assert slurm.run(job_id) is State.DONE
    assert steps(folder) == [0, 1, 2, 3, 4]


def test_a_run_is_requeued_as_soon_as_a_restarted_controller_answers(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))

    def warned_while_down(_job, step, supervisor):
        if step == 1:
            slurm.answers = False
            supervisor.warn()

    sleep = slurm.sleep

    def back_after_a_while(seconds):
        sleep(seconds)
        slurm.answers = slurm.answers or slurm.now_s > 150

    slurm.sleep = back_after_a_while
    assert slurm.run(job_id, warned_while_down) is State.INTERRUPTED
    assert slurm.queue[job_id].state is JobState.QUEUED


def test_a_bare_sigterm_leaves_the_decision_to_slurm(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def terminated(_job, step, supervisor):
        if step == 1:
            supervisor.terminate()

    assert slurm.run(job_id, terminated) is State.INTERRUPTED
    assert folder.complete_checkpoints()[-1] == 1
    assert slurm.now_s >= HOUR  # still there when its time is up: Slurm may have wanted to requeue it
    assert (read_job(folder).timeouts, read_job(folder).preemptions) == (0, 0)


def test_on_a_full_disk_a_preempted_run_stops_on_a_signal_and_goes_on_once_there_is_room(matrix, slurm, monkeypatch):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def full(*_):
        raise RecordWriteError(errno.ENOSPC, "No space left on device")

    def preempted(job, step, supervisor):
        if step == 1:
            job.preempted = True
            supervisor.warn()

    with monkeypatch.context() as disk:
        disk.setattr("sweeps.launchers.slurm.job.write_job", full)
        assert slurm.run(job_id, preempted) is State.INTERRUPTED
    assert folder.complete_checkpoints()[-1] == 1
    assert slurm.run(job_id) is State.DONE


def test_of_two_sweeps_at_once_one_submits(matrix, slurm):
    with ThreadPoolExecutor(2) as pool:
        printed = list(pool.map(lambda _: sweep(matrix, slurm), range(2)))
    assert sorted("submitted 4 runs" in text for text in printed) == [False, True]
    assert len(slurm.submitted) == 4


def test_a_cancelled_run_leaves_the_queue_and_stays_away(matrix, slurm):
    sweep(matrix, slurm)
    first, second = folders()[:2]
    assert observer.cancel(first, slurm)
    assert len(slurm.queue) == 3

    def cancelled(job, step, _supervisor):
        if job.folder.run_id == second.run_id and step == 1:
            observer.cancel(second, slurm, State.PRUNED, "worse than the median")

    slurm.run_all(cancelled)
    assert shown(slurm) == {"CANCELLED": 1, "PRUNED": 1, "DONE": 2}
    sweep(matrix, slurm)
    assert len(slurm.submitted) == 4
    cancellation.retry(first)
    assert "submitted 1 run as jobs 104 (1 run)" in sweep(matrix, slurm)
    slurm.run_all()
    assert shown(slurm) == {"PRUNED": 1, "DONE": 3}


def test_a_cancelled_run_that_trains_ends_its_job_with_a_checkpoint_of_its_present_step(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def cancelled(_job, step, _supervisor):
        if step == 3:
            observer.cancel(folder, slurm)

    assert slurm.run(job_id, cancelled) is State.CANCELLED
    # scancel kills a step that takes longer than KillWait.
    assert slurm.cancelled == []
    assert (folder.complete_checkpoints()[-1], steps(folder)[-1]) == (3, 3)
    assert job_id not in slurm.queue
    cancellation.retry(folder)
    assert folder.read_status().state is State.INTERRUPTED
    sweep(matrix, slurm)
    slurm.run_all()
    assert steps(folder) == [0, 1, 2, 3, 4]


@pytest.fixture
def command(slurm, monkeypatch):
    """``python -m sweeps <words>`` on this Slurm."""
    monkeypatch.setattr(command_line, "Slurm", lambda: slurm)
    return lambda *words: command_line.main([*words])


@pytest.mark.parametrize("trained", [True, False])
def test_a_run_of_a_job_that_only_accounting_has_is_submitted_again_after_cancel_and_retry(
    pair, slurm, command, capsys, trained
):
    """docs/cluster.md had it so, but the run was UNKNOWN again, and no sweep started it."""
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    if trained:
        folder.update_status(state=State.RUNNING, host="a-node")
    slurm.lose(job_id)
    assert shown(slurm) == {"UNKNOWN": 1, "QUEUED": 1}
    assert command("retry", folder.run_id) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "left as it is until Slurm answers that its job is over" in said
    assert "goes on at the next call" not in said
    assert f"`python -m sweeps cancel {folder.run_id}`, `python -m sweeps retry {folder.run_id}`" in said
    sweep(pair, slurm)
    assert len(slurm.submitted) == 2

    assert command("cancel", folder.run_id) == 0
    assert slurm.cancelled == [job_id]
    assert capsys.readouterr().out.strip().endswith(": cancelled")
    sweep(pair, slurm)
    assert len(slurm.submitted) == 2
    assert command("retry", folder.run_id) == 0
    assert "goes on at the next call" in " ".join(capsys.readouterr().out.split())
    assert "submitted 1 run as jobs 102 (1 run)" in sweep(pair, slurm)
    sweep(pair, slurm)
    assert len(slurm.submitted) == 3
    slurm.run_all()
    assert shown(slurm) == {"DONE": 2}


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_that_was_cancelled_while_slurm_was_down_is_not_submitted_twice_after_retry(
    pair, slurm, command, capsys, waits
):
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    slurm.queue[job_id].state = JobState.QUEUED if waits else JobState.RUNNING
    slurm.answers = False
    assert command("cancel", folder.run_id) == 1
    assert command("retry", folder.run_id) == 0
    assert "goes on at the next call" not in " ".join(capsys.readouterr().out.split())
    for answers, lists in [(False, True), (True, False), (True, True)]:
        slurm.answers, slurm.lists = answers, lists
        sweep(pair, slurm)
        assert read_job(folder).job_id == job_id

    # Slurm answers when it is retried: its job is there.
    slurm.answers = False
    assert command("cancel", folder.run_id) == 1
    slurm.answers = True
    assert command("retry", folder.run_id) == 0
    assert read_job(folder).job_id == job_id
    for lists in (False, True):
        slurm.lists = lists
        sweep(pair, slurm)
    assert len(slurm.submitted) == 2


def test_a_job_that_squeue_did_not_list_is_out_of_the_queue_after_cancel(pair, slurm, command, capsys):
    """It said "cancelled", and the job stayed in the queue."""
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    slurm.lists = False
    assert command("cancel", folder.run_id) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(": cancelled, and its job with scancel: squeue does not list it, and sacct says it is PENDING")
    slurm.lists = True
    assert job_id not in slurm.queue
    assert shown(slurm) == {"CANCELLED": 1, "QUEUED": 1}


def test_a_forgotten_job_that_squeue_lists_after_all_is_adopted(pair, slurm, command, monkeypatch):
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    slurm.lists = False

    def refuse(job_id):
        raise SchedulerError(f"scancel {job_id}: Socket timed out on send/recv operation")

    monkeypatch.setattr(slurm, "cancel", refuse)
    assert command("cancel", folder.run_id) == 1
    assert command("retry", folder.run_id) == 0
    assert read_job(folder).job_id is None
    slurm.lists = True
    assert "1 submitted by a call that died" in sweep(pair, slurm)
    assert (read_job(folder).job_id, len(slurm.submitted)) == (job_id, 2)
    slurm.run_all()
    assert shown(slurm) == {"DONE": 2}


def test_a_job_that_leaves_the_queue_while_it_is_retried_keeps_its_new_number(pair, slurm, command):
    """Two persons retry a run at once, and a sweep of the first has submitted it."""
    sweep(pair, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder
    slurm.lose(job_id)
    assert command("cancel", folder.run_id) == 0
    look = Observer(slurm, slurm.sleep)
    known = slurm.ends

    def first_of_two(*words):
        slurm.ends = known
        assert command("retry", folder.run_id) == 0
        sweep(pair, slurm)
        return known(*words)

    slurm.ends = first_of_two
    look.forget_lost_job(folder)
    assert read_job(folder).job_id == "102"


def test_a_cancelled_run_that_hangs_is_killed_after_the_time_that_a_checkpoint_may_take(matrix, slurm):
    sweep(matrix, slurm)
    job_id = next(iter(slurm.queue))
    folder = slurm.queue[job_id].folder

    def hangs(_job, step, supervisor):
        if step == 3:
            observer.cancel(folder, slurm)
            supervisor.check()
            slurm.now_s += 601  # launcher.warn_s and a second

    assert slurm.run(job_id, hangs) is State.CANCELLED
    assert steps(folder)[-1] == 2
    assert job_id not in slurm.queue


def test_who_decides_run_by_run_submits_as_jobs_end(matrix, slurm):
    launcher = dispatch.launcher_of(matrix).model_copy(update={"parallelism": 2})
    waiting, ended = dict(matrix.runs), {}
    with cluster.Cluster(
        launcher, run_folders.Path("runs"), slurm, slurm, outside=lambda: False, sleep=slurm.sleep
    ) as pool:
        while len(ended) < 4:
            while pool.free and waiting:
                run_id, config = waiting.popitem()
                pool.start({run_id: (run_config.ensure(config), config)}, "a title")
            assert len(slurm.queue) <= 2
            slurm.run(next(iter(slurm.queue)))
            ended |= pool.poll()
    assert {one.state for one in ended.values()} == {State.DONE}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_interrupted_each_run_is_done_once_with_the_same_bytes(pair, slurm, seed):
    chance = random.Random(seed)

    def fate(job, _step, supervisor):
        event = chance.random()
        if event < 0.08:
            raise Killed
        if event < 0.16:
            job.preempted = chance.random() < 0.8
            supervisor.warn()

    def maybe_die():
        if chance.random() < 0.3:
            raise Killed

    slurm.before_submit = slurm.after_submit = maybe_die
    for _ in range(200):
        slurm.answers = chance.random() < 0.9
        with contextlib.suppress(Killed):
            sweep(pair, slurm)
        slurm.answers = True
        assert no_run_has_two_jobs(slurm)
        queued = [key for key, job in slurm.queue.items() if job.state is JobState.QUEUED]
        if queued:
            slurm.run_until_killed(chance.choice(queued), fate, node_fails=chance.random() < 0.5)
        for folder in folders():
            at = steps(folder)
            assert at == list(range(len(at)))
            if folder.complete_checkpoints():
                assert at[-1] >= folder.complete_checkpoints()[-1]
        if shown(slurm) == {"DONE": 2}:
            break
        for folder in folders():  # a person looks at what has timed out too often
            if folder.read_status().state is State.FAILED:
                cancellation.retry(folder)
    assert shown(slurm) == {"DONE": 2}
    slurm.before_submit = slurm.after_submit = lambda: None
    submitted = len(slurm.submitted)
    sweep(pair, slurm)
    assert len(slurm.submitted) == submitted
    for folder in folders():
        config = run_config.read_config(folder)
        lines = []
        for n in range(5):
            values = {"train/success_rate": (n / 7 + config.seed) / 100} | counting.validation(config, n)
            lines.append(json.dumps({"step": n} | dict(sorted(values.items()))) + "\n")
        assert folder.metrics.read_text() == "".join(lines)
