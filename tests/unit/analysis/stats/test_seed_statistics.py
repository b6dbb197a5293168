import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy import stats as scipy_stats

from analysis.stats.seed_statistics import (
    best_of_bias,
    difference,
    holm,
    p_value,
    paired,
    power,
    resolvable,
)
from scpo.intervals import summarise


@pytest.mark.parametrize("seeds", range(3, 11))
def test_intervals_over_seed_means_cover_at_least_92_percent(seeds):
    rates = np.random.default_rng(seeds).normal(0.8, 0.05, (4000, seeds))  # what separates seeds
    rates = np.random.default_rng(-seeds % 97).binomial(128, np.clip(rates, 0, 1)) / 128  # and 128 episodes of each
    hits = [low <= 0.8 <= high for low, high in (summarise(row).interval() for row in rates)]
    assert 0.92 <= np.mean(hits) <= 0.97


def test_a_bootstrap_over_three_seeds_covers_far_less():
    drawn = np.random.default_rng(0).normal(0.0, 1.0, (1000, 3))
    again = drawn[:, np.random.default_rng(1).integers(0, 3, (500, 3))].mean(axis=2)
    low, high = np.percentile(again, [2.5, 97.5], axis=1)
    assert 0.67 <= np.mean((low <= 0) & (high >= 0)) <= 0.75


def test_the_bias_of_the_best_of_thirty_agrees_with_the_exact_expectation():
    wins = np.arange(129)
    below = scipy_stats.binom.cdf(wins, 128, 0.9) ** 30
    exact = (128 - below[:-1].sum()) / 128 - 0.9
    assert best_of_bias(0.9, 30, 128) == pytest.approx(exact, abs=5e-4)
    assert best_of_bias(0.9, 30, 128) == pytest.approx(0.05, abs=0.005)
    assert best_of_bias(0.9, 1, 128) == pytest.approx(0, abs=1e-3)


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)
VALUES = st.dictionaries(st.integers(0, 9), st.floats(-1, 1), min_size=2)


def test_a_difference_by_hand():
    # differences 0.1, 0.3: mean 0.2, deviation sqrt(0.02) = 0.1414, t_1 = 12.706, half width 12.706 x 0.1 = 1.2706
    rows = {0: 0.5, 1: 0.9, 2: None, 3: 0.1}, {0: 0.4, 1: 0.6, 2: 0.2, 4: 0.7}
    assert paired(*rows) == pytest.approx({0: 0.1, 1: 0.3})
    found = difference(*rows)
    assert found.mean == pytest.approx(0.2)
    assert found.interval() == pytest.approx((0.2 - 1.27062, 0.2 + 1.27062), abs=1e-5)
    assert p_value(found) == pytest.approx(2 * stats.t.sf(2.0, 1))  # 0.2952


def test_interval_and_test_are_scipys():
    numbers = np.random.default_rng(0)
    first, second = numbers.normal(0.6, 0.1, 9), numbers.normal(0.5, 0.1, 9)
    theirs = stats.ttest_rel(first, second)
    found = difference(dict(enumerate(first)), dict(enumerate(second)))
    assert p_value(found) == pytest.approx(theirs.pvalue)
    assert found.interval() == pytest.approx(tuple(theirs.confidence_interval()))


def test_one_pair_has_no_interval_and_no_test():
    found = difference({0: 0.5}, {0: 0.4})
    assert found.mean == pytest.approx(0.1)
    assert math.isnan(p_value(found))
    assert all(map(math.isnan, found.interval()))


def test_rows_that_are_the_same_runs_do_not_differ():
    assert p_value(difference({0: 0.5, 1: 0.7}, {0: 0.5, 1: 0.7})) == 1


def test_seeds_that_all_differ_by_the_same_prove_nothing():
    assert math.isnan(p_value(difference({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.5})))


def test_holm_by_hand():
    # sorted .005 x 4, .01 x 3, .03 x 2, .04 x 1, each at least the one before; statsmodels' multipletests agrees
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_a_test_that_could_not_be_made_counts_for_nothing():
    adjusted = holm([0.02, math.nan, 0.04])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert adjusted[2] == pytest.approx(0.04)


@given(P_VALUES)
def test_holm_lies_between_the_value_and_bonferroni(values):
    for p, adjusted in zip(values, holm(values), strict=True):
        assert p <= adjusted <= min(1, len(values) * p)


@given(P_VALUES, st.randoms(use_true_random=False))
def test_holm_keeps_the_order_and_does_not_depend_on_it(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    adjusted, shuffled = holm(values), holm([values[place] for place in order])
    assert shuffled == [adjusted[place] for place in order]
    ranked = [adjusted for _, adjusted in sorted(zip(values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


@given(VALUES, VALUES)
def test_a_difference_changes_its_sign_with_its_rows(first, second):
    there, back = difference(first, second), difference(second, first)
    assert there.n == back.n
    assert there.mean == -back.mean or math.isnan(there.mean)
    assert p_value(there) == p_value(back) or math.isnan(p_value(there))


@given(VALUES, st.floats(-1, 1))
def test_what_a_seed_adds_to_both_rows_cancels(first, shift):
    second = {seed: value / 2 for seed, value in first.items()}
    moved = [{seed: value + shift * seed for seed, value in row.items()} for row in (first, second)]
    assert difference(*moved).mean == pytest.approx(difference(first, second).mean, abs=1e-9)


@pytest.mark.parametrize(
    ("effect", "seeds"),  # R's power.t.test(type = "paired"), statsmodels' TTestPower: 198.15, 33.37, 14.30, 9.94
    [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)],
)
def test_the_power_is_that_of_other_packages(effect, seeds):
    assert power(effect, 1.0, seeds) >= 0.8 > power(effect, 1.0, seeds - 1)
    assert power(-3 * effect, 3.0, seeds) == pytest.approx(power(effect, 1.0, seeds))


@pytest.mark.parametrize("n", [2, 3, 20, 60])
def test_the_smallest_difference_that_n_pairs_find_has_the_stated_power(n):
    least = resolvable(2.5, n)
    assert power(least, 2.5, n) == pytest.approx(0.8, abs=1e-4)
    assert power(0.999 * least, 2.5, n) < 0.8


# Two pairs: SciPy's noncentral t is NaN here and there, from effects of power 0.5 on.
@pytest.mark.parametrize(
    ("effect", "n"), [(6.0, 2), (8.0, 2), (11.55, 2), (3.264, 3), (1.682, 5), (0.996, 10), (0.5, 20)]
)
def test_the_power_is_the_share_of_simulated_studies_that_find_it(effect, n):
    drawn = np.random.default_rng(3).normal(effect, 1.0, (20_000, n))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05
    assert power(effect, 1.0, n) == pytest.approx(found.mean(), abs=0.01)


@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_the_power_grows_from_the_level_to_one(n):
    values = [power(effect, 1.0, n) for effect in np.linspace(0, 40, 81)]
    assert values[0] == pytest.approx(0.05)
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] == pytest.approx(1 if n > 2 else 0.9999, abs=1e-3)
