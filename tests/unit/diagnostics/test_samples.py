import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.diagnostics.samples import (
    TEXT_BATCHES,
    dense_probe,
    read_arrays,
    read_probe,
    read_step_texts,
    save_step_texts,
)
from scpo.errors import RecordError
from scpo.records import RunFolder
from tests.support.run_records import write_probe, write_step_texts
from tests.support.step_batches import EqualityScorer, make_batch, method, shaper_config

SCPO = method(shaper=shaper_config())
EPISODES = ((0, 0, "a b", 1), (0, 1, "a c", 0))


def save(folder, step, batch):
    _, told = assign(batch, EqualityScorer(), SCPO)
    save_step_texts(RunFolder(folder), step, batch, told)


def sampled(folder):
    return sorted(path.name for path in RunFolder(folder).diagnostics.glob("*.npz"))


def test_the_first_batches_with_an_active_group_are_sampled(tmp_path):
    save(tmp_path, 1, make_batch((0, 0, "a b", 1)))
    for step in range(2, TEXT_BATCHES + 4):
        save(tmp_path, step, make_batch(*EPISODES))
    assert sampled(tmp_path) == [f"step_texts_step_{step:05d}.npz" for step in range(2, TEXT_BATCHES + 2)]


def test_text_outcome_and_credit_of_every_step_are_kept(tmp_path):
    save(tmp_path, 1, make_batch(*EPISODES))
    (path,) = RunFolder(tmp_path).diagnostics.glob("*.npz")
    kept = {name: column[2] for name, column in read_arrays(path, "file of step texts").items()}
    assert kept == {"group": 0, "trajectory": 1, "step": 0, "text": "a || now a", "success": False, "credit": 1.0}


def test_a_batch_of_which_the_filter_left_nothing_is_no_sample(tmp_path):
    save(tmp_path, 1, make_batch(*EPISODES, valid_N=[False] * 4))
    assert sampled(tmp_path) == []


def test_the_most_credited_failure_is_scored_in_full():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x", 0), (0, 2, "x a b", 0), (0, 3, "a b", 0))
    arrays = dense_probe(batch, EqualityScorer(), shaper_config(order="chronological"), (0, 0))
    assert arrays["failed_text_l"].tolist() == ["x || now x", "a || now a", "b || now b"]
    assert arrays["reference_text_m"].tolist() == ["a || now a", "b || now b"]
    assert np.array_equal(arrays["similarity_ml"], np.array([[0, 1, 0], [0, 0, 1]], np.float32))
    assert arrays["credit_l"].tolist() == [0, 1, 1]
    assert arrays["matched_l"].tolist() == [-1, 0, 1]
    assert arrays["order_l"].tolist() == [0, 1, 2]
    assert arrays["walk_l"].tolist() == [-1, 0, 1]


def test_arrays_are_plain_enough_for_a_file_without_pickle(tmp_path):
    batch = make_batch((0, 0, "a b", 1), (0, 1, "x", 0))
    probe = dense_probe(batch, EqualityScorer(), shaper_config(), (0, 0))
    np.savez(tmp_path / "probe.npz", **probe)
    with np.load(tmp_path / "probe.npz", allow_pickle=False) as loaded:
        assert loaded["similarity_ml"].shape == (2, 1)


def test_without_an_active_group_or_a_surviving_step_there_is_no_probe():
    for batch in (
        make_batch((0, 0, "a", 0), (0, 1, "a", 0)),
        make_batch((0, 0, "a", 1), (0, 1, "a", 0), valid_N=[True, False]),
        make_batch((0, 0, "a", 1), (0, 1, "a", 0), valid_N=[False, True]),
    ):
        assert dense_probe(batch, EqualityScorer(), shaper_config(), (0, 0)) is None


def _stored(path):
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("similarity_ml", lambda array: array * np.nan),
        ("similarity_ml", lambda array: array[0]),
        ("similarity_ml", lambda array: array.astype(str)),
        ("similarity_ml", lambda array: array[:-1]),  # credit and walk stay below the last reference step
        ("reference_text_m", lambda array: array[:-1]),
        ("failed_text_l", lambda array: array[:-1]),
        ("matched_l", lambda array: array[:-1]),
        ("matched_l", lambda array: array + 1000),
        ("matched_l", lambda array: np.where(array < 0, 0, array)),
        ("walk_l", lambda array: array[:-1]),
        ("order_l", lambda array: array.astype(float)),
        ("walk_l", lambda array: np.append(array, np.zeros(1000, int))),
        ("theta", lambda array: np.array([array, array])),
        ("theta", lambda array: array * np.inf),
        ("task", lambda array: np.zeros(())),  # drawn as a task called 0.0
        ("found", lambda array: np.zeros(0)),  # read as a probe without a pair
        ("step", lambda array: array + 1),
        ("credit_l", lambda array: array[:-1]),
        ("soft_base", lambda array: array * np.nan),
        ("reference_text_m", lambda array: np.zeros(array.shape)),
    ],
)
def test_a_probe_of_wrong_content_is_refused(tmp_path, name, change):
    (tmp_path / "diagnostics").mkdir()
    path = write_probe(tmp_path, 3)
    assert read_probe(path).pair is not None
    arrays = _stored(path)
    np.savez(path, **{**arrays, name: change(arrays[name])})
    with pytest.raises(RecordError, match=r"probe_step_00003\.npz is not a probe file"):
        read_probe(path)


@pytest.mark.parametrize("first", [-1, 1])
def test_a_processing_order_that_skips_a_step_is_refused_without_credit_too(tmp_path, first):
    (tmp_path / "diagnostics").mkdir()
    path = write_probe(tmp_path, 3)
    arrays = _stored(path)
    # Without credit, only the order itself shows that it is wrong.
    arrays["matched_l"] = np.full_like(arrays["matched_l"], -1)
    np.savez(path, **arrays)
    assert read_probe(path).pair is not None
    arrays["order_l"][0] = first
    np.savez(path, **arrays)
    with pytest.raises(RecordError, match="order_l does not name each of the"):
        read_probe(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("credit", lambda array: array * np.nan),
        ("credit", lambda array: array[:-1]),
        ("text", lambda array: np.arange(len(array))),
        ("text", lambda array: array[0]),
        ("success", lambda array: array.astype(str)),
        ("group", lambda array: array + 0.5),
    ],
)
def test_step_texts_of_wrong_content_are_refused(tmp_path, name, change):
    (tmp_path / "diagnostics").mkdir()
    write_step_texts(tmp_path, 3, "go to", credited=True)
    (path,) = tmp_path.glob("diagnostics/*")
    assert read_step_texts([path]).batches == 1
    arrays = _stored(path)
    np.savez(path, **{**arrays, name: change(arrays[name])})
    with pytest.raises(RecordError, match=r"step_texts_step_00003\.npz is not a file of step texts"):
        read_step_texts([path])
