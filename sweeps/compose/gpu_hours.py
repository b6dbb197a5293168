"""How long a run takes: the paper's hours where it has a figure, with our own validation.

Else an estimate.

Nothing here was measured by us. Each figure says what it rests on, and the dry run shows that
beside it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from scpo.benchmarks import BENCHMARKS
from scpo.memory import parameters
from scpo.schema import RunConfig, VerlTrainer

PAPER_GPUS = 4  # appendix A.2: one node of 4 x A800 80 GB
PAPER_STEPS = 150  # Table 3
PAPER_EPISODES = 128  # appendix A.6, of one validation
PAPER_EVERY = 5  # Table 3, steps between validations
PAPER_BILLIONS = (1.5, 7.0)
ROLLOUT_SHARE = (
    0.27,
    0.14,
)  # of a step, at 1.5B and 7B: 65 of 240 s and 120 of 850 s, estimated from verl's sources
# Hugging Face generate on an A800, seconds a token of a batch; 4 ms more for each billion of
# parameters
TOKEN_S = 0.03
TOKEN_S_PER_BILLION = 0.004
LOAD_H = 0.25  # to load and to warm up model, games and scorer

Basis = Literal["paper", "scaled", "estimate"]


MARKS: dict[Basis, str] = {"paper": "", "scaled": "+", "estimate": "~"}
LEGEND: dict[Basis, str] = {
    "paper": "hours: the paper's SCPO runs on 4 x A800 (appendix A.2), and our longer validation",
    "scaled": "+ scaled from those by size and by GPUs, as A800s",
    "estimate": "~ an estimate from the number of requests or tokens",
}


@dataclass(frozen=True)
class Duration:
    """Hours of one run on the GPUs that it asks for, and what the figure rests on.

    ``paper``: the paper's own run, with our validation on top. ``scaled``: the paper's, for other
    sizes or GPUs. ``estimate``: from the number of requests or tokens.
    """

    hours: float
    basis: Basis

    def __str__(self) -> str:
        return f"{MARKS[self.basis]}{self.hours:.1f}"


def duration(config: RunConfig) -> Duration | None:
    """How long a run takes at scale=paper; None: at this scale nothing tells."""
    if config.scale != "paper":
        return None
    if config.model.kind == "api":
        return Duration(_api_hours(config), "estimate")
    if config.method.kind == "prompted":
        return Duration(_played_hours(config, _episodes(config)), "estimate")
    if isinstance(config.trainer, VerlTrainer):
        return _verl_duration(config, config.trainer)
    return Duration(_local_hours(config), "estimate")


def hours(config: RunConfig) -> float | None:
    """Hours of one run; None where nothing tells."""
    known = duration(config)
    return None if known is None else known.hours


def gpu_hours(configs: Iterable[RunConfig], gpus: Iterable[int]) -> tuple[float, int]:
    """GPU-hours of the runs that have a figure, and how many have none.

    ``gpus`` of each run, on all its nodes.
    """
    known = [(hours(config), count) for config, count in zip(configs, gpus, strict=True)]
    return sum(one * count for one, count in known if one is not None), sum(
        one is None for one, _ in known
    )


def _verl_duration(config: RunConfig, trainer: VerlTrainer) -> Duration | None:
    """The paper's hours, linear in the model's size, inverse in the number of its GPUs.

    And our longer validation.

    The paper tells what SCPO's runs took, of which the shaper is about a tenth (section
    "Computational cost"): other methods are counted the same.
    """
    count, figures = parameters(config.model), BENCHMARKS[config.env.benchmark].paper_hours
    if count is None or figures is None:
        return None
    billions = next(
        (one for one in PAPER_BILLIONS if config.model.name == f"{one:g}B"), count / 1e9
    )
    whole = _linear(billions, figures) * config.trainer.steps / PAPER_STEPS
    rollout = (
        min(ROLLOUT_SHARE[0], max(ROLLOUT_SHARE[1], _linear(billions, ROLLOUT_SHARE)))
        * whole
        / trainer.steps
    )
    more = _episodes(config) * _validations(config) - PAPER_EPISODES * (
        trainer.steps / PAPER_EVERY + 1
    )
    ranks = trainer.verl.gpus * trainer.verl.nodes
    took = (whole + max(0.0, more) / PAPER_EPISODES * rollout) * PAPER_GPUS / ranks
    as_the_papers = billions in PAPER_BILLIONS and ranks == PAPER_GPUS
    return Duration(took, "paper" if as_the_papers else "scaled")


def _linear(billions: float, figures: tuple[float, float]) -> float:
    """Through the paper's two sizes; never less than a third of the smaller one's."""
    low, high = PAPER_BILLIONS
    slope = (figures[1] - figures[0]) / (high - low)
    return max(figures[0] / 3, figures[0] + slope * (billions - low))


def _episodes(config: RunConfig) -> int:
    """Episodes of one validation.

    The panels' sizes are the official ones where all of a split is taken.
    """
    whole = {"valid_seen": 140, "valid_unseen": 134, "test": 500}
    played = 0
    for panel in config.env.validation_panels.values():
        size = (
            getattr(panel, "games", None)
            or getattr(panel, "goals", None)
            or whole.get(panel.split, PAPER_EPISODES)
        )
        played += size * panel.repeats
    trials = getattr(getattr(config.method, "agent", None), "trials", 1)
    return played * trials


def _validations(config: RunConfig) -> int:
    return math.ceil(config.trainer.steps / config.trainer.validation.every) + 1


def _api_hours(config: RunConfig) -> float:
    """At most one request a step of every episode, as fast as the account's limit allows."""
    return (
        LOAD_H
        + _episodes(config) * config.env.horizon / config.machine.api.requests_per_minute / 60
    )


def _played_hours(config: RunConfig, episodes: int) -> float:
    """Hours of episodes that all reach the horizon with responses of the longest length."""
    count = parameters(config.model) or 0.0
    rounds = config.env.horizon * math.ceil(episodes / config.trainer.rollout_batch)
    token_s = TOKEN_S + TOKEN_S_PER_BILLION * count / 1e9
    return LOAD_H + rounds * config.trainer.max_response_tokens * token_s / 3600


def _local_hours(config: RunConfig) -> float:
    """One process: Hugging Face generate, then the update of at most horizon x episodes rows."""
    trainer, count = config.trainer, parameters(config.model) or 0.0
    per_step = trainer.groups * trainer.group_size
    tokens = (
        per_step
        * config.env.horizon
        * (trainer.max_prompt_tokens / 4 + trainer.max_response_tokens / 4)
    )
    update_h = (
        tokens * count * 12 / 1e14 / 3600
    )  # 12 operations a parameter and token, at a third of an A800's peak
    played = trainer.steps * (_played_hours(config, per_step) - LOAD_H)
    validated = _validations(config) * (_played_hours(config, _episodes(config)) - LOAD_H)
    return LOAD_H + played + validated + trainer.steps * update_h
