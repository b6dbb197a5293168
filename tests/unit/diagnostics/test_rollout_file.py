import gzip
import json

import pytest

from bench.recorded import ROLLOUTS
from scpo.diagnostics.rollout_file import read_rollouts
from scpo.errors import RecordError
from scpo.shaping.order import positions


def write(path, content):
    with gzip.open(path, "wt") as file:
        file.write(content)
    return path


def test_every_row_says_its_game_and_how_long_its_text_was():
    recorded = next(read_rollouts(ROLLOUTS / "gigpo_s0.json.gz"))
    assert recorded.step == 1
    assert recorded.batch.task_id_N[0].startswith("train/look_at_obj_in_light-Laptop-None-DeskLamp-323/")
    assert recorded.tokens_N[0] == 31
    by_length = recorded.ordered("length", 4).position_N
    assert by_length.tolist() == positions(recorded.tokens_N, "length", 4).tolist()


@pytest.mark.parametrize("content", ["", "{", "[1]", json.dumps([{"step": 1}]), json.dumps([{"groups": []}])])
def test_a_file_that_holds_no_rollouts_is_named(content, tmp_path):
    path = write(tmp_path / "rollouts.json.gz", content)
    with pytest.raises(RecordError, match=r"rollouts\.json\.gz holds no recorded rollouts"):
        list(read_rollouts(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"nowhere\.json\.gz holds no recorded rollouts"):
        list(read_rollouts(tmp_path / "nowhere.json.gz"))
