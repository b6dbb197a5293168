"""Steps of successes, credited and uncredited steps of failures, in one t-SNE plane.

The table has the paper's distances (appendix "Semantic neighbourhood"): from each failed step to
the nearest step of a success. The appendix's words, "nearest successful-sibling step", mean the
successes of the same group; the table also has the distance to the successes of all batches. The
paper does not name the distance, so both cosine (1 - cos) and Euclidean distances of the unit
vectors are given. Failed steps of groups without a success have no such sibling and are only
counted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis import names
from analysis.figures.step_planes import (
    OF_A_KIND,
    Cloud,
    draw_plane,
    drawn,
    embedded,
    kinds,
    shown_steps,
)
from analysis.paper.published import credit
from analysis.rendering.style import CREDITED, FAILED, SUCCESS, Drawing
from analysis.rendering.table import NONE, Block, Cells, Number, Table
from analysis.sources.collected import Collected
from analysis.sources.credit_settings import credit_settings, equal_by_construction
from scpo.diagnostics.samples import StepTexts
from scpo.progress import counted

HEIGHT = 3.0  # inches
CAPTION = (
    "Median distance of failed steps to the nearest step of a success, in the embedding of "
    "all-MiniLM-L6-v2; exact: the same action and observation text. Own group: among the "
    "successful siblings of the step's group; all batches: among the successes of all sampled "
    "batches. {counts} {credit} "
    f"Measured and shown are at most {OF_A_KIND} steps of a kind (success, failure with credit, "
    "failure without), drawn at random; distances are to every success, shown or not."
)
BY_CONSTRUCTION = (
    "; it credits no step whose text no success has, so the 100 % exact and the distance 0 of "
    "credited steps are so by construction, and say nothing about the method"
)
KINDS = (("credited", True), ("uncredited", False))

# The published numbers of a kind of steps: (quantity, statistic, digits to print).
PUBLISHED = (
    ("exact matches", "share", 0),
    ("distance to the nearest success step", "median", 2),
    ("distance to the nearest success step, non-exact", "median", 2),
)


def build(data: Collected) -> Drawing:
    """One run of one scale; MissingRunsError if no finished run has sampled step texts."""
    shown = shown_steps(data)
    success_n, credited_n, other_n = (kind_N[shown.row_n] for kind_N in kinds(shown.steps))
    clouds = [
        Cloud("failure, no credit", other_n, FAILED, "x"),
        Cloud("success", success_n, SUCCESS, "o"),
        Cloud("failure, credited", credited_n, CREDITED, "^", alpha=0.9),
    ]
    run = names.run_of_row(data.sections, shown.run)
    config = data.by_id[shown.run].config
    numbers = neighbourhood_table(shown.steps, scale=shown.scale, run=run, config=config)
    return Drawing(draw_plane(data, shown, clouds, HEIGHT), numbers)


def nearest(steps: StepTexts, *, own_group: bool) -> pd.DataFrame:
    """Distance of each drawn failed step to the nearest step of a success.

    Steps of groups without a success are left out.

    Args:
        steps: The sampled steps of a run.
        own_group: Compare with successes of the same group only, instead of all batches.

    Returns:
        A row per failed step: ``distance`` (cosine), ``exact`` (a success has the same text) and
        ``credited``.
    """
    rows_n, vector_nd = embedded(steps)
    text_n = steps.text_N[rows_n]
    group_n = steps.group_N[rows_n]
    success_n = steps.success_N[rows_n]
    none = np.zeros(0, bool)
    # An empty table first, so that its columns exist even if nothing can be compared.
    blocks = [pd.DataFrame({"distance": np.zeros(0), "exact": none, "credited": none})]
    compared_n = ~success_n & np.isin(group_n, group_n[success_n])
    # Steps are compared within a pool: their group, or all batches together.
    pool_n = group_n if own_group else np.zeros(len(rows_n), int)
    for pool in np.unique(pool_n):
        failed = np.flatnonzero((pool_n == pool) & compared_n)
        success = np.flatnonzero((pool_n == pool) & success_n)
        if not len(failed):
            continue
        # The vectors have length 1, so their products are cosines.
        cosine = (vector_nd[failed] @ vector_nd[success].T).max(axis=1)
        exact = np.isin(text_n[failed], text_n[success])
        # Rounding may give equal texts a distance of 1e-7.
        distance = np.where(exact, 0.0, np.clip(1 - cosine, 0, 2))
        credited = steps.credit_N[rows_n[failed]] > 0
        blocks.append(pd.DataFrame({"distance": distance, "exact": exact, "credited": credited}))
    return pd.concat(blocks, ignore_index=True)


def neighbourhood_table(
    steps: StepTexts, *, scale: str, run: str, config: Mapping[str, Any]
) -> Table:
    """Measured distances and, for a run of the paper's scale, the published ones.

    Args:
        steps: The sampled steps of a run.
        scale: Scale of the run.
        run: Name of the run in print.
        config: Configuration of the run, whose scorer the table names.
    """
    settings = credit_settings(config)
    own = nearest(steps, own_group=True)
    everywhere = nearest(steps, own_group=False)
    rows = [*_rows("own group", own), *_rows("all batches", everywhere)]
    blocks = [Block(f"Measured, {scale} scale, {run}, {settings}", tuple(rows))]
    if scale == "paper":
        blocks.insert(0, Block("Published, Qwen2.5-1.5B on ALFWorld", tuple(_published())))
    failed = int((~steps.success_N[drawn(steps)]).sum())
    counts = (
        f"{len(steps.text_N)} steps of {counted(steps.batches, 'batch', 'batches')} of {run}, "
        f"{int(steps.success_N.sum())} of successes; "
        f"of the {failed} failed steps that are drawn, {failed - len(own)} of groups without a "
        "success are left out."
    )
    by_construction = BY_CONSTRUCTION if equal_by_construction(config) else ""
    caption = CAPTION.format(
        counts=counts, credit=f"Credit is that of {settings}{by_construction}."
    )
    return Table(
        words=("Failed steps", "Nearest among", "Distance", "Steps"),
        numbers=("Exact (%)", "Median", "Median, non-exact"),
        blocks=tuple(blocks),
        caption=names.with_note(caption, scale),
        label=f"tab:neighbourhood-{scale}",
    )


def _rows(place: str, table: pd.DataFrame) -> Iterator[Cells]:
    # For unit vectors, |a - b|² = 2·(1 - cos).
    euclidean = np.sqrt(2 * table["distance"])
    for metric, distance in (("cosine", table["distance"]), ("Euclidean", euclidean)):
        medians = {}
        for kind, credited in KINDS:
            chosen = table["credited"] == credited
            exact = table["exact"]
            medians[kind] = distance[chosen & ~exact].median()
            yield (
                kind,
                place,
                metric,
                str(chosen.sum()),
                Number(f"{100 * exact[chosen].mean():.0f}") if chosen.any() else NONE,
                _number(distance[chosen].median()),
                _number(medians[kind]),
            )
        ratio = float("nan")
        if medians["credited"]:
            ratio = medians["uncredited"] / medians["credited"]
        yield ("uncredited / credited", place, metric, "", NONE, NONE, _number(ratio))


def _published() -> Iterator[Cells]:
    numbers = credit()
    for kind, _ in KINDS:
        cells = []
        for quantity, statistic, digits in PUBLISHED:
            value = numbers.get((kind, quantity, statistic))
            cells.append(NONE if value is None else Number(f"{value:.{digits}f}"))
        yield (kind, "not said", "not said", "", *cells)
    ratio = numbers["uncredited over credited", PUBLISHED[2][0], "ratio of medians"]
    yield ("uncredited / credited", "not said", "not said", "", NONE, NONE, Number(f"{ratio:.2f}"))


def _number(value: float) -> Number:
    return Number(f"{value:.2f}") if np.isfinite(value) else NONE
