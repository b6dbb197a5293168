"""Estimates of a run: hours, GPU-hours, API cost and time left.

No other module estimates these; ``sweeps.resources`` has GPUs, cores, memory and disk. Sources:

- Hours are the paper's (appendix A.2) where it has a figure, scaled by model, GPUs and size of the
  training steps, or derived from the number of tokens or requests. We measured none of them;
  ``LEGEND`` names the source.
- Seconds on this machine are the median of finished runs of the same kind (``PastTimes``).
- The time left of running runs follows from the steps seen so far (``time_left_s``).
"""

import functools
import heapq
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
from scpo.records.logs import read_whole
from scpo.records.run_folders import list_runs
from scpo.schema.model import ApiModel
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer
from sweeps.resources import resources

# Appendix A.2: one node of 4 x A800 80 GB.
PAPER_GPUS = 4

# Table 3: training steps; tasks of a step and siblings of a task.
PAPER_STEPS = 150
PAPER_GROUPS = (16, 8)

# Episodes of a training step (16 x 8) and of one validation (appendix A.6).
PAPER_EPISODES = 128

# Table 3: the most tokens of a response, and steps in the prompt. verl-agent's script: epochs.
PAPER_RESPONSE_TOKENS = 512
PAPER_HISTORY = 2
PAPER_EPOCHS = 1

# Steps between validations, Table 3.
PAPER_EVERY = 5
PAPER_BILLIONS = (1.5, 7.0)

# Share of the rollout in a step's time at 1.5B and 7B: 65 of 240 s and 120 of 850 s, estimated from
# verl's sources.
ROLLOUT_SHARE = (0.27, 0.14)

# The least time of the rest of a step (update, weight sync, validation, checkpoint) as a share of
# the paper's: with a few short episodes, only the update gets faster. Estimated like the above.
LEAST_REST = 0.2

# Hugging Face generate on an A800: seconds per token of a whole batch, and the additional seconds
# per billion parameters.
TOKEN_S = 0.03
TOKEN_S_PER_BILLION = 0.004

# Hours to load and to warm up model, games and scorer.
LOAD_H = 0.25

Basis = Literal["paper", "scaled", "estimate"]

MARKS: dict[Basis, str] = {"paper": "", "scaled": "+", "estimate": "~"}
LEGEND: dict[Basis, str] = {
    "paper": "hours: the paper's SCPO runs on 4 x A800 (appendix A.2), and our longer validation",
    "scaled": "+ the paper's, scaled by model, GPUs (as A800s) and size of the steps, unmeasured",
    "estimate": "~ an estimate from the number of requests or tokens",
}


@dataclass(frozen=True)
class Duration:
    """Hours of one run on the GPUs that it asks for, and the basis of the figure.

    ``paper``: the paper's own run, with our validation on top. ``scaled``: the paper's run, scaled
    to another model, number of GPUs, or number or size of the training steps. ``estimate``: from
    the number of requests or tokens.
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
    """GPU-hours of the runs with a known duration, and the number of runs without one.

    ``gpus``: number of GPUs of each run, on all its nodes.
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
    """Scale the paper's hours by model, GPUs, steps and the work of a step; plus our validation.

    The paper reports the duration of SCPO's runs, of which the shaper takes about a tenth (section
    "Computational cost"): other methods are assumed to take the same time. Nobody has measured how
    the duration depends on the settings. It is assumed to be linear in model size, inverse in GPUs,
    and proportional to the number of training steps. The parts of a step:

    - The rollout is proportional to the horizon and to the number of episodes, except that fewer
      episodes than the paper's take as long: the GPUs decode them all at a time.
    - The rest is proportional to episodes, horizon and epochs, but at least ``LEAST_REST``.
    - Both are proportional to a response limit above the paper's. A lower one saves nothing, since
      most responses are far shorter (``scpo.memory.MEAN_RESPONSE``).

    These estimates err on the long side, because the time limits of jobs follow them. The length of
    prompts is not counted.
    """
    count = parameters(config.model)
    benchmark = BENCHMARKS[config.env.benchmark]
    figures, horizon = benchmark.paper_hours, benchmark.paper_horizon
    if count is None or figures is None or horizon is None:
        return None
    # The paper's hours are for "1.5B" and "7B"; those models have 1.54 and 7.62 billion parameters.
    billions = next(
        (size for size in PAPER_BILLIONS if config.model.name == f"{size:g}B"), count / 1e9
    )
    step = _linear(billions, figures) / PAPER_STEPS
    # Linear between the two sizes, constant outside of them.
    largest, smallest = ROLLOUT_SHARE
    share = min(largest, max(smallest, _linear(billions, ROLLOUT_SHARE)))

    # Sizes relative to the paper's run.
    episodes = trainer.groups * trainer.group_size / PAPER_EPISODES
    length = config.env.horizon / horizon
    length *= max(1.0, trainer.max_response_tokens / PAPER_RESPONSE_TOKENS)
    rollout = step * share * length
    rest = step * (1 - share) * max(LEAST_REST, length * episodes * trainer.epochs / PAPER_EPOCHS)
    training = trainer.steps * (rollout * max(1.0, episodes) + rest)

    # The paper's hours include its own validation; only episodes beyond it are added.
    validated = _episodes(config) * _validations(config)
    validated_by_paper = PAPER_EPISODES * (trainer.steps / PAPER_EVERY + 1)
    validation = max(0.0, validated - validated_by_paper) / PAPER_EPISODES * rollout
    gpus = trainer.verl.gpus * trainer.verl.nodes
    same_as_paper = billions in PAPER_BILLIONS and gpus == PAPER_GPUS and _steps_of_paper(config)
    all_hours = (training + validation) * PAPER_GPUS / gpus
    return Duration(all_hours, "paper" if same_as_paper else "scaled")


