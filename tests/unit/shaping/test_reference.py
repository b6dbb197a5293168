import numpy as np

from scpo.shaping.reference import active_groups, select
from tests.support.step_batches import make_batch, take

BATCH = make_batch(
    (0, 0, "a b", 0), (0, 1, "a b c", 1), (0, 2, "a", 1), (0, 3, "a b c", 1),
    (1, 4, "a", 0), (1, 5, "a", 0),
    (2, 6, "a", 1), (2, 7, "a", 1),
)  # fmt: skip


def reference(batch, selection, seed=(0, 0)):
    line = batch.timeline
    ((_, successful, _),) = active_groups(line)
    return line.id_K[select(line, successful, selection, seed)]


def test_only_groups_with_both_outcomes_are_active():
    line = BATCH.timeline
    (active,) = active_groups(line)
    group, successful, failed = active
    assert (group, line.id_K[successful].tolist(), line.id_K[failed].tolist()) == (0, [1, 2, 3], [0])


def test_longest_and_shortest_success_and_ties_go_to_the_smallest_id():
    assert reference(BATCH, "longest") == 1
    assert reference(BATCH, "shortest") == 2


def test_length_counts_steps_before_filtering():
    batch = make_batch((0, 0, "a", 0), (0, 1, "a b c", 1), (0, 2, "a b", 1), valid_N=[True, *[False] * 3, True, True])
    assert reference(batch, "longest") == 1


def test_the_choice_does_not_depend_on_rows_or_copies():
    rows = np.random.default_rng(0).permutation(len(BATCH))
    mixed = take(BATCH, [*rows, 5, 5, 5, 5])
    for selection in ("longest", "shortest", "random"):
        assert reference(mixed, selection) == reference(BATCH, selection)


def test_random_references_are_seeded_by_run_step_and_group():
    chosen = {reference(BATCH, "random", (run, step)) for run in range(4) for step in range(4)}
    assert chosen == {1, 2, 3}
    assert reference(BATCH, "random", (3, 4)) == reference(BATCH, "random", (3, 4))


def test_an_empty_batch_has_no_active_group():
    assert list(active_groups(make_batch().timeline)) == []
