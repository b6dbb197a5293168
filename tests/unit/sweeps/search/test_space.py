import pytest

from scpo.errors import ConfigError
from scpo.schema.search import Choice, LogRange, StepRange
from sweeps.compose.configuration import compose_run
from sweeps.search import space

THETA = StepRange(kind="step", key="method.shaper.theta", low=0.3, high=0.9, step=0.05)
ALPHA = LogRange(kind="log", key="method.shaper.alpha", low=0.05, high=5.0, points=5)
ORDER = Choice(kind="choice", key="method.shaper.order", values=("balanced", "length"))
SPACE = {"theta": THETA, "alpha": ALPHA, "order": ORDER}


def test_steps_are_the_decimals_that_a_person_would_write():
    assert space.values(THETA) == [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]


def test_a_step_that_does_not_meet_the_upper_bound_stops_below_it():
    ragged = StepRange(kind="step", key="k", low=0.0, high=1.0, step=0.3)
    assert space.values(ragged) == [0.0, 0.3, 0.6, 0.9]
    assert space.distributions({"k": ragged})["k"].high == 0.9


def test_logarithmic_points_have_equal_ratios_and_both_bounds():
    assert space.values(ALPHA) == [0.05, 0.158, 0.5, 1.58, 5.0]


def test_whole_numbers_stay_whole():
    ranks = StepRange(kind="step", key="k", low=1, high=5, step=2)
    assert space.values(ranks) == [1, 3, 5]
    assert [type(value) for value in space.values(ranks)] == [int] * 3


def test_a_grid_has_every_point_once_and_the_seed_decides_their_order():
    points = list(space.grid(SPACE, 0))
    assert len(points) == len({str(point) for point in points}) == 13 * 5 * 2
    assert points == list(space.grid(SPACE, 0)) != list(space.grid(SPACE, 1))


def test_a_grid_that_nobody_could_search_is_refused():
    fine = StepRange(kind="step", key="k", low=0.0, high=1.0, step=1e-6)
    with pytest.raises(ConfigError, match=r"1000001 points .* allowed: at most 100000"):
        space.grid({"k": fine}, 0)


def test_drawn_values_lose_the_noise_of_binary_fractions():
    drawn = {"theta": 0.30000000000000004, "alpha": 0.123456789, "order": "length"}
    assert space.tidy(SPACE, drawn) == {"theta": 0.3, "alpha": 0.123, "order": "length"}
    assert space.tidy({"alpha": ALPHA}, {"alpha": 4.999999})["alpha"] == 5.0


def test_the_point_of_a_configuration_whose_record_leaves_out_what_is_off():
    amount = Choice(kind="choice", key="method.shaper.amount", values=("similarity", "distance"))
    assert space.point_of({"amount": amount}, compose_run([])) == {"amount": "similarity"}


def test_the_point_of_a_configuration():
    assert space.point_of(SPACE, compose_run([])) == {"theta": 0.6, "alpha": 0.5, "order": "balanced"}
    assert space.point_of(SPACE, compose_run(["method.shaper.theta=0.2"])) is None
    assert space.point_of(SPACE, compose_run(["method.shaper.order=random"])) is None


def test_a_key_that_the_configuration_lacks_is_named():
    wrong = {"theta": THETA.model_copy(update={"key": "method.shaper.thet"})}
    with pytest.raises(ConfigError, match=r"method\.shaper\.thet is not a key"):
        space.point_of(wrong, compose_run([]))


def test_values_become_words_that_compose_to_the_same_configuration():
    words = space.override_texts(SPACE, {"theta": 0.35, "alpha": 0.158, "order": "length"})
    shaper = compose_run(words).method.shaper
    assert (shaper.theta, shaper.alpha, shaper.order) == (0.35, 0.158, "length")
