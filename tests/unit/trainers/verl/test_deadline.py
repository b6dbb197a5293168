import threading
from types import SimpleNamespace

import pytest

from scpo.errors import RolloutError
from scpo.trainers.verl.deadline import WithDeadline


def manager(update_weights):
    return SimpleNamespace(update_weights=update_weights, sleep_replicas=lambda: "asleep")


def test_weights_that_arrive_are_as_without_a_deadline():
    one = WithDeadline(manager(lambda step, mode="auto": (step, mode)), 5.0)
    assert one.update_weights(3, mode="naive") == (3, "naive")
    assert one.sleep_replicas() == "asleep"


def test_an_engine_that_never_takes_them_stops_the_run():
    never = threading.Event()
    with pytest.raises(RolloutError, match=r"did not take the new weights within 0\.05 s \(trainer\.verl\.stall_s\)"):
        WithDeadline(manager(lambda: never.wait(30)), 0.05).update_weights()
    never.set()


def test_what_the_sending_dies_of_is_raised_as_itself():
    def broken():
        raise OSError("socket is gone")

    with pytest.raises(OSError, match="socket is gone"):
        WithDeadline(manager(broken), 5.0).update_weights()
