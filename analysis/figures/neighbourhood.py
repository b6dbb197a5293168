"""How near failed steps are to what successful siblings did: the paper's distances (appendix "Semantic neighbourhood").

For a failed step, the nearest step of a successful sibling: over the successes of its own group, as the appendix words
it ("nearest successful-sibling step"), and over those of all batches. The paper does not name the distance: cosine
(1 - cos) and Euclidean distances of the unit vectors are both given. Failed steps of groups without a success have no
sibling to compare with; they are counted apart.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.figures.embedding import OF_A_KIND, drawn, embedded
from analysis.naming import names
from analysis.paper.published import credit
from analysis.rendering.table import NONE, Block, Number, Table
from scpo.diagnostics.samples import StepTexts

CAPTION = (
    "Median distance of failed steps to the nearest step of a success, in the embedding of all-MiniLM-L6-v2; exact: "
    "the same action and observation text. Own group: among the successful siblings of the step's group; all batches: "
    "among the successes of all sampled batches. {counts} "
    f"Measured and shown are at most {OF_A_KIND} steps of a kind (success, failure with credit, failure without), "
    "drawn at random; distances are to every success, shown or not."
)
KINDS = (("credited", True), ("uncredited", False))
PUBLISHED = (("exact matches", "share"), ("distance to the nearest success step", "median"),
             ("distance to the nearest success step, non-exact", "median"))  # fmt: skip


def nearest(steps: StepTexts, *, own_group: bool) -> pd.DataFrame:
    """Every failed step that is shown and has a success to compare with.

    Columns: cosine ``distance`` to the nearest success, whether one has the same text (``exact``), and ``credited``.
    """
    rows_n, vector_nd = embedded(steps)
    text_n, group_n, success_n = steps.text_N[rows_n], steps.group_N[rows_n], steps.success_N[rows_n]
    none = np.zeros(0, bool)
    blocks = [pd.DataFrame({"distance": np.zeros(0), "exact": none, "credited": none})]
    for group in np.unique(group_n) if own_group else (None,):
        inside = np.ones(len(rows_n), bool) if group is None else group_n == group
        failed, success = np.flatnonzero(inside & ~success_n), np.flatnonzero(inside & success_n)
        if group is None:  # failures of groups without a success have no sibling here either
            failed = failed[np.isin(group_n[failed], np.unique(group_n[success]))]
        if len(failed) and len(success):
            cosine = (vector_nd[failed] @ vector_nd[success].T).max(axis=1)
            exact = np.isin(text_n[failed], text_n[success])
            distance = np.where(exact, 0.0, np.clip(1 - cosine, 0, 2))
            credited = steps.credit_N[rows_n[failed]] > 0
            blocks.append(pd.DataFrame({"distance": distance, "exact": exact, "credited": credited}))
    return pd.concat(blocks, ignore_index=True)


def neighbourhood_table(steps: StepTexts, *, scale: str, run: str) -> Table:
    """The paper's numbers and ours; published ones only beside a run of the paper's scale."""
    places = (("own group", nearest(steps, own_group=True)), ("all batches", nearest(steps, own_group=False)))
    rows = [row for place, found in places for row in _rows(place, found)]
    published = [Block("Published, Qwen2.5-1.5B on ALFWorld", tuple(_published()))] if scale == "paper" else []
    lonely = int((~steps.success_N[drawn(steps)]).sum()) - len(places[0][1])
    counts = (
        f"{len(steps.text_N)} steps of {steps.batches} batches of {names.run(run)}, "
        f"{int(steps.success_N.sum())} of successes; "
        f"{lonely} failed steps of groups without a success are left out."
    )
    return Table(
        words=("Failed steps", "Nearest among", "Distance", "Steps"),
        numbers=("Exact (%)", "Median", "Median, non-exact"),
        blocks=(*published, Block(f"Measured, {scale} scale, {names.run(run)}", tuple(rows))),
        caption=CAPTION.format(counts=counts),
        label=f"tab:neighbourhood-{scale}",
    )


def _rows(place: str, found: pd.DataFrame) -> Iterator[tuple[str | Number, ...]]:
    for metric, distance in (("cosine", found["distance"]), ("Euclidean", np.sqrt(2 * found["distance"]))):
        medians = {}
        for kind, credited in KINDS:
            chosen, exact = found["credited"] == credited, found["exact"]
            medians[kind] = distance[chosen & ~exact].median()
            share = Number(f"{100 * exact[chosen].mean():.0f}") if chosen.any() else NONE
            cells = (share, _shown(distance[chosen].median()), _shown(medians[kind]))
            yield (kind, place, metric, str(chosen.sum()), *cells)
        ratio = medians["uncredited"] / medians["credited"] if medians["credited"] else float("nan")
        yield ("uncredited / credited", place, metric, "", NONE, NONE, _shown(ratio))


def _published() -> Iterator[tuple[str | Number, ...]]:
    numbers = credit()
    for kind, _ in KINDS:
        values = [numbers.get((kind, *key)) for key in PUBLISHED]
        digits = (0, 2, 2)
        cells = (NONE if value is None else Number(f"{value:.{n}f}") for value, n in zip(values, digits, strict=True))
        yield (kind, "not said", "not said", "", *cells)
    ratio = numbers["uncredited over credited", PUBLISHED[2][0], "ratio of medians"]
    yield ("uncredited / credited", "not said", "not said", "", NONE, NONE, Number(f"{ratio:.2f}"))


def _shown(value: float) -> Number:
    return Number(f"{value:.2f}") if np.isfinite(value) else NONE
