from analysis.figures.curves import moving_average


def test_a_moving_average_uses_what_there_is():
    assert moving_average([1, 2, 3, 4], 3) == [1, 1.5, 2, 3]
