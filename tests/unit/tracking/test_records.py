import pytest
from pydantic import ValidationError

from scpo.tracking import State
from scpo.tracking.records import Status


@pytest.mark.parametrize("pid", [0, -1, 1 << 31, "all"])
def test_no_process_group_and_no_impossible_process_is_read_from_a_record(pid):
    """``os.kill`` takes 0 and negative numbers for whole groups of processes."""
    with pytest.raises(ValidationError, match="pid"):
        Status(state=State.RUNNING, steps=3, pid=pid)


def test_a_process_id_is_a_positive_number():
    assert Status(state=State.RUNNING, steps=3, pid=4242).pid == 4242
