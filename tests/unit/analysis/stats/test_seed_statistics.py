import numpy as np
import pytest
from scipy import stats as scipy_stats

from analysis.stats.seed_statistics import best_of_bias, moving_average
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


def test_a_moving_average_uses_what_there_is():
    assert moving_average([1, 2, 3, 4], 3) == [1, 1.5, 2, 3]
