"""Every mini-batch gets its part of the padding, and real rows keep their order."""

import pytest

from scpo.trainers.verl.verl_rows import real_rows, spread_padding

MINI = 256


def as_verl_leaves_it(rows, ranks):
    """Rows filled to a multiple of the mini-batch, padding at the end of each rank's part, dealt out in turn."""
    total = -(-rows // MINI) * MINI
    padding = [(total - rows) // ranks + (rank < (total - rows) % ranks) for rank in range(ranks)]
    return [place >= total // ranks - padding[rank] for rank in range(ranks) for place in range(total // ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("rest", [0, 1, 4, 128, 255])
def test_the_last_update_is_as_large_as_the_others(rest, ranks):
    is_padding = as_verl_leaves_it(16 * MINI + rest, ranks)
    assert rest == 0 or min(real_rows(is_padding, ranks=ranks, mini_batch=MINI)) == rest  # the fault
    order = spread_padding(is_padding, ranks=ranks, mini_batch=MINI)
    assert sorted(order) == list(range(len(is_padding)))
    found = real_rows([is_padding[row] for row in order], ranks=ranks, mini_batch=MINI)
    assert sum(found) == 16 * MINI + rest
    assert max(found) - min(found) <= 1
    share = len(is_padding) // ranks
    for rank in range(ranks):
        part = order[rank * share : (rank + 1) * share]
        assert all(rank * share <= row < (rank + 1) * share for row in part)  # no row changes its rank
        real = [row for row in part if not is_padding[row]]
        assert real == sorted(real)


def test_a_batch_of_one_mini_batch_stays_as_it_is():
    is_padding = as_verl_leaves_it(250, 2)
    assert spread_padding(is_padding, ranks=2, mini_batch=MINI) == list(range(MINI))
