"""Estimates of a run: hours, GPU-hours, API cost and time left.

No other module estimates these; ``sweeps.resources`` has GPUs, cores, memory and disk. Sources:

- Hours are the paper's (appendix A.2) where it has a figure, scaled by size and GPUs, or derived
  from the number of tokens or requests. We measured none of them; ``LEGEND`` names the source.
- Seconds on this machine are the median of finished runs of the same kind (``PastTimes``).
- The time left of running runs follows from the steps seen so far (``time_left_s``).
"""

import functools
import math
import socket
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from scpo.benchmarks import BENCHMARKS
from scpo.errors import ScpoError
from scpo.memory import parameters
from scpo.progress import counted
from scpo.records import RunFolder, State, Status, run_config
from scpo.records.identity import run_id
from scpo.records.run_folders import list_runs
from scpo.schema.model import ApiModel
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer
from sweeps.resources import resources

# Appendix A.2: one node of 4 x A800 80 GB.
PAPER_GPUS = 4

# Table 3.
PAPER_STEPS = 150

# Episodes of one validation, appendix A.6.
PAPER_EPISODES = 128

# Steps between validations, Table 3.
PAPER_EVERY = 5
PAPER_BILLIONS = (1.5, 7.0)

# Share of a step at 1.5B and 7B: 65 of 240 s and 120 of 850 s, estimated from verl's sources.
ROLLOUT_SHARE = (
    0.27,
    0.14,
)

# Hugging Face generate on an A800, seconds a token of a batch; 4 ms more for each billion of
# parameters
TOKEN_S = 0.03
TOKEN_S_PER_BILLION = 0.004

# Hours to load and to warm up model, games and scorer.
LOAD_H = 0.25

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
    """Estimate a run's duration at scale=paper; None at other scales."""
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
    """Hours of one run; None if unknown."""
    known = duration(config)
    return None if known is None else known.hours


def gpu_hours(configs: Iterable[RunConfig], gpus: Iterable[int]) -> tuple[float, int]:
    """GPU-hours of the runs that have a figure, and how many have none.

    ``gpus`` of each run, on all its nodes.
    """
    known = []
    unknown = 0
    for config, count in zip(configs, gpus, strict=True):
        value = hours(config)
        if value is None:
            unknown += 1
        else:
            known.append(value * count)
    return sum(known), unknown


def _verl_duration(config: RunConfig, trainer: VerlTrainer) -> Duration | None:
    """The paper's hours, linear in model size, inverse in the number of GPUs, plus our validation.

    The paper reports the duration of SCPO's runs, of which the shaper takes about a tenth (section
    "Computational cost"): other methods are assumed to take the same time.
    """
    count = parameters(config.model)
    figures = BENCHMARKS[config.env.benchmark].paper_hours
    if count is None or figures is None:
        return None
    # A model of the paper gets the paper's own hours, although it has 1.54 or 7.62 billion
    # parameters.
    billions = next(
        (size for size in PAPER_BILLIONS if config.model.name == f"{size:g}B"), count / 1e9
    )
    whole = _linear(billions, figures) * config.trainer.steps / PAPER_STEPS
    # Between the two sizes the share is linear; outside, the nearer one's is taken.
    largest, smallest = ROLLOUT_SHARE
    share = min(largest, max(smallest, _linear(billions, ROLLOUT_SHARE)))
    rollout = share * whole / trainer.steps

    # The paper's hours include its own validation, so that only further episodes are added.
    own = _episodes(config) * _validations(config)
    papers = PAPER_EPISODES * (trainer.steps / PAPER_EVERY + 1)
    more = own - papers
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
    trainer = config.trainer
    count = parameters(config.model) or 0.0
    per_step = trainer.groups * trainer.group_size
    tokens = (
        per_step
        * config.env.horizon
        * (trainer.max_prompt_tokens / 4 + trainer.max_response_tokens / 4)
    )
    # 12 operations a parameter and token, at a third of an A800's peak.
    update_h = tokens * count * 12 / 1e14 / 3600
    played = trainer.steps * (_played_hours(config, per_step) - LOAD_H)
    validated = _validations(config) * (_played_hours(config, _episodes(config)) - LOAD_H)
    return LOAD_H + played + validated + trainer.steps * update_h


def api_usd(config: RunConfig) -> float | None:
    """US dollars that a run behind an API costs at most; None for other models.

    As ``_api_hours`` it counts a request for every step of every episode. Prompts are as long as
    the longest on record for the benchmark, responses as long as the run allows, with all
    reasoning tokens: what an endpoint really bills is known only once it has answered.
    """
    if not isinstance(config.model, ApiModel):
        return None
    prices = config.model.prices
    prompt = BENCHMARKS[config.env.benchmark].longest_prompt_tokens
    response = config.trainer.max_response_tokens + config.model.reasoning_tokens
    request_usd = (prompt * prices.input_usd + response * prices.output_usd) / 1e6
    return _episodes(config) * config.env.horizon * request_usd


def api_lines(todo: Iterable[RunConfig]) -> list[str]:
    """One line with the API cost of the runs to start, by model; nothing where there are none."""
    bills: dict[str, list[float]] = {}
    for config in todo:
        usd = api_usd(config)
        if usd is not None:
            bills.setdefault(config.model.name, []).append(usd)

    if not bills:
        return []
    parts = [
        f"{model} {sum(costs):,.0f} USD ({counted(len(costs), 'run')})"
        for model, costs in bills.items()
    ]
    return [
        f"API cost, at most: {', '.join(parts)}; every episode to its horizon, the longest prompts "
        "on record, responses and reasoning at their limits (prices: conf/model/*.yaml)"
    ]


