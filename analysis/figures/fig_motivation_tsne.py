"""Motivation: steps of failed and of successful rollouts in one t-SNE plane."""

import numpy as np

from analysis import names
from analysis.figures.step_planes import OF_A_KIND, Cloud, Shown, draw_plane, shown_steps
from analysis.rendering.style import FAILED, SUCCESS, Drawing
from analysis.rendering.table import Block, Cells, Number, Table
from analysis.sources.collected import Collected
from analysis.sources.credit_settings import credit_settings
from scpo.progress import counted

HEIGHT = 2.8  # inches
CAPTION = (
    "Step texts (action and observation) of successful and failed rollouts, embedded with "
    "all-MiniLM-L6-v2 and projected with t-SNE; shaded: where steps of successes are dense. Equal "
    f"texts are near each other. Shown are at most {OF_A_KIND} steps of a kind (of successes, and "
    "of failures with or without credit, that of {settings}), drawn at random. The table has the "
    "share of texts of failed rollouts that also occur in successful ones."
)


def build(data: Collected) -> Drawing:
    """One run of one scale; MissingRunsError if no finished run has sampled step texts."""
    shown = shown_steps(data)
    success_n = shown.steps.success_N[shown.row_n]
    clouds = [
        Cloud("failed rollout", ~success_n, FAILED, "x"),
        Cloud("successful rollout", success_n, SUCCESS, "o"),
    ]
    return Drawing(draw_plane(data, shown, clouds, HEIGHT), _numbers(data, shown))


def _numbers(data: Collected, shown: Shown) -> Table:
    steps = shown.steps
    success_N = steps.success_N
    success_texts = np.unique(steps.text_N[success_N])
    rows: list[Cells] = []
    for label, kind_N in (("successful rollouts", success_N), ("failed rollouts", ~success_N)):
        texts = steps.text_N[kind_N]
        share = 100 * float(np.isin(texts, success_texts).mean())
        counts = (len(texts), int(kind_N[shown.row_n].sum()), len(np.unique(texts)))
        rows.append((label, *(Number(str(count)) for count in counts), Number(f"{share:.1f}")))

    run = names.run_of_row(data.sections, shown.run)
    settings = credit_settings(data.by_id[shown.run].config)
    batches = counted(steps.batches, "batch", "batches")
    title = f"Measured, {shown.scale} scale, {run}, {settings}, {batches}"
    return Table(
        words=("Steps of",),
        numbers=("Recorded", "Shown", "Different texts", "Texts that successes have too (%)"),
        blocks=(Block(title, tuple(rows)),),
        caption=names.with_note(CAPTION.format(settings=settings), shown.scale),
        label=f"tab:motivation-tsne-{shown.scale}",
    )
