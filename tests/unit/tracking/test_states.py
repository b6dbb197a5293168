import pytest
from pydantic import ValidationError

from scpo.tracking import State, Status


@pytest.mark.parametrize("state", [state for state in State if state is not State.DAMAGED])
def test_a_state_is_settled_live_or_startable_and_only_one_of_them(state):
    assert [state.settled, state.live, state.startable].count(True) == 1


def test_damage_is_for_a_person_to_look_at():
    assert not any((State.DAMAGED.settled, State.DAMAGED.live, State.DAMAGED.startable))


@pytest.mark.parametrize("state", State)
def test_a_status_holds_what_a_run_itself_can_know(state):
    if state.recorded:
        assert Status(state=state, steps=1).state is state
    else:
        with pytest.raises(ValidationError, match=f"{state} is what others see"):
            Status(state=state, steps=1)