def cost_lines(configs: Sequence[RunConfig], todo: Sequence[RunConfig]) -> list[str]:
    """GPU-hours of all runs and of those to start, and what the figures rest on.

    Nothing where there are none.
    """
    total, unknown = gpu_hours(configs, [resources(config).all_gpus for config in configs])
    if not total:
        return []
    rest, _ = gpu_hours(todo, [resources(config).all_gpus for config in todo])
    without = f"; {counted(unknown, 'run')} without a figure" if unknown else ""
    bases = {known.basis for config in configs if (known := duration(config))}
    legend = "; ".join(text for basis, text in LEGEND.items() if basis in bases)
    return [f"about {total:,.0f} GPU-hours, of which {rest:,.0f} still to start{without}", legend]


# Number of past runs of each kind that are read.
NEWEST = 5


@dataclass
class PastTimes:
    """Past durations, from the newest runs in ``runs_dir`` that were DONE here at first attempt."""

    runs_dir: Path
    host: str = field(default_factory=socket.gethostname)

    def seconds(self, config: RunConfig) -> float | None:
        """Seconds of a run: median of its kind, else of runs of equal size; None if unknown."""
        kind = _kind(run_id(config))
        for alike in (kind, kind[:2]):
            rates = [
                rate
                for name in self._finished
                if name[: len(alike)] == alike
                for rate in self._rates(name, config)
            ]
            if rates:
                return statistics.median(rates[:NEWEST]) * config.trainer.steps
        return None

    def total(self, configs: Iterable[RunConfig], slots: int) -> tuple[float, int]:
        """Seconds of all runs in so many slots, and of how many runs nothing is known."""
        known = [self.seconds(config) for config in configs]
        return sum(seconds for seconds in known if seconds is not None) / max(
            1, slots
        ), known.count(None)

    def _rates(self, kind: tuple[str, ...], config: RunConfig) -> list[float]:
        """Seconds a training step of the runs of a kind that are of the same size as this one."""
        read = (_read(folder) for folder, _ in self._finished[kind][:NEWEST])
        spent = zip(read, self._finished[kind], strict=False)
        return [
            wall / past.trainer.steps
            for past, (_, wall) in spent
            if past and _size(past) == _size(config)
        ]

    @functools.cached_property
    def _finished(self) -> dict[tuple[str, ...], list[tuple[RunFolder, float]]]:
        """Kind -> runs and their seconds, the newest first."""
        found: dict[tuple[str, ...], list[tuple[str, RunFolder, float]]] = {}
        for folder in list_runs(self.runs_dir):
            try:
                status = folder.read_status()
            except ScpoError:
                # `verify` reports damaged records.
                continue
            wall = self._wall(status)
            if wall is not None:
                found.setdefault(_kind(folder.run_id), []).append(
                    (status.updated_at or "", folder, wall)
                )

        newest = {
            kind: sorted(runs, key=lambda run: run[0], reverse=True) for kind, runs in found.items()
        }
        return {kind: [(folder, wall) for _, folder, wall in runs] for kind, runs in newest.items()}

    def _wall(self, status: Status) -> float | None:
        once = (
            status.state is State.DONE
            and status.attempt == 1
            and status.host == self.host
            and status.step
        )
        if not once or status.started_at is None or status.updated_at is None:
            return None
        began, ended = (
            datetime.fromisoformat(text) for text in (status.started_at, status.updated_at)
        )
        return (ended - began).total_seconds()


def _kind(name: str) -> tuple[str, ...]:
    """Benchmark, model, method and its choices: a run's id without seed and hash."""
    return tuple(name.split("-")[:-2])


def _size(config: RunConfig) -> tuple[object, ...]:
    """Settings that dominate a step's cost; only runs with equal ones are compared."""
    trainer = config.trainer
    return (
        config.scale,
        trainer.name,
        trainer.groups,
        trainer.group_size,
        trainer.validation,
        config.machine.threads,
    )


def _read(folder: RunFolder) -> RunConfig | None:
    try:
        return run_config.read_config(folder)
    except ScpoError:
        # Another version of the code wrote it.
        return None


@dataclass
class RunPace:
    """Progress of a run. ``step`` is -1 before the first record.

    ``started``, ``first`` (with its step) and ``last`` are times of one clock in seconds: the start
    of its process, and the first and the last step seen here.
    """

    steps: int
    step: int
    started: float
    first: tuple[float, int] | None = None
    last: float = 0.0
    ended: bool = False


def time_left_s(planned: Sequence[RunConfig], runs: Mapping[str, RunPace]) -> float | None:
    """Seconds until all planned runs are done, from the pace of those that were seen here.

    Args:
        planned: All runs of this call; empty if that is not known.
        runs: Those that were started, by id.

    Returns:
        None before any step was seen, or without a plan.
    """
    seen = [(run, *run.first) for run in runs.values() if run.first]
    steps_seen = sum(run.step - step for run, _, step in seen)
    if not planned or steps_seen == 0:
        return None
    step_s = sum(run.last - at for run, at, _ in seen) / steps_seen
    # The first run also makes what the others share, so the shortest start is the typical one.
    start_s = min(at - run.started for run, at, _ in seen)
    running = [run for run in runs.values() if not run.ended]
    waiting = len(planned) - len(runs)
    all_steps = sum(config.trainer.steps for config in planned)
    done = sum(run.steps if run.ended else max(run.step, 0) for run in runs.values())
    return ((all_steps - done) * step_s + waiting * start_s) / max(1, len(running))
