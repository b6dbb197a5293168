import gzip
import json
from types import SimpleNamespace

import pytest

from bench.recorded import ROLLOUTS
from scpo.credit.assign import assign
from scpo.diagnostics.rollout_file import read_rollouts, save_rollouts
from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.shaping.order import positions
from tests.support.step_batches import FIELDS, make_batch, method, take


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


def saved(tmp_path, batch, step, trajectories=(), every=2):
    _, told = assign(batch, None, method(name="gigpo"))
    save_rollouts(RunFolder(tmp_path), step, batch, told, trajectories=trajectories, every=every)
    return sorted((tmp_path / "diagnostics").glob("rollouts_*"))


BATCH = make_batch((0, 0, "a b", 10), (0, 1, "a", 0), (3, 2, "c c", 0), position_N=[4, 2, 0, 1, 3])


def test_a_batch_that_a_run_kept_comes_back(tmp_path):
    (path,) = saved(tmp_path, BATCH, 4)
    assert path.name == "rollouts_step_00004.json.gz"
    (again,) = read_rollouts(path)
    assert again.step == 4
    for name in FIELDS:
        mine, theirs = getattr(BATCH, name), getattr(again.batch, name)
        if name == "trajectory_N":
            assert theirs.tolist() == [0, 0, 1, 3000, 3000]
        elif name != "next_observation_N" or mine is not None:
            assert (mine is None and theirs is None) or (mine == theirs).all(), name
    assert again.ordered("length", 4) is again.batch, "no lengths are known"


def test_lengths_are_those_of_the_generations(tmp_path):
    trajectory = SimpleNamespace(generations=[SimpleNamespace(tokens=n) for n in (5, 9, 2, 7, 1)])
    (path,) = saved(tmp_path, BATCH, 2, [trajectory])
    (again,) = read_rollouts(path)
    assert again.ordered("length", 4).position_N.tolist() == [2, 0, 3, 1, 4]


@pytest.mark.parametrize(("step", "every"), [(3, 2), (2, None)])
def test_nothing_is_kept_unless_it_is_due(step, every, tmp_path):
    assert saved(tmp_path, BATCH, step, every=every) == []


def test_a_batch_without_task_ids_is_not_kept(tmp_path):
    assert saved(tmp_path, take(BATCH, range(5), task_id_N=None), 2) == []
