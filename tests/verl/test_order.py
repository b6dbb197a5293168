"""The balanced order against verl's own partition."""

import random

import pytest

from scpo.shaping.order import balanced_partition

pytest.importorskip("ray", reason="needs verl: make test-verl")


@pytest.mark.parametrize("seed", range(200))
def test_parts_are_verls_ties_included(seed):
    from verl.utils.seqlen_balancing import karmarkar_karp  # not while tests are collected: the platform is set later

    rng = random.Random(seed)
    ranks, longest = rng.choice([2, 3, 4, 8]), rng.choice([1, 2, 3, 10, 500])
    lengths = [rng.randint(1, longest) for _ in range(ranks * rng.randint(1, 12))]
    theirs = karmarkar_karp(lengths, ranks, equal_size=True)
    assert balanced_partition(lengths, ranks) == [list(part) for part in theirs]