def _steps_of_paper(config: RunConfig) -> bool:
    """True if number and size of the training steps are the paper's."""
    trainer = config.trainer
    return (
        trainer.steps == PAPER_STEPS
        and (trainer.groups, trainer.group_size) == PAPER_GROUPS
        and config.env.horizon == BENCHMARKS[config.env.benchmark].paper_horizon
        and config.env.history_length == PAPER_HISTORY
        and trainer.max_response_tokens == PAPER_RESPONSE_TOKENS
        and trainer.epochs == PAPER_EPOCHS
        and trainer.validation.every == PAPER_EVERY
    )


def _linear(billions: float, figures: tuple[float, float]) -> float:
    """Value for a model size on the line through the figures for the paper's two sizes.

    It is at least a third of the smaller model's figure, and so positive for much smaller models.
    """
    low, high = PAPER_BILLIONS
    slope = (figures[1] - figures[0]) / (high - low)
    return max(figures[0] / 3, figures[0] + slope * (billions - low))


def _episodes(config: RunConfig) -> int:
    """Episodes of one validation.

    A panel without a number of games or goals takes the whole split, of the official size.
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
    """Hours of one request per step of every episode, at the account's rate limit."""
    requests = _episodes(config) * config.env.horizon
    return LOAD_H + requests / config.machine.api.requests_per_minute / 60


def _played_hours(config: RunConfig, episodes: int) -> float:
    """Hours of episodes that all reach the horizon with responses of the longest length."""
    count = parameters(config.model) or 0.0
    rounds = config.env.horizon * math.ceil(episodes / config.trainer.rollout_batch)
    token_s = TOKEN_S + TOKEN_S_PER_BILLION * count / 1e9
    return LOAD_H + rounds * config.trainer.max_response_tokens * token_s / 3600


def _local_hours(config: RunConfig) -> float:
    """Hours in one process: Hugging Face generate, then an update of horizon x episodes rows."""
    trainer = config.trainer
    count = parameters(config.model) or 0.0
    per_step = trainer.groups * trainer.group_size
    # Prompts and responses are assumed to have a quarter of their limits on average.
    row_tokens = (trainer.max_prompt_tokens + trainer.max_response_tokens) / 4
    tokens = per_step * config.env.horizon * row_tokens
    # 12 operations a parameter and token, at a third of an A800's peak.
    update_h = tokens * count * 12 / 1e14 / 3600
    played = trainer.steps * (_played_hours(config, per_step) - LOAD_H)
    validated = _validations(config) * (_played_hours(config, _episodes(config)) - LOAD_H)
    return LOAD_H + played + validated + trainer.steps * update_h


def api_usd(config: RunConfig) -> float | None:
    """Upper bound of the US dollars that a run with an API model costs; None for other models.

    Like ``_api_hours`` it counts a request for every step of every episode. Prompts are as long as
    the longest on record for the benchmark, responses as long as the run allows, with all
    reasoning tokens: the tokens that an endpoint bills are known only after it has answered.
    """
    if not isinstance(config.model, ApiModel):
        return None
    prices = config.model.prices
    prompt = BENCHMARKS[config.env.benchmark].longest_prompt_tokens
    response = config.trainer.max_response_tokens + config.model.reasoning_tokens
    request_usd = (prompt * prices.input_usd + response * prices.output_usd) / 1e6
    return _episodes(config) * config.env.horizon * request_usd


