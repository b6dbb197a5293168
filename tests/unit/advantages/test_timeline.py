import numpy as np

from scpo.advantages.timeline import timeline
from tests.support.step_batches import make_batch, take


def test_neighbours_of_a_shuffled_batch_with_copies():
    batch = take(make_batch((0, 0, "a b c", 1), (0, 1, "a", 0)), [2, 0, 3, 1, 1])  # steps 2 0 | 0 | 1 and its copy
    line = timeline(batch)
    assert line.neighbours(1).tolist() == [-1, 3, -1, 0, 0]
    assert line.neighbours(-1).tolist() == [3, -1, -1, 1, 1]
    assert line.neighbours(-2).tolist() == [1, -1, -1, -1, -1]
    assert line.neighbours(0).tolist() == [0, 1, 2, 3, 3]
    assert line.lengths.tolist() == [3, 3, 1, 3, 3]


def test_no_rows_have_no_neighbours():
    assert timeline(make_batch()).neighbours(1).dtype == np.int64
    assert timeline(make_batch()).lengths.shape == (0,)
