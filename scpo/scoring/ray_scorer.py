"""The scorer of a trainer that lives in a Ray actor: Ray hides every GPU from a process that asked for none."""

from __future__ import annotations

import os
from functools import partial

from scpo.schema import RunConfig
from scpo.scoring import PairCache, make_scorer, open_scorer
from scpo.scoring.process import MakeScorer, ScorerProcess
from scpo.shaping.drive import Scorer

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
    make = partial(seeing, first_gpu(), partial(make_scorer, config.scorer, device="cuda:0"))
    return PairCache(ScorerProcess(config.scorer, config.machine.scorer, make))


def seeing(gpu: str, make: MakeScorer) -> Scorer:
    """The scorer, made in its process before anything in that has looked for GPUs, so that it finds this one."""
    os.environ[VISIBLE] = gpu
    return make()


def first_gpu() -> str:
    """The run's first GPU, which the scorer shares with the policy, as in the paper (appendix A.2)."""
    given = os.environ.get(VISIBLE) or os.environ.get(BEFORE_RAY) or "0"
    return given.partition(",")[0]
