"""The adapter between verl's rows and the StepBatch, without verl."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from bench.recorded import recorded
from scpo.credit.assign import assign
from scpo.envs.base import GivenState
from scpo.errors import RolloutError
from scpo.rollout import step_batch
from scpo.schema.scorer import ExactScorer
from scpo.scoring.lexical import Exact
from scpo.shaping.order import positions
from scpo.trainers.verl.verl_rows import read_rows
from tests.support.step_batches import make_batch, method, shaper_config
from tests.support.verl_rows import same_batch, step_rows, verl_batch

EPISODES = [(0, 0, "a b c", 10.0), (0, 1, "a c", 0.0), (1, 2, "b", 10.0), (1, 3, "a b a", 0.0)]
SCPO = method(shaper=shaper_config())


def two_groups_of_two():
    return make_batch(*EPISODES, position_N=[8, 0, 5, 3, 1, 7, 2, 6, 4])


def back(batch, *, order="balanced", padding=(), length_N=None, ranks=4):
    extra_fields, is_padding = verl_batch(step_rows(batch), batch.position_N, padding)
    episodes = len(set(batch.trajectory_N.tolist()))
    rows = read_rows(extra_fields, is_padding, episodes=episodes)
    lengths = np.arange(len(batch)) if length_N is None else length_N
    position_N = rows.positions(order, lengths, ranks=ranks, order_ranks=4)
    return rows, step_batch(rows.trajectories, success_threshold=0.0, position_N=position_N)


def test_a_batch_survives_verls_order_and_its_padding():
    batch = two_groups_of_two()
    rows, again = back(batch, padding=(0, 4, 11))
    same_batch(batch, again)
    assert rows.total == 12
    assert again.position_N.tolist() == [10, 1, 7, 5, 2, 9, 3, 8, 6]


def test_advantages_return_to_the_rows_they_are_of_and_padding_gets_none():
    batch = two_groups_of_two()
    rows, again = back(batch, padding=(0, 4))
    spread = rows.spread(np.arange(1.0, 10.0, dtype=np.float32))
    assert spread.dtype == np.float32
    assert (spread[rows.place_N] == np.arange(1.0, 10.0)).all()
    assert spread[[0, 4]].tolist() == [0.0, 0.0]
    assert (rows.place_N == again.position_N).all()
    assert rows.spread(np.ones((9, 2), dtype=np.float32)).shape == (11, 2)


def test_length_order_looks_at_tokens_and_not_at_verls_order():
    batch = make_batch(*EPISODES)
    _, again = back(batch, order="length", length_N=np.array([5, 9, 1, 7, 2, 8, 3, 6, 4]))
    assert np.argsort(again.position_N).tolist() == [1, 5, 3, 7, 0, 8, 6, 4, 2]


def test_a_reward_at_every_step_adds_up_to_the_episode_return():
    batch = make_batch((0, 0, "a b", 3.0), (0, 1, "a", 0.0), reward_N=[1.0, 2.0, 0.0])
    _, again = back(batch)
    assert again.episode_return_N.tolist() == [3.0, 3.0, 0.0]
    assert again.success_N.tolist() == [True, True, False]


@pytest.mark.parametrize("lost", range(9))
def test_a_lost_row_is_named_and_nothing_is_trained_on(lost):
    batch = two_groups_of_two()
    extra_fields, is_padding = verl_batch(step_rows(batch), batch.position_N)
    del extra_fields[lost], is_padding[lost]
    with pytest.raises(RolloutError, match=r"rows were lost|the batch has 3 episodes, 4"):
        read_rows(extra_fields, is_padding, episodes=4)


def test_a_doubled_row_is_named():
    batch = two_groups_of_two()
    extra_fields, is_padding = verl_batch(step_rows(batch), batch.position_N)
    with pytest.raises(RolloutError, match=r"group 0, sibling 1 .* took 2 steps, the batch has steps \[0, 1, 1\]"):
        read_rows([*extra_fields, extra_fields[1]], [*is_padding, False], episodes=4)


def test_what_the_environment_gives_of_states_survives_verl():
    rows = [
        replace(
            row,
            given=asdict(GivenState(f"at {row.step}", "look", "seen", "true")),
            next_given=asdict(GivenState(f"at {row.step + 1}", "look", "seen", "true")),
            no_op=row.step == 1,
        )
        for row in step_rows(make_batch((0, 0, "a b", 1), (0, 1, "a", 0)))
    ]
    read = read_rows(*verl_batch(rows, np.array([2, 0, 1])), episodes=2)
    batch = step_batch(read.trajectories, success_threshold=0.0)
    assert batch.facts_N.tolist() == ["at 0", "at 1", "at 0"]
    assert batch.next_facts_N.tolist() == ["at 1", "at 2", "at 1"]
    assert batch.true_state_N.tolist() == ["true"] * 3
    assert batch.no_op_N.tolist() == [False, True, False]


def test_a_lost_episode_is_named():
    batch = two_groups_of_two()
    rows = step_rows(batch)[:-3]
    extra_fields, is_padding = verl_batch(rows, np.arange(len(rows)))
    with pytest.raises(RolloutError, match="the batch has 3 episodes, 4 were asked for"):
        read_rows(extra_fields, is_padding, episodes=4)


def test_rows_of_another_agent_loop_are_refused_with_what_they_need():
    with pytest.raises(RolloutError, match=r"row 0 .* no StepRow .* got keys \['turns'\]; .* panel, group, sibling"):
        read_rows([{"turns": 3}], [False], episodes=1)


def test_a_row_can_carry_its_benchmarks_score():
    row = replace(step_rows(two_groups_of_two())[0], score=0.5)
    (same,) = read_rows([replace(row, length=1).extra_field()], [False], episodes=1).steps
    assert same.score == 0.5


def test_recorded_rollouts_get_the_same_advantages_bit_for_bit():
    scorer = Exact(ExactScorer(kind="exact", name="exact"))
    for step, batch, _ in recorded():
        rows, again = back(batch, padding=range(0, len(batch), 7))
        ours, _ = assign(batch, scorer, SCPO, seed=(0, step))
        theirs, _ = assign(again, scorer, SCPO, seed=(0, step))
        assert (ours == theirs).all()
        assert (rows.spread(theirs)[rows.place_N] == ours).all()


def test_with_other_ranks_than_the_method_counts_on_the_order_is_computed_as_in_the_local_trainer():
    batch, lengths = two_groups_of_two(), np.array([5, 9, 2, 7, 7, 1, 3, 8, 4])
    _, one_gpu = back(batch, length_N=lengths, ranks=1)
    assert one_gpu.position_N.tolist() == positions(lengths, "balanced", 4).tolist()
    assert one_gpu.position_N.tolist() != batch.position_N.tolist()
