from matplotlib.figure import Figure

from analysis.rendering.style import figure_files


def test_the_last_bit_of_a_transform_changes_no_pixel():
    def drawn(noise):
        figure = Figure(figsize=(2, 2))
        axis = figure.subplots()
        axis.plot([0, 0.3, 1], [0, 0.7, 1], "--o")
        axis.scatter([0.2, 0.4], [0.3, 0.1])
        axis.set_position([0.1 + noise, 0.1, 0.8, 0.8])
        return figure_files(figure)["png"]

    assert drawn(0) == drawn(1e-15)
    assert drawn(0) != drawn(1e-2)
