"""Laws that every entry of the registry satisfies, whatever it estimates. A new estimator needs its settings here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages import ESTIMATORS
from scpo.advantages.returns import step_returns
from scpo.schema import HOSTS
from tests.support.step_batches import (
    empg_settings,
    g2po_settings,
    gigpo_settings,
    grpo_settings,
    hcapo_settings,
    hgpo_settings,
    make_batch,
    measured,
    noise,
    random_batch,
    rloo_settings,
    take,
)

SETTINGS = {
    "rloo": [rloo_settings(), rloo_settings(statistics="trajectories", std_floor=0.0)],
    "grpo": [grpo_settings(), grpo_settings(normalisation="mean_norm", statistics="trajectories")],
    "empg": [empg_settings(), empg_settings(k=3.0, zeta=0.0, normalisation="mean_norm")],
    "gigpo": [
        gigpo_settings(),
        gigpo_settings(normalisation="mean_norm", singletons="group_step"),
        gigpo_settings(anchors="similar", anchor_similarity=0.6, statistics="trajectories", std_floor=0.0),
    ],
    "hcapo": [hcapo_settings(), hcapo_settings(smoothing=0.5, statistics="rows")],
    "hgpo": [
        hgpo_settings(),
        hgpo_settings(normalisation="mean_norm", context=0, exponent=2.0, std_floor=0.0),
        hgpo_settings(weights="code", base_group=True, context=3),
    ],
    "g2po": [g2po_settings(), g2po_settings(normalisation="mean_norm", statistics="trajectories")],
}
ROW_LEVEL = [name for name, entry in ESTIMATORS.items() if entry.level == "row"]
CASES = [pytest.param(name, config, id=f"{name}-{i}") for name in SETTINGS for i, config in enumerate(SETTINGS[name])]

BATCH_WIDE = {"empg"}  # entropy is normalised, and the mean subtracted, over the batch
STEPS_DIFFER = {"empg", "hcapo", "g2po"}  # a step's worth depends on its time or entropy, not on its siblings alone


def cases(*, leaving_out=frozenset()):
    return pytest.mark.parametrize(("name", "config"), [case for case in CASES if case.values[0] not in leaving_out])


def estimate(name, config, batch, bonus_N=None):
    bonus_N = np.zeros(len(batch), np.float32) if bonus_N is None else bonus_N
    return ESTIMATORS[name].function(measured(batch), step_returns(batch, config.gamma), bonus_N, config)


def bonus_of(batch, seed):
    """A bonus per step, shared by its copies."""
    return noise(batch, seed).astype(np.float32)


def test_every_entry_has_settings_to_be_tested_with():
    assert set(SETTINGS) == set(ROW_LEVEL)


def test_scpos_hosts_are_the_entries_that_read_the_bonus():
    assert set(HOSTS) == {name for name, entry in ESTIMATORS.items() if "step_bonus" in entry.requires}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_entries_say_what_they_need(name):
    entry = ESTIMATORS[name]
    assert entry.level in {"row", "token"}
    assert entry.requires <= {"step_bonus", "entropy", "hindsight_logprob", "value"}
    assert entry.function.__doc__


@cases()
@pytest.mark.parametrize("batch", [make_batch(), make_batch((0, 0, "a", 0)), random_batch(0, copies=5)], ids=len)
def test_answers_are_finite_float32_one_per_row(name, config, batch):
    advantage_N = estimate(name, config, batch)
    assert advantage_N.dtype == np.float32
    assert advantage_N.shape == (len(batch),)
    assert np.isfinite(advantage_N).all()


@cases()
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_permuting_rows_permutes_answers(name, config, seed):
    batch = random_batch(seed, copies=3)
    bonus_N, rows = bonus_of(batch, seed), np.random.default_rng(seed).permutation(len(batch))
    permuted = take(batch, rows, is_copy_N=batch.is_copy_N[rows])
    answer_N = estimate(name, config, permuted, bonus_N[rows])
    assert np.array_equal(answer_N, estimate(name, config, batch, bonus_N)[rows])


@cases()
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_a_copy_gets_its_twins_advantage(name, config, seed):
    batch = random_batch(seed, copies=6)
    answer_N = estimate(name, config, batch, bonus_of(batch, seed))
    for row in np.flatnonzero(batch.is_copy_N):
        twins = (batch.trajectory_N == batch.trajectory_N[row]) & (batch.step_N == batch.step_N[row])
        assert len(set(answer_N[twins].tolist())) == 1


@cases(leaving_out=BATCH_WIDE)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_groups_do_not_see_each_other(name, config, seed):
    batch = random_batch(seed, groups=2)
    bonus_N, alone = bonus_of(batch, seed), np.flatnonzero(batch.group_N == 1)
    together_N = estimate(name, config, batch, bonus_N)
    assert np.array_equal(together_N[alone], estimate(name, config, take(batch, alone), bonus_N[alone]))


@cases()
def test_only_entries_that_say_so_read_the_bonus(name, config):
    batch = random_batch(3)
    moved = not np.array_equal(estimate(name, config, batch), estimate(name, config, batch, bonus_of(batch, 3)))
    assert moved == ("step_bonus" in ESTIMATORS[name].requires)


@cases(leaving_out=STEPS_DIFFER)
@pytest.mark.parametrize("outcome", [0.0, 0.1, 10.0])
def test_siblings_that_did_the_same_have_no_advantage_over_each_other(name, config, outcome):
    batch = make_batch(*[(0, k, "a b c", outcome) for k in range(5)])
    assert np.array_equal(estimate(name, config, batch), np.zeros(15, np.float32))


@cases()
def test_inputs_are_left_as_they_were(name, config):
    batch = random_batch(4, copies=2)
    bonus_N = bonus_of(batch, 4)
    before = bonus_N.copy(), batch.episode_return_N.copy(), batch.reward_N.copy()
    estimate(name, config, batch, bonus_N)
    assert all(
        np.array_equal(*pair) for pair in zip(before, (bonus_N, batch.episode_return_N, batch.reward_N), strict=True)
    )
