"""Why outcomes mislead: steps of failed rollouts lie where steps of successful ones do, in one t-SNE plane."""

from matplotlib.figure import Figure

from analysis.figures.scatter import Cloud, chosen_run, draw_clouds, draw_density, finish
from analysis.sources.collect import Collected
from analysis.style import COLUMN_WIDTH, FAILED, SUCCESS, house_style

HEIGHT = 2.8  # inches


def build(data: Collected) -> Figure:
    """One run of one scale; MissingRunsError if no finished run has sampled step texts."""
    run, scale, steps, shown, point_n2 = chosen_run(data)
    success_n = steps.success_N[shown]
    clouds = [Cloud("failed rollout", ~success_n, FAILED, "x"), Cloud("successful rollout", success_n, SUCCESS, "o")]
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, HEIGHT))
        axis = figure.subplots()
        draw_density(axis, point_n2[success_n])
        draw_clouds(axis, point_n2, clouds)
        finish(figure, axis, f"{scale} scale · {run} · {steps.batches} batches")
    return figure
