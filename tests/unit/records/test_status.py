import pytest
from pydantic import ValidationError

from scpo.errors import RecordError
from scpo.records import RunFolder, State, Status


@pytest.mark.parametrize("state", [state for state in State if state not in (State.DAMAGED, State.UNREADABLE)])
def test_a_state_is_settled_live_or_startable_and_only_one_of_them(state):
    assert [state.settled, state.live, state.startable].count(True) == 1


def test_damage_is_for_a_person_to_look_at():
    assert not any((State.DAMAGED.settled, State.DAMAGED.live, State.DAMAGED.startable))


@pytest.mark.parametrize("state", State)
def test_a_status_holds_what_a_run_itself_can_know(state):
    if state.recorded:
        assert Status(state=state, steps=1).state is state
    else:
        with pytest.raises(ValidationError, match=f"{state} is inferred by observers"):
            Status(state=state, steps=1)


@pytest.mark.parametrize("pid", [0, -1, 1 << 31, "all"])
def test_no_process_group_and_no_impossible_process_is_read_from_a_record(pid):
    """``os.kill`` takes 0 and negative numbers for whole groups of processes."""
    with pytest.raises(ValidationError, match="pid"):
        Status(state=State.RUNNING, steps=3, pid=pid)


def test_a_process_id_is_a_positive_number():
    assert Status(state=State.RUNNING, steps=3, pid=4242).pid == 4242


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run-s0-12345678")


def test_the_status_refuses_unknown_keys_and_names_a_missing_file(folder):
    with pytest.raises(ValidationError, match="extra"):
        Status(state=State.PENDING, steps=3, mood="fine")
    with pytest.raises(RecordError, match=r"status\.json: No such file"):
        folder.read_status()
