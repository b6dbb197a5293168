"""Where credited steps lie: steps of successes, credited and uncredited steps of failures, in one t-SNE plane."""

from analysis.figures.embedding import kinds
from analysis.figures.neighbourhood import neighbourhood_table
from analysis.figures.scatter import Cloud, draw_plane, shown_steps
from analysis.rendering.style import CREDITED, FAILED, SUCCESS, Drawing
from analysis.sources.collect import Collected

HEIGHT = 3.0  # inches


def build(data: Collected) -> Drawing:
    """One run of one scale; MissingRunsError if no finished run has sampled step texts with credit."""
    shown = shown_steps(data)
    success_n, credited_n, other_n = (of_N[shown.row_n] for of_N in kinds(shown.steps))
    clouds = [
        Cloud("failure, no credit", other_n, FAILED, "x"),
        Cloud("success", success_n, SUCCESS, "o"),
        Cloud("failure, credited", credited_n, CREDITED, "^", alpha=0.9),
    ]
    numbers = neighbourhood_table(shown.steps, scale=shown.scale, run=shown.run)
    return Drawing(draw_plane(data, shown, clouds, HEIGHT), numbers)
