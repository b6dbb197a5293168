import math

import pytest

from analysis.sources.series import Series, make_series


def test_last_and_best_checkpoint_differ():
    series = make_series([(0, 0.3), (20, 0.7), (10, 0.9)])
    assert (series.at(0), series.last, series.best) == (0.3, 0.7, 0.9)
    assert series.mean == pytest.approx(0.6333, abs=1e-4)


def test_a_step_written_twice_counts_once():
    assert make_series([(1, 0.1), (1, 0.2)]) == Series((1,), (0.2,))


def test_values_that_are_not_finite_are_left_out():
    assert make_series([(1, math.nan), (2, 0.5)]) == Series((2,), (0.5,))


def test_an_empty_series_has_no_values():
    assert (Series().at(0), Series().last, Series().best, Series().mean) == (None, None, None, None)


def test_the_area_is_the_mean_height_by_hand():
    assert make_series([(0, 0.0), (10, 0.5), (20, 1.0)]).area == pytest.approx(0.5)
    assert make_series([(0, 0.0), (10, 0.4), (40, 0.4)]).area == pytest.approx((2 + 12) / 40)  # steps of unequal length
    assert make_series([(5, 0.3)]).area is None


def test_a_point_on_a_straight_line_changes_no_area():
    assert make_series([(0, 0.1), (4, 0.18), (10, 0.3)]).area == pytest.approx(make_series([(0, 0.1), (10, 0.3)]).area)


def test_a_level_is_reached_between_two_checkpoints():
    series = make_series([(0, 0.0), (10, 0.4), (20, 0.6), (30, 0.5)])
    assert series.first_at(0.5) == pytest.approx(15)
    assert series.first_at(0.4) == pytest.approx(10)
    assert series.first_at(0.0) == 0
    assert series.first_at(0.7) is None
    assert Series().first_at(0.5) is None
