import numpy as np

from scpo.diagnostics.probe import dense_probe
from tests.support.step_batches import EqualityScorer, make_batch, shaper_config


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
