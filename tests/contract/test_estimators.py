"""Laws that every entry of the registry satisfies, whatever it estimates, with its settings as shipped and others."""

from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo import contract
from scpo.advantages.outcomes import step_returns
from scpo.advantages.registry import ESTIMATORS
from tests.support.step_batches import (
    make_batch,
    measured,
    noise,
    random_batch,
    settings_of,
    take,
)

ROW_LEVEL = [name for name, entry in ESTIMATORS.items() if entry.level == "row"]
FURTHER = {  # beside what every estimator is tested with
    "crbc": [{"depth": 0}, {"depth": 3}],
    "empg": [{"k": 3.0, "zeta": 0.0}],
    "gigpo": [{"anchors": "similar", "anchor_similarity": 0.6, "std_floor": 0.0}],
    "hcapo": [{"smoothing": 0.5}],
    "hgpo": [{"context": 0, "exponent": 2.0, "std_floor": 0.0}, {"context": 3}],
}


def settings_to_test(name):
    """An estimator's settings as shipped; with each of its choices made differently; and what is listed above."""
    shipped = settings_of(name)
    choices = {key: _choices(field.annotation) for key, field in type(shipped).model_fields.items()}
    others = {
        key: values[values.index(getattr(shipped, key)) - 1] for key, values in choices.items() if len(values) > 1
    }
    return [shipped, *(settings_of(name, **changes) for changes in (others, *FURTHER.get(name, [])))]


def _choices(annotation):
    return (False, True) if annotation is bool else get_args(annotation) if get_origin(annotation) is Literal else ()


CASES = [pytest.param(name, it, id=f"{name}-{i}") for name in ROW_LEVEL for i, it in enumerate(settings_to_test(name))]

BATCH_WIDE = {"empg", "proxmo"}  # entropy is normalised, or words are weighted, over the batch
# Other steps of the trajectory, or its entropy, matter to a step, not its siblings alone.
STEPS_DIFFER = {"empg", "hcapo", "g2po", "proxmo"}


def cases(*, leaving_out=frozenset()):
    return pytest.mark.parametrize(("name", "config"), [case for case in CASES if case.values[0] not in leaving_out])


def estimate(name, config, batch, bonus_N=None):
    bonus_N = np.zeros(len(batch), np.float32) if bonus_N is None else bonus_N
    return ESTIMATORS[name].function(measured(batch), step_returns(batch, config.gamma), bonus_N, config)


def bonus_of(batch, seed):
    """A bonus per step, shared by its copies."""
    return noise(batch, seed).astype(np.float32)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_entries_declare_their_requirements(name):
    entry = ESTIMATORS[name]
    assert entry.level in {"row", "token"}
    assert entry.requires <= {"step_bonus", "entropy", "hindsight_logprob", "value"}
    assert entry.function.__doc__
    assert entry.labels


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
def test_a_copy_gets_its_originals_advantage(name, config, seed):
    batch = random_batch(seed, copies=6)
    answer_N = estimate(name, config, batch, bonus_of(batch, seed))
    for row in np.flatnonzero(batch.is_copy_N):
        same = (batch.trajectory_N == batch.trajectory_N[row]) & (batch.step_N == batch.step_N[row])
        assert len(set(answer_N[same].tolist())) == 1


@cases(leaving_out=BATCH_WIDE)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_groups_do_not_see_each_other(name, config, seed):
    batch = random_batch(seed, groups=2)
    bonus_N, alone = bonus_of(batch, seed), np.flatnonzero(batch.group_N == 1)
    together_N = estimate(name, config, batch, bonus_N)
    assert np.array_equal(together_N[alone], estimate(name, config, take(batch, alone), bonus_N[alone]))


@cases()
def test_only_entries_that_declare_it_read_the_bonus(name, config):
    batch = random_batch(3)
    moved = not np.array_equal(estimate(name, config, batch), estimate(name, config, batch, bonus_of(batch, 3)))
    assert moved == ("step_bonus" in ESTIMATORS[name].requires)


@cases(leaving_out=STEPS_DIFFER)
@pytest.mark.parametrize("outcome", [0.0, 0.1, 10.0])
def test_siblings_that_did_the_same_have_no_advantage_over_each_other(name, config, outcome):
    batch = make_batch(*[(0, k, "a b c", outcome) for k in range(5)])
    advantage_N = estimate(name, config, batch)
    assert np.array_equal(advantage_N, np.zeros(15, np.float32)), (
        f"five siblings took the same steps to the same return, so none is better than another, and got {advantage_N}; "
        "an estimator that tells the steps of one trajectory apart by design belongs in STEPS_DIFFER"
    )


@cases()
def test_the_checks_that_we_offer_others_pass(name, config):
    batch = measured(random_batch(5, copies=4))
    contract.check_estimator(name, config, batch, across_groups=name in BATCH_WIDE)


@cases()
def test_inputs_are_left_as_they_were(name, config):
    batch = measured(random_batch(4, copies=2))  # whose columns are read-only
    return_N, bonus_N = step_returns(batch, config.gamma), bonus_of(batch, 4)
    before = return_N.copy(), bonus_N.copy()
    ESTIMATORS[name].function(batch, return_N, bonus_N, config)
    assert np.array_equal(return_N, before[0])
    assert np.array_equal(bonus_N, before[1])
