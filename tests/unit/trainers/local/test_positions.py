"""Processing order of a batch without a shaper: the same in every trainer."""

from types import SimpleNamespace

import numpy as np
import pytest

from scpo.shaping.order import positions
from scpo.trainers.local.trainer import _positions
from sweeps.compose.configuration import compose_run


@pytest.mark.parametrize("method", ["gigpo", "scpo"])
def test_a_method_without_a_shaper_gets_the_order_of_the_paper_s_four_gpus(method):
    lengths = [7, 3, 9, 4, 4, 8, 1, 6]
    batch = [SimpleNamespace(generations=[SimpleNamespace(tokens=length) for length in lengths])]
    found = _positions(compose_run([f"method={method}"]), batch)
    assert found.tolist() == positions(lengths, "balanced", 4).tolist()
    assert found.tolist() != np.arange(len(lengths)).tolist()
