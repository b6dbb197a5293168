import logging
import sys

import pytest

from scpo.progress import Pace, about, progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    caplog.set_level(logging.INFO)


def test_without_a_terminal_a_line_comes_at_once_and_then_after_each_ten_seconds(caplog):
    clock, seen = Clock(), []
    for item in progress("abcdefgh", "warm start", "update", clock):
        clock.now += 4.0
        seen.append(item)
    assert seen == list("abcdefgh")
    assert caplog.messages == [
        "warm start: 8 updates",
        "warm start: update 3 of 8 is done, about 20 s left",
        "warm start: update 6 of 8 is done, about 10 s left",
    ]


def test_a_loop_of_an_hour_leaves_few_lines(caplog):
    clock = Clock()
    for _ in progress(range(3600), "training", "step", clock):
        clock.now += 1.0
    assert 90 < len(caplog.messages) < 120  # a line every ten seconds would make 360


def test_a_pace_is_true_once_in_an_interval():
    clock = Clock()
    pace = Pace(clock)
    clock.now = 9.9
    assert not pace.due()
    clock.now = 10.0
    assert pace.due()
    assert not pace.due()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "about 1 s"),
        (4.0, "about 5 s"),
        (31.0, "about 30 s"),
        (54.0, "about 55 s"),
        (60.0, "about 1 min"),
        (170.0, "about 3 min"),
        (89 * 60.0, "about 89 min"),
        (3600 * 2.46, "about 2.5 h"),
    ],
)
def test_times_are_rounded_as_estimates_are(seconds, text):
    assert about(seconds) == text
