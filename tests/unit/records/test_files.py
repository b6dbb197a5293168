import errno
import os

import pytest

from scpo.errors import RecordError, RecordWriteError, UnreadableError
from scpo.records.files import naming_write_errors, read_json, read_yaml, write_json, write_yaml
from tests.support.damage import without_permission


def test_json_and_yaml_come_back_as_they_were_written(tmp_path):
    value = {"b": [1, None, "−"], "a": {"x": 1e-05, "y": "3"}}
    write_yaml(tmp_path / "x.yaml", value)
    assert read_yaml(tmp_path / "x.yaml") == value
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.yaml"]


def test_json_refuses_nan_and_keeps_the_old_file(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert read_json(tmp_path / "x.json") == {"a": 1}


def test_a_record_of_another_user_is_not_damaged_and_its_remedy_is_a_permission(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"a": 1})
    with without_permission(path), pytest.raises(UnreadableError) as caught:
        read_json(path, "Delete it")
    assert str(caught.value).startswith(f"cannot read {path}: permission denied (owner ")
    assert str(caught.value).endswith(f"for permission: chmod -R a+rX {tmp_path}")


def test_a_missing_record_has_its_remedy_once(tmp_path):
    with pytest.raises(RecordError) as caught:
        read_json(tmp_path / "record.json", "Delete it")
    assert str(caught.value) == f"cannot read record {tmp_path}/record.json: No such file or directory. Delete it"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room (or fix the permissions)"), (errno.EFBIG, "raise the limit on the size of files")],
)
def test_a_failed_write_names_the_space_and_the_remedy_of_its_cause(tmp_path, number, remedy):
    with pytest.raises(RecordWriteError) as caught, naming_write_errors(tmp_path / "log", 7):
        raise OSError(number, os.strerror(number))
    message = str(caught.value)
    assert "(7 bytes needed, " in message
    assert f"{os.strerror(number)}. What it held before is intact; {remedy}" in message
