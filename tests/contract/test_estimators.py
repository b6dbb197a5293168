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


def cases():
    return pytest.mark.parametrize(("name", "config"), CASES)


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
def test_permuting_rows_permutes_answers_bit_for_bit(name, config, seed):
    batch = random_batch(seed, copies=3)
    bonus_N, rows = bonus_of(batch, seed), np.random.default_rng(seed).permutation(len(batch))
    permuted = take(batch, rows, is_copy_N=batch.is_copy_N[rows])
    moved_N = estimate(name, config, permuted, bonus_N[rows])
    assert np.array_equal(moved_N, estimate(name, config, batch, bonus_N)[rows]), (
        f"in another order of rows {name!r} rounds differently, so that a resumed run may differ in its last bits: sum "
        "in float64 and round to float32 once, at the end"
    )


def exempt(name, config):
    return {"steps_differ": name in STEPS_DIFFER, "averages_terms": getattr(config, "base_group", False)}


@cases()
@pytest.mark.parametrize("seed", [3, 5])
def test_the_laws_that_we_offer_others_hold(name, config, seed):
    batch = measured(random_batch(seed, copies=seed))
    contract.check_estimator(name, config, batch, across_groups=name in BATCH_WIDE, **exempt(name, config))


@cases()
@pytest.mark.filterwarnings("ignore:the batch has one group")
@pytest.mark.parametrize(
    "batch", [make_batch((0, 0, "a b c", 10), (0, 1, "a", 0)), make_batch((0, 0, "a", 0))], ids=len
)
def test_they_hold_in_one_group(name, config, batch):
    contract.check_estimator(name, config, measured(batch), across_groups=True, **exempt(name, config))
