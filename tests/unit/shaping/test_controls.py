import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.credit.assign import assign
from scpo.shaping.shaper import allocate, shape
from tests.support.step_batches import (
    EqualityScorer,
    make_batch,
    method,
    random_batch,
    settings_of,
    shaper_config,
    take,
)

CREDIT = np.array([0, 1, 0.5, 0], np.float32)
CONTROLS = ["random_match", "uniform_bonus"]


def test_the_matchers_credit_stays_where_it_is():
    assert allocate(CREDIT, "matched", (0, 0), 0) is CREDIT


def test_random_match_puts_the_same_values_on_other_steps():
    drawn = [allocate(CREDIT, "random_match", (0, step), 0).tolist() for step in range(200)]
    assert all(sorted(values) == sorted(CREDIT.tolist()) for values in drawn)
    assert {values.index(1) for values in drawn} == {0, 1, 2, 3}


def test_uniform_bonus_spreads_the_sum():
    assert allocate(CREDIT, "uniform_bonus", (0, 0), 0).tolist() == [0.375] * 4


def test_the_draw_depends_only_on_run_step_and_trajectory():
    many = np.arange(50, dtype=np.float32) / 50
    drawn = {
        (seed, step, trajectory): tuple(allocate(many, "random_match", (seed, step), trajectory))
        for seed in (0, 1) for step in (0, 1) for trajectory in (0, 1)
    }  # fmt: skip
    assert len(set(drawn.values())) == 8
    assert tuple(allocate(many, "random_match", (1, 0), 1)) == drawn[1, 0, 1]


@pytest.mark.parametrize("allocation", CONTROLS)
@given(seed=st.integers(0, 10_000), copies=st.integers(0, 4))
def test_every_failure_keeps_its_credit_mass_on_surviving_steps(allocation, seed, copies):
    batch = random_batch(seed, copies=copies)
    matched = shape(batch, EqualityScorer(), shaper_config(), (seed, 1))
    moved = shape(batch, EqualityScorer(), shaper_config(allocation=allocation), (seed, 1))
    assert not moved.credit_N[batch.success_N | ~moved.surviving_N].any()
    for before, after in zip(matched.matches, moved.matches, strict=True):
        assert after.trace == before.trace
        assert after.credit_l.sum() == pytest.approx(before.credit_l.sum(), abs=1e-5)
        assert np.array_equal(moved.credit_N[after.failed_row_l], after.credit_l)


def test_diagnostics_count_the_steps_that_are_credited_now():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a x y z", 0))
    plain, spread = (
        assign(batch, EqualityScorer(), method(settings_of("gigpo"), shaper_config(allocation=allocation)))[1]
        for allocation in ("matched", "uniform_bonus")
    )
    assert (plain.metrics["credit/steps"], spread.metrics["credit/steps"]) == (1, 4)
    assert plain.metrics["credit/aux_mean"] == spread.metrics["credit/aux_mean"]
    assert spread.shaped.credit_N.tolist() == [0, 0, 0.25, 0.25, 0.25, 0.25]


@pytest.mark.parametrize("allocation", CONTROLS)
def test_a_failure_without_surviving_steps_gets_nothing(allocation):
    batch = make_batch((0, 0, "a", 1), (0, 1, "a", 0), valid_N=[True, False])
    assert not shape(batch, EqualityScorer(), shaper_config(allocation=allocation), (0, 0)).credit_N.any()


@pytest.mark.parametrize("allocation", CONTROLS)
def test_permuting_rows_permutes_the_credit(allocation):
    batch = random_batch(5, copies=3)
    rows = np.random.default_rng(5).permutation(len(batch))
    config = shaper_config(allocation=allocation)
    permuted = take(batch, rows, is_copy_N=batch.is_copy_N[rows])
    before, after = (shape(one, EqualityScorer(), config, (0, 0)).credit_N for one in (batch, permuted))
    assert np.array_equal(after, before[rows])
