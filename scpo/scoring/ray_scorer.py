"""Scorer of a trainer inside a Ray actor, where Ray hides the GPUs.

Ray hides every GPU from a process that did not request one, and the actor in which verl computes
advantages requests none. The scorer therefore runs in a process of its own, which sees the run's
first GPU and shares it with the policy.
"""

from __future__ import annotations

import os
from functools import partial

from scpo.schema.run import RunConfig
from scpo.scoring import PairCache, make_scorer, open_scorer
from scpo.scoring.process import MakeScorer, ScorerProcess
from scpo.shaping.drive import Scorer

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Kinds of scorers that run on a GPU.
NEURAL = ("bi_encoder", "cross_encoder")
BEFORE_RAY = "SCPO_VISIBLE_DEVICES"
"""Value of ``VISIBLE`` where Ray was started; Ray's processes may find ``VISIBLE`` itself empty."""


def remember_gpus() -> None:
    """Store the run's GPUs for Ray's processes; call it before Ray starts."""
    os.environ[BEFORE_RAY] = os.environ.get(VISIBLE, "")


def open_ray_scorer(config: RunConfig, *, on_gpu: bool) -> PairCache:
    """Open the configured scorer; with ``on_gpu``, a neural one in a process on the first GPU."""
    if not on_gpu or config.scorer.kind not in NEURAL:
        return open_scorer(config.scorer, config.machine.scorer)
    make = partial(seeing, first_gpu(), partial(make_scorer, config.scorer, device="cuda:0"))
    return PairCache(ScorerProcess(config.scorer, config.machine.scorer, make))


def seeing(gpu: str, make: MakeScorer) -> Scorer:
    """Build the scorer in its process, before anything there looks for GPUs.

    CUDA reads the variable only once, when it is initialised.
    """
    os.environ[VISIBLE] = gpu
    return make()


def first_gpu() -> str:
    """First GPU of the run, which the scorer shares with the policy (appendix A.2)."""
    given = os.environ.get(VISIBLE) or os.environ.get(BEFORE_RAY) or "0"
    return given.partition(",")[0]
