"""Where credited steps lie: steps of successes, credited and uncredited steps of failures, in one t-SNE plane."""

from matplotlib.figure import Figure

from analysis.figures.embedding import kinds
from analysis.figures.neighbourhood import neighbourhood_table
from analysis.figures.scatter import Cloud, chosen_run, draw_clouds, draw_density, finish, remark
from analysis.rendering.style import COLUMN_WIDTH, CREDITED, FAILED, SUCCESS, Drawing, house_style
from analysis.sources.collect import Collected

HEIGHT = 3.0  # inches


def build(data: Collected) -> Drawing:
    """One run of one scale; MissingRunsError if no finished run has sampled step texts with credit."""
    run, scale, steps, shown, point_n2 = chosen_run(data)
    success_N, credited_N, other_N = kinds(steps)
    clouds = [
        Cloud("failure, no credit", other_N[shown], FAILED, "x"),
        Cloud("success", success_N[shown], SUCCESS, "o"),
        Cloud("failure, credited", credited_N[shown], CREDITED, "^", alpha=0.9),
    ]
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, HEIGHT))
        axis = figure.subplots()
        draw_density(axis, point_n2[success_N[shown]])
        draw_clouds(axis, point_n2, clouds)
        finish(figure, axis, remark(data, run, steps, shown))
    return Drawing(figure, neighbourhood_table(steps, scale=scale, run=run))
