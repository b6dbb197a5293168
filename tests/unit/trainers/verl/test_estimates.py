"""What a training step of verl asks of the core, with the arrays that verl would hand over."""

import numpy as np
import pytest

from scpo.credit.assign import assign, assign_tokens
from scpo.rollout import step_batch
from scpo.trainers.verl.estimates import Columns, estimate
from scpo.trainers.verl.verl_rows import read_rows
from sweeps.compose.configuration import compose_run
from tests.support.step_batches import EqualityScorer, make_batch, take
from tests.support.verl_rows import step_rows, verl_batch

BATCH = make_batch(
    (0, 0, "a b c", 10.0), (0, 1, "a c", 0.0), (1, 2, "b", 10.0), (1, 3, "a b a", 0.0),
    position_N=[8, 0, 5, 3, 1, 7, 2, 6, 4],
)  # fmt: skip
PADDING = (0, 4)
LENGTHS = np.array([1, 2, 5, 3, 1, 4, 2, 2, 3, 1, 4])  # response tokens of verl's 11 rows, two of them padding


def run(*words):
    return compose_run(["trainer=verl_cpu", *words])


def estimated(config, **columns):
    extra_fields, is_padding = verl_batch(step_rows(BATCH), BATCH.position_N, PADDING)
    rows = read_rows(extra_fields, is_padding, episodes=4)
    return rows, estimate(rows, Columns(LENGTHS + 10, LENGTHS, **columns), config, 7, scorer=EqualityScorer(), ranks=4)


def tokens(seed=0):
    return [np.random.default_rng((seed, row)).random(length).astype(np.float32) for row, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("method", ["scpo", "gigpo", "grpo", "rloo", "hgpo", "g2po"])
def test_every_token_of_a_row_gets_the_rows_advantage_and_padding_gets_none(method):
    config = run(f"method={method}")
    rows, answer = estimated(config)
    expected, _ = assign(answer.batch, EqualityScorer(), config.method, seed=(0, 7))
    assert [len(row) for row in answer.advantage] == LENGTHS.tolist()
    for row, place in enumerate(rows.place_N):
        assert (answer.advantage[place] == expected[row]).all()
    assert all((answer.advantage[place] == 0).all() for place in PADDING)


def test_the_batch_is_the_one_that_the_local_trainer_would_build():
    rows, answer = estimated(run())
    again = step_batch(rows.trajectories, success_threshold=0.0, position_N=rows.place_N)
    for name in ("group_N", "trajectory_N", "step_N", "anchor_N", "episode_return_N", "success_N", "position_N"):
        assert (getattr(answer.batch, name) == getattr(again, name)).all()


def test_states_come_through_verl_and_are_absent_where_the_environment_gives_none():
    assert estimated(run())[1].batch.state_N is None
    states = {name: [f"{name} {row}" for row in range(9)] for name in ("state_N", "next_state_N")}
    stated = take(BATCH, np.arange(9), position_N=BATCH.position_N, **states)
    extra_fields, is_padding = verl_batch(step_rows(stated), stated.position_N, PADDING)
    rows = read_rows(extra_fields, is_padding, episodes=4)
    config = run("method=gigpo", "method.estimator.state_key=state")
    batch = estimate(rows, Columns(LENGTHS + 10, LENGTHS), config, 7, scorer=EqualityScorer(), ranks=4).batch
    assert (batch.state_N.tolist(), batch.next_state_N.tolist()) == (states["state_N"], states["next_state_N"])


def test_by_length_the_row_with_most_tokens_comes_first_and_padding_nowhere():
    rows, answer = estimated(run("method=scpo", "method.shaper.order=length"))
    in_order = np.argsort(answer.batch.position_N)
    assert sorted(answer.batch.position_N.tolist()) == list(range(9))
    assert LENGTHS[rows.place_N][in_order].tolist() == sorted(LENGTHS[rows.place_N], reverse=True)


def test_entropy_is_the_mean_over_the_response_of_each_row():
    column = tokens()
    rows, answer = estimated(run("method=empg"), entropy=column)
    assert answer.batch.entropy_N.tolist() == [column[place].mean() for place in rows.place_N]


def test_ppo_estimates_tokens_from_the_critics_values_without_padding():
    config, column = run("method=ppo"), tokens(1)
    rows, answer = estimated(config, value=column)
    width = max(LENGTHS[rows.place_N])
    value_NL, mask_NL = np.zeros((9, width), np.float32), np.zeros((9, width), bool)
    for row, place in enumerate(rows.place_N):
        value_NL[row, : LENGTHS[place]], mask_NL[row, : LENGTHS[place]] = column[place], True
    advantage_NL, target_NL, _ = assign_tokens(answer.batch, value_NL, mask_NL, config.method, seed=(0, 7))
    for row, place in enumerate(rows.place_N):
        assert (answer.advantage[place] == advantage_NL[row, : LENGTHS[place]]).all()
        assert (answer.target[place] == target_NL[row, : LENGTHS[place]]).all()
    assert all((answer.advantage[place] == 0).all() and len(answer.target[place]) == 1 for place in PADDING)


@pytest.mark.parametrize(("method", "name"), [("empg", "entropy"), ("ppo", "value")])
def test_a_column_that_was_not_fetched_is_named(method, name):
    with pytest.raises(ValueError, match=f"requires {name}"):
        estimated(run(f"method={method}"))


def test_the_reference_buffer_goes_by_the_tasks_of_verls_rows():
    config = run("method=scpo", "method.shaper.reference_buffer=last_success")
    buffer = config.trained.shaper.make_buffer()
    extra_fields, is_padding = verl_batch(step_rows(BATCH), BATCH.position_N, PADDING)
    rows = read_rows(extra_fields, is_padding, episodes=4)
    estimate(rows, Columns(LENGTHS + 10, LENGTHS), config, 7, scorer=EqualityScorer(), ranks=4, buffer=buffer)
    assert buffer.find("game 0", 8).texts == ("a || now a", "b || now b", "c || now c")
    assert len(buffer) == 2
