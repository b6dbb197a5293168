import io

import pytest
from rich.console import Console

from scpo.records import JsonLines, State, run_config
from sweeps.launchers.progress_board import ProgressBoard
from sweeps.launchers.run_process import Outcome
from tests.support import fake_runs as fake


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def runs(tmp_path):
    """Three runs of 4 steps."""
    made = [fake.make_run(tmp_path, f"seed={seed}") for seed in range(3)]
    return [(folder, run_config.read_config(folder)) for folder in made]


def board_of(runs, clock, **console):
    out = io.StringIO()
    shown = Console(file=out, width=200, **console)
    return ProgressBoard(shown, [config for _, config in runs], clock), out


def train(board, folder, clock, *, start_s, step_s, steps):
    clock.now += start_s
    board.progress(folder, 0, None)
    for step in range(1, steps + 1):
        clock.now += step_s
        board.progress(folder, step, 0.5)


def test_before_the_first_step_a_line_says_what_the_run_is_doing(runs):
    clock = Clock()
    board, out = board_of(runs, clock)
    (folder, config), *_ = runs
    with board:
        board.started(folder, config)
        for second in range(1, 26):
            clock.now = float(second)
            board.doing(folder, "warm start: update 3 of 8 is done, about 20 s left")
    lines = out.getvalue().splitlines()
    told = f"{folder.run_id}: step 0 of 4; warm start: update 3 of 8 is done, about 20 s left"
    assert lines == [f"started {folder.run_id}", told, "0 of 3 runs done"]  # after 10 seconds; at 20 nothing is new


def test_a_log_without_news_gets_a_sign_of_life_every_five_minutes(runs):
    clock = Clock()
    board, out = board_of(runs, clock)
    (folder, config), *_ = runs
    with board:
        board.started(folder, config)
        for second in range(1, 961):
            clock.now = float(second)
            board.doing(folder, "loading")
    lines = out.getvalue().splitlines()
    assert lines[:3] == [f"started {folder.run_id}", f"{folder.run_id}: step 0 of 4; loading", "0 of 3 runs done"]
    assert lines[3:] == ["0 of 3 runs done"] * 3


def test_the_time_left_counts_steps_and_starts_of_all_runs(runs):
    clock = Clock()
    board, out = board_of(runs, clock)
    (first, config), (second, _), _ = runs
    with board:
        board.started(first, config)
        train(board, first, clock, start_s=60, step_s=10, steps=4)
        board.ended(first, Outcome(State.DONE))
        board.started(second, config)
        train(board, second, clock, start_s=20, step_s=10, steps=2)
        board.doing(second, "training")
    # 2 + 4 steps of 10 s, and one start of 20 s: the first run's start of 60 s made what the others share
    assert out.getvalue().splitlines()[-2:] == [
        f"{second.run_id}: step 2 of 4; train success 0.50",
        "1 of 3 runs done, about 1 min left",
    ]


def test_a_run_that_failed_or_was_stopped_is_not_counted_as_done(runs):
    """Ctrl-C in the first minute showed "runs done 1/6" above "2 runs: 2 INTERRUPTED"."""
    clock = Clock()
    board, out = board_of(runs, clock)
    (first, config), (second, _), (third, _) = runs
    with board:
        for folder, state in ((first, State.INTERRUPTED), (second, State.FAILED)):
            board.started(folder, config)
            board.ended(folder, Outcome(state))
        board.started(third, config)
        clock.now = 12.0
        board.doing(third, "loading")
    assert out.getvalue().splitlines()[-1] == "0 of 3 runs done"


def test_two_runs_at_once_take_half_as_long(runs):
    clock = Clock()
    board, out = board_of(runs[:2], clock)
    (first, config), (second, _), _ = runs
    with board:
        board.started(first, config)
        board.started(second, config)
        for step in range(3):
            clock.now += 10
            board.progress(first, step, 0.5)
            board.progress(second, step, 0.5)
        board.doing(first, "training")
    assert out.getvalue().splitlines()[-1] == "0 of 2 runs done, about 20 s left"


def test_steps_of_an_earlier_attempt_tell_nothing_of_the_speed(runs):
    clock = Clock()
    board, out = board_of(runs[:1], clock)
    (folder, config), *_ = runs
    JsonLines(folder.metrics).append({"step": 2})
    with board:
        board.started(folder, config)
        clock.now = 12.0
        board.progress(folder, 2, 0.5)
        board.doing(folder, "training")
    assert out.getvalue().splitlines()[-2:] == [f"{folder.run_id}: step 2 of 4; train success 0.50", "0 of 1 run done"]


def test_a_run_that_goes_on_begins_at_its_checkpoint_and_one_without_at_step_0(runs):
    clock = Clock()
    board, out = board_of(runs[:2], clock)
    (anew, config), (resumed, _), _ = runs
    for folder in (anew, resumed):
        JsonLines(folder.metrics).append({"step": 3, "train/success_rate": 0.9})
    resumed.mark_complete(2, {}, {})
    with board:
        for folder in (anew, resumed):
            board.started(folder, config)
        clock.now = 12.0
        board.doing(anew, "loading")
        # Its last checkpoint was damaged.
        board.progress(resumed, 1, 0.5)
        board.progress(anew, 1, 0.25)
        clock.now = 24.0
        board.doing(anew, "")
    lines = [line for line in out.getvalue().splitlines() if ": step" in line]
    assert lines == [
        f"{anew.run_id}: step 0 of 4; loading",
        f"{resumed.run_id}: step 2 of 4; starting",
        f"{anew.run_id}: step 1 of 4; train success 0.25",
        f"{resumed.run_id}: step 1 of 4; train success 0.50",
    ]


def test_a_terminal_shows_a_bar_for_each_run_and_one_for_all(runs):
    clock = Clock()
    board, out = board_of(runs, clock, force_terminal=True)
    (folder, config), *_ = runs
    with board:
        board.started(folder, config)
        train(board, folder, clock, start_s=60, step_s=10, steps=2)
        board.doing(folder, "training")
    shown = out.getvalue()
    for part in ("runs done", "0/3", "about 4 min left", folder.run_id, "2/4", "train success 0.50"):
        assert part in shown


def test_a_run_that_could_not_be_started_is_told(runs):
    board, out = board_of(runs, Clock())
    folder, _ = runs[0]
    with board:
        board.ended(folder, Outcome(State.FAILED, "could not be started: no [room] there"))
    assert out.getvalue() == f"FAILED {folder.run_id}: could not be started: no [room] there\n"
