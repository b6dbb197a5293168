from scpo.tracking.live import StepLines, before_after


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_each_step_says_success_credit_seconds_and_the_time_left():
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


def test_the_end_says_what_training_changed():
    records = [
        {"step": 0, "val/b/success_rate": 0.033, "val/a/success_rate": 0.0},
        {"step": 1, "train/success_rate": 0.5},
        {"step": 2, "val/b/success_rate": 0.517, "val/b/episodes": 60, "val/a/success_rate": None},
    ]
    assert before_after(records) == ["b: success 3.3 % -> 51.7 % of 60 episodes (step 0 -> step 2)"]
    assert before_after(records[1:]) == ["b: success 51.7 % of 60 episodes"]
    assert before_after(records[1:2]) == []
