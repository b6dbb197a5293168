import pytest

from scpo.tracking import State
from sweeps.reconcile import Action, Observed, decide, reconcile

EXPECTED = {
    (None, False): (Action.START, "NEW"),
    (None, True): (Action.LEAVE, "NEW"),
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
}


def test_the_table_has_every_case():
    assert set(EXPECTED) == {(state, alive) for state in (None, *State) for alive in (False, True)}


@pytest.mark.parametrize(("state", "alive"), EXPECTED)
def test_every_state_has_one_action(state, alive):
    run = Observed(state, alive)
    assert (decide(run).action, run.shown) == EXPECTED[state, alive]


def test_what_is_not_on_disk_is_started_and_what_is_not_wanted_is_left_out():
    plan = reconcile(["a", "b"], {"b": Observed(State.DONE), "c": Observed(State.FAILED)})
    assert {run_id: one.action for run_id, one in plan.items()} == {"a": Action.START, "b": Action.SKIP}