def api_lines(todo: Iterable[RunConfig]) -> list[str]:
    """One line with the API cost of the runs to start, by model; empty without API models."""
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
    """Two lines: GPU-hours of all runs and of those to start, and the basis of the figures.

    Empty if no run has a figure or needs a GPU.
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
    """Durations of the newest runs in ``runs_dir`` that finished on this host in one attempt."""

    runs_dir: Path
    host: str = field(default_factory=socket.gethostname)

    def seconds(self, config: RunConfig) -> float | None:
        """Seconds of a run: median of its kind, else of runs of equal size; None if unknown."""
        kind = _kind(run_id(config))
        benchmark_and_model = kind[:2]
        for prefix in (kind, benchmark_and_model):
            took: list[float] = []
            for other in self._finished:
                if other[: len(prefix)] == prefix:
                    took += self._scaled(other, config)
            if took:
                return statistics.median(took[:NEWEST])
        return None

    def total(self, configs: Iterable[RunConfig], slots: int) -> tuple[float, int]:
        """Seconds of all runs in ``slots`` slots, and the number of runs of unknown duration.

        Runs start in order, each in the slot that is free first. A single run is not faster with
        more slots.
        """
        seconds = [self.seconds(config) for config in configs]
        known = [value for value in seconds if value is not None]
        busy_until = [0.0] * max(1, min(slots, len(known)))
        for value in known:
            heapq.heapreplace(busy_until, busy_until[0] + value)
        return max(busy_until), len(seconds) - len(known)

    def _scaled(self, kind: tuple[str, ...], config: RunConfig) -> list[float]:
        """Seconds that ``config`` would take, by each of the newest runs of a kind and of its size.

        The past time after step 0 is scaled to the number of steps of ``config``.
        """
        scaled = []
        for folder, wall_s in self._finished[kind][:NEWEST]:
            past = _read(folder)
            if past is not None and _size(past) == _size(config):
                start_s = min(_start_s(folder), wall_s)
                step_s = (wall_s - start_s) / past.trainer.steps
                scaled.append(start_s + step_s * config.trainer.steps)
        return scaled

    @functools.cached_property
    def _finished(self) -> dict[tuple[str, ...], list[tuple[RunFolder, float]]]:
        """Kind -> finished runs and their seconds, the newest first."""
        ended: list[tuple[str, RunFolder, float]] = []
        for folder in list_runs(self.runs_dir):
            try:
                status = folder.read_status()
            except ScpoError:
                # `verify` reports damaged records.
                continue
            wall_s = self._wall_s(status)
            if wall_s is not None:
                ended.append((status.updated_at or "", folder, wall_s))

        by_kind: dict[tuple[str, ...], list[tuple[RunFolder, float]]] = {}
        for _, folder, wall_s in sorted(ended, key=lambda run: run[0], reverse=True):
            by_kind.setdefault(_kind(folder.run_id), []).append((folder, wall_s))
        return by_kind

    def _wall_s(self, status: Status) -> float | None:
        """Seconds of a run that was done on this host in one attempt; None for others."""
        if status.state is not State.DONE or status.host != self.host:
            return None
        # With several attempts, the time from start to end includes pauses.
        if status.attempt != 1 or not status.step:
            return None
        if status.started_at is None or status.updated_at is None:
            return None
        began = datetime.fromisoformat(status.started_at)
        ended = datetime.fromisoformat(status.updated_at)
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


def _start_s(folder: RunFolder) -> float:
    """Seconds from a run's start to its record of step 0, or 0 for a run without that record."""
    try:
        lines = read_whole(folder, folder.timing)
        started_at = folder.read_status().started_at
    except ScpoError:
        # `verify` reports damaged records.
        return 0.0
    if started_at is None or not lines or lines[0]["step"] != 0 or "at" not in lines[0]:
        return 0.0
    ready = datetime.fromisoformat(lines[0]["at"])
    return max(0.0, (ready - datetime.fromisoformat(started_at)).total_seconds())


def _read(folder: RunFolder) -> RunConfig | None:
    """Configuration of a run; None if it cannot be read."""
    try:
        return run_config.read_config(folder)
    except ScpoError:
        # Another version of the code wrote it.
        return None


@dataclass
class RunPace:
    """Progress of a run; times are in seconds of one clock.

    Attributes:
        steps: Number of training steps in all.
        step: Last recorded step; -1 before the first record.
        started: Time at which its process started.
        first: Time and number of the first step that was seen here.
        last: Time of the last step that was seen here.
        ended: True once its process has ended.
    """

    steps: int
    step: int
    started: float
    first: tuple[float, int] | None = None
    last: float = 0.0
    ended: bool = False


def time_left_s(planned: Sequence[RunConfig], runs: Mapping[str, RunPace]) -> float | None:
    """Seconds until all planned runs are done, from the pace of the runs seen so far.

    Args:
        planned: All runs of this call; empty if they are not known.
        runs: The runs that were started, by id.

    Returns:
        None before the first step, or without planned runs.
    """
    seen = [(run, *run.first) for run in runs.values() if run.first]
    steps_seen = sum(run.step - first_step for run, _, first_step in seen)
    if not planned or steps_seen == 0:
        return None
    step_s = sum(run.last - first_at for run, first_at, _ in seen) / steps_seen
    # The shortest start is the typical one: the first run also builds the caches that all share.
    start_s = min(first_at - run.started for run, first_at, _ in seen)
    running = [run for run in runs.values() if not run.ended]
    waiting = len(planned) - len(runs)
    all_steps = sum(config.trainer.steps for config in planned)
    done = sum(run.steps if run.ended else max(run.step, 0) for run in runs.values())
    return ((all_steps - done) * step_s + waiting * start_s) / max(1, len(running))
