import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from scpo.intervals import bound_texts, decimal, decimals, paired_text, summarise


def test_mean_and_std_of_three_seeds_by_hand():
    summary = summarise([0.8, 0.9, 1.0])
    assert (summary.mean, summary.std, summary.n) == (pytest.approx(0.9), pytest.approx(0.1), 3)


def test_interval_agrees_with_scipy():
    values = np.random.default_rng(0).normal(0.5, 0.1, 7)
    summary = summarise(values)
    expected = scipy_stats.t.interval(0.95, 6, loc=values.mean(), scale=scipy_stats.sem(values))
    assert summary.interval() == pytest.approx(expected)
    assert summary.std == pytest.approx(values.std(ddof=1))


def test_interval_of_three_seeds_covers_the_mean():
    drawn = np.random.default_rng(1).normal(0.0, 1.0, (2000, 3))
    hits = [low <= 0 <= high for low, high in (summarise(row).interval() for row in drawn)]
    assert 0.93 <= np.mean(hits) <= 0.97


def test_a_missing_seed_lowers_n():
    assert summarise([0.8, None, math.nan]).n == 1


def test_one_seed_has_no_spread():
    summary = summarise([0.8])
    assert math.isnan(summary.std)
    assert all(math.isnan(bound) for bound in summary.interval())


@pytest.mark.parametrize("values", [[17 / 134 - 7 / 134, 16 / 134 - 6 / 134], [0.3, 0.1 + 0.2, 0.3], [0.0, 0.0]])
def test_values_that_are_equal_but_for_rounding_have_no_spread(values):
    assert len(set(values)) > 1 or not any(values)
    summary = summarise(values)
    assert summary.std == 0
    assert summary.interval() == (summary.mean, summary.mean)
    assert summarise([*values, values[0] + 1 / 1000]).std > 0


def test_no_seed_has_no_mean():
    assert math.isnan(summarise([]).mean)


def test_a_number_that_rounds_to_zero_has_no_minus_and_a_negative_one_has_the_minus_sign():
    assert [decimal(value, 3) for value in (-0.0004, 0.0004, -0.0, -0.0006)] == ["0.000", "0.000", "0.000", "−0.001"]
    assert [decimal(value, 1, sign=True) for value in (-0.04, 0.0, -3.3, 3.3)] == ["+0.0", "+0.0", "−3.3", "+3.3"]
    assert paired_text(summarise([-0.0001])) == "+0.0"


@pytest.mark.parametrize(
    ("value", "digits"), [(0.00018, 5), (-0.00018, 5), (0.03, 3), (12.0, 3), (0.0, 3), (math.nan, 3)]
)
def test_small_numbers_have_two_significant_digits(value, digits):
    assert decimals(value, 3) == digits


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-0.044, -0.0004, ["−4.4", "−0.04"]),
        (0.00004, 0.02, ["0.004", "2.0"]),
        (-0.0003, 0.028, ["−0.03", "2.8"]),
        (-0.01, 0.0004, ["−1.0", "0.04"]),
        (0.0, 0.02, ["0.0", "2.0"]),
        (0.01, 0.02, ["1.0", "2.0"]),
    ],
)
def test_a_bound_that_is_not_0_is_not_printed_as_0(low, high, shown):
    assert list(bound_texts((low, high), 100, 1)) == shown
