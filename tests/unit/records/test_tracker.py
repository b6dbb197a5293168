import pytest

from scpo.errors import RecordError
from scpo.records import JsonLines, RunFolder, State, Status
from scpo.records.logs import before_after
from scpo.records.tracker import StepLines, Tracker
from sweeps.compose.configuration import compose_run


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_each_step_prints_success_credit_seconds_and_the_time_left():
    clock = Clock()
    lines = StepLines(4, clock)
    clock.now = 30.0
    assert lines.line(0, {"val/valid_seen/success_rate": 0.033}) == "step 0 of 4: valid_seen 3.3 %, 30.0 s"
    clock.now = 50.0
    told = lines.line(1, {"train/success_rate": 0.41, "credit/steps": 2.25, "val/valid_seen/family/success_rate": 1.0})
    assert told == "step 1 of 4: success 41 %, credit on 2.2 steps a failure, 20.0 s, about 1 min left"
    clock.now = 60.0  # 30 s for two steps
    assert lines.line(2, {"credit/steps": 0.0}) == "step 2 of 4: 10.0 s, about 30 s left"
    clock.now = 61.0
    lines.line(3, {})
    assert lines.line(4, {"train/success_rate": 1.0}) == "step 4 of 4: success 100 %, 0.0 s"


def test_a_resumed_run_counts_from_its_own_first_step():
    clock = Clock()
    lines = StepLines(10, clock)
    lines.line(5, {})
    clock.now = 10.0
    assert lines.line(6, {}).endswith("10.0 s, about 40 s left")


def test_the_end_prints_what_training_changed():
    records = [
        {"step": 0, "val/b/success_rate": 0.033, "val/a/success_rate": 0.0},
        {"step": 1, "train/success_rate": 0.5},
        {"step": 2, "val/b/success_rate": 0.517, "val/b/episodes": 60, "val/a/success_rate": None},
    ]
    assert before_after(records) == ["b: success 3.3 % -> 51.7 % of 60 episodes (step 0 -> step 2)"]
    assert before_after(records[1:]) == ["b: success 51.7 % of 60 episodes"]
    assert before_after(records[1:2]) == []
    unchanged = [{"step": step, "val/b/success_rate": 0.033} for step in (0, 2)]
    assert before_after(unchanged) == ["b: success 3.3 % -> 3.3 % (step 0 -> step 2)"]


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run-s0-12345678")


@pytest.fixture(scope="module")
def config():
    return compose_run(["wandb.mode=disabled", "trainer.steps=3"])


def test_the_tracker_logs_both_files_and_the_status(folder, config):
    folder.write_status(Status(state=State.RUNNING, steps=3))
    with Tracker(folder, config) as tracker:
        tracker.log(0, {"val/valid_seen/success_rate": 0.5}, {"step_s": 1.5})
        tracker.log(1, {"train/success_rate": 0.25}, {"step_s": 2.5})
    assert JsonLines(folder.metrics).records()[1] == {"step": 1, "train/success_rate": 0.25}
    timing = JsonLines(folder.timing).records()[0]
    assert timing.keys() == {"step", "at", "host", "step_s"}
    assert folder.read_status().step == 1


def test_the_tracker_goes_on_only_from_where_it_is_told(folder, config):
    with Tracker(folder, config) as tracker:
        for step in range(3):
            tracker.log(step, {"x": step}, {})
    with Tracker(folder, config) as tracker:
        with pytest.raises(RecordError, match=r"step 1 after step 2.*resume_at"):
            tracker.log(1, {}, {})
        tracker.resume_at(0)
        tracker.log(1, {"x": 1}, {})
    assert [one["step"] for one in JsonLines(folder.metrics).records()] == [0, 1]
    with Tracker(folder, config) as tracker:
        tracker.resume_at(-1)
        tracker.log(0, {}, {})
    assert [one["step"] for one in JsonLines(folder.timing).records()] == [0]
