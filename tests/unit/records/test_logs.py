import numpy as np
import pytest

from scpo.errors import RecordError
from scpo.records import JsonLines
from scpo.records.logs import to_line


def test_a_line_has_step_first_then_sorted_keys_and_floats_by_repr():
    record = {"b": np.float32(0.5), "a": 0.1 + 0.2, "step": np.int64(3), "c": float("nan"), "d": float("-inf")}
    assert to_line(record) == b'{"step": 3, "a": 0.30000000000000004, "b": 0.5, "c": null, "d": null}\n'


def test_a_line_refuses_what_is_no_number_or_text():
    with pytest.raises(TypeError, match="not list"):
        to_line({"step": 1, "x": [1]})


def test_a_torn_last_line_is_skipped_and_cut_off_by_the_next_append(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"step": 0}\n{"step": 1, "x": 0.')
    assert log.records() == [{"step": 0}]
    assert log.last() == {"step": 0}
    log.append({"step": 1})
    assert log.path.read_bytes() == b'{"step": 0}\n{"step": 1}\n'


def test_damage_before_the_last_line_is_named_with_its_line(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"step": 0}\n{"ste\n{"step": 2}\n')
    with pytest.raises(RecordError, match=r"log\.jsonl, line 2 is damaged"):
        log.records()
    log.path.write_bytes(b'{"step": 0}\n[1]\n')
    with pytest.raises(RecordError, match=r"line 2 .* integer `step`"):
        log.records()


def test_cutting_after_a_step_keeps_earlier_bytes_as_they_were(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    for step in range(4):
        log.append({"step": step, "x": step / 3})
    before = log.path.read_bytes().splitlines(keepends=True)
    log.replace(log.up_to(1))
    assert log.path.read_bytes() == b"".join(before[:2])
    log.append({"step": 2, "x": 2 / 3})
    assert log.path.read_bytes() == b"".join(before[:3])


def test_the_last_line_of_a_long_log_is_found_from_its_end(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_bytes(b"".join(to_line({"step": step, "pad": "x" * 1000}) for step in range(200)))
    assert log.last()["step"] == 199
