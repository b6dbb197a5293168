"""The scorer of a trainer that lives in a Ray actor: Ray hides every GPU from a process that asked for none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from scpo.schema import RunConfig
from scpo.scoring import PairCache, open_scorer
from scpo.shaping.drive import Scorer, TextPair

VISIBLE = "CUDA_VISIBLE_DEVICES"
NEURAL = ("bi_encoder", "cross_encoder")
BEFORE_RAY = "SCPO_VISIBLE_DEVICES"
"""What ``VISIBLE`` was where Ray was started: its processes inherit it, and may find ``VISIBLE`` empty."""


def remember_gpus() -> None:
    """Keep for Ray's processes which GPUs the run was given; called before Ray starts."""
    os.environ[BEFORE_RAY] = os.environ.get(VISIBLE, "")


def open_ray_scorer(config: RunConfig, *, on_gpu: bool) -> PairCache:
    """The configured scorer; a neural one in a process of its own on the first GPU, where there are GPUs."""
    if not on_gpu or config.scorer.kind not in NEURAL:
        return open_scorer(config.scorer, config.machine.scorer)
    runtime = config.machine.scorer.model_copy(update={"process": "always"})
    cache = open_scorer(config.scorer, runtime, device="cuda:0")
    cache.scorer = SeesFirstGpu(cache.scorer)
    return cache


class SeesFirstGpu:
    """A scorer that starts its process, at the first or after a crash at any request, where one GPU can be seen."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.name = scorer.name

    def __getattr__(self, name: str) -> object:
        return getattr(self.scorer, name)

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """As the scorer's."""
        with _first_gpu_visible():
            return self.scorer.score(pairs)


def first_gpu() -> str:
    """The run's first GPU, which the scorer shares with the policy, as in the paper (appendix A.2)."""
    given = os.environ.get(VISIBLE) or os.environ.get(BEFORE_RAY) or "0"
    return given.partition(",")[0]


@contextmanager
def _first_gpu_visible() -> Iterator[None]:
    hidden = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = first_gpu()
    try:
        yield
    finally:
        if hidden is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = hidden
