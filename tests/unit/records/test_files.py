import pytest

from scpo.records.files import read_json, read_yaml, write_json, write_yaml


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
