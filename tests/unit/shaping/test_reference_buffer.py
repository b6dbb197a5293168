import gzip

import pytest

from scpo.errors import RecordError
from scpo.shaping.reference_buffer import ReferenceBuffer


def filled(*kept, max_age=None, tasks=10):
    buffer = ReferenceBuffer(max_age, tasks)
    for task, step in kept:
        buffer.keep(task, step, (f"{task} at {step}",))
    return buffer


def test_the_last_success_of_a_task_is_what_is_found():
    buffer = filled(("mug", 1), ("pan", 2), ("mug", 3))
    assert buffer.find("mug", 4) == (3, ("mug at 3",))
    assert buffer.find("pan", 4) == (2, ("pan at 2",))
    assert buffer.find("egg", 4) is None
    assert len(buffer) == 2


def test_a_reference_serves_up_to_its_age_limit():
    buffer = filled(("mug", 1), max_age=5)
    assert buffer.find("mug", 6) is not None
    assert buffer.find("mug", 7) is None


def test_without_a_limit_no_reference_is_too_old():
    assert filled(("mug", 1)).find("mug", 10_000) is not None


def test_what_is_too_old_is_dropped_when_something_new_comes():
    assert len(filled(("mug", 1), ("pan", 2), ("egg", 6), max_age=4)) == 2


def test_the_oldest_success_makes_room():
    buffer = filled(("mug", 1), ("pan", 2), ("mug", 3), ("egg", 4), tasks=2)
    assert buffer.find("pan", 5) is None
    assert buffer.find("mug", 5) is not None


def test_a_dump_brings_everything_back_and_goes_on_with_the_same_bytes():
    buffer = filled(("mug", 1), ("pan", 2), ("mug", 3))
    again = ReferenceBuffer(None, 2)
    again.load(buffer.dump())
    assert again.dump() == buffer.dump()
    assert again.find("mug", 4) == buffer.find("mug", 4)
    again.keep("egg", 4, ("x",))
    assert again.find("pan", 5) is None, "the order of successes came back too"


DAMAGED = {
    "empty": b"", "no gzip": b"no gzip", "no JSON": gzip.compress(b"{"), "a list": gzip.compress(b"[1]"),
    "no reference": gzip.compress(b'{"a": 1}'),
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_dump_is_refused(content):
    with pytest.raises(RecordError, match=r"references\.json\.gz of the checkpoint holds no references"):
        ReferenceBuffer(None).load(content)
