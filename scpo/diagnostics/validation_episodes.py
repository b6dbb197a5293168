"""Results and metrics of played episodes, and transcripts of some for the report's episode browser.

One gzipped JSON file per validation, ``diagnostics/validation_step_<n>.json.gz``. Its content
depends only on the episodes, so a resumed run of the local trainer on a CPU writes the same bytes
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from scpo.diagnostics.samples import (
    SampleContent,
    check_content,
    cut_text,
    gzipped_json,
    keep,
    read_gzipped_json,
)
from scpo.records.run_folders import TRAINING_PANELS

if TYPE_CHECKING:
    from scpo.envs.base import Environment
    from scpo.records import RunFolder
    from scpo.rollout import Trajectory
    from scpo.schema.run import RunConfig

PATTERN = "validation_step_*.json.gz"

# Transcripts per panel, of the same games at every validation of every run with that panel.
TRANSCRIPTS = 8

# Characters of a text in a transcript; longer ones are cut.
LONGEST_TEXT = 1500

COLUMNS = ("task", "family", "repeat", "won", "length", "score")
"""Columns of a panel, one entry per episode; see :class:`Ended`."""


class Turn(NamedTuple):
    """Step of an episode: action, observation, and validity of the response's format."""

    action: str
    observation: str
    valid: bool


@dataclass(frozen=True)
class Ended:
    """Result of an episode.

    Attributes:
        task: Id of the game.
        family: Task family, a column of the result table.
        repeat: Number of the episode among those of its game, from 0.
        won: Success as the benchmark defines it.
        score: The benchmark's graded result; None for benchmarks without one.
        length: Number of steps.
        invalid: Number of steps without the required format.
        restarts: Number of times that the episode was restarted after an environment failure.
    """

    task: str
    family: str
    repeat: int
    won: bool
    score: float | None
    length: int
    invalid: int
    restarts: int = field(default=0, kw_only=True)

    @classmethod
    def of(cls, trajectory: Trajectory, **more: Any) -> Self:
        """Result of a rollout, with numbers as Python's own types.

        ``more``: further fields of a subclass.
        """
        results = trajectory.results
        task = trajectory.slot.task
        # The score of the last step grades the whole episode.
        score = results[-1].score
        return cls(
            task.id,
            task.family,
            int(trajectory.slot.sibling),
            bool(trajectory.won),
            None if score is None else float(score),
            len(results),
            sum(not result.valid for result in results),
            restarts=trajectory.restarts,
            **more,
        )


@dataclass(frozen=True)
class Played(Ended):
    """Finished validation episode.

    Attributes:
        start: First observation; for a prompting method, the first prompt.
        turns: Its steps, in order; empty where no transcript is stored.
    """

    start: str = ""
    turns: Sequence[Turn] = ()


def played(trajectory: Trajectory) -> Played:
    """Convert a rollout to a validation episode with its transcript."""
    return Played.of(
        trajectory,
        start=trajectory.anchors[0] if trajectory.anchors else "",
        turns=[
            Turn(result.action, result.observation, bool(result.valid))
            for result in trajectory.results
        ],
    )


def save_validation(folder: RunFolder, step: int, panels: Mapping[str, Sequence[Played]]) -> None:
    """Store a validation's episodes; :func:`read_validation` describes the content.

    Args:
        folder: The run.
        step: The training step after which they were played.
        panels: Episodes by panel; panels are written in the order of their names.
    """
    record = {"step": step, "panels": {name: _panel(panels[name]) for name in sorted(panels)}}
    keep(folder, f"validation_step_{step:05d}.json.gz", gzipped_json(record))


def read_validation(path: Path) -> dict[str, Any]:
    """Read a file of :func:`save_validation`.

    It holds ``step`` and ``panels``: for each panel's name, the columns of :data:`COLUMNS` and
    ``transcripts``. A transcript has ``episode``, its index in the columns, ``start``, and
    ``turns``, each a list of a :class:`Turn`'s fields.

    Raises:
        RecordError: The file is not a record of a validation.
    """
    record: dict[str, Any] = read_gzipped_json(path, "record of a validation")
    check_content(path, "record of a validation", _Validation, record)
    return record


def _panel(episodes: Sequence[Played]) -> dict[str, Any]:
    """Record of one panel, by columns, so that keys are not repeated for every episode."""
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        columns[name] = [getattr(episode, name) for episode in episodes]
    columns["transcripts"] = [
        _transcript(index, episodes[index]) for index in transcript_indices(episodes)
    ]
    return columns


def transcript_indices(episodes: Sequence[Ended]) -> list[int]:
    """Indices of the episodes whose transcripts are stored.

    First episodes of games, evenly spaced over the panel. They are chosen by index, not by outcome,
    so that two runs store the same games and can be compared.
    """
    first = [index for index, episode in enumerate(episodes) if episode.repeat == 0]
    count = min(TRANSCRIPTS, len(first))
    # Ids are sorted and in ALFWorld begin with the family, so even spacing covers the families.
    return [first[k * len(first) // count] for k in range(count)]


def _transcript(index: int, episode: Played) -> dict[str, Any]:
    """Record of an episode's steps; ``index`` is its index in the panel's columns."""
    turns = [[_cut(turn.action), _cut(turn.observation), turn.valid] for turn in episode.turns]
    return {"episode": index, "start": _cut(episode.start), "turns": turns}


def _cut(text: str) -> str:
    return cut_text(text, LONGEST_TEXT)


class _Turns(SampleContent):
    """A transcript."""

    episode: Annotated[int, Field(ge=0)]
    start: str
    turns: list[list[str | bool]]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for turn in self.turns:
            if [type(value) for value in turn] != [str, str, bool]:
                raise ValueError("a turn is not action, observation and validity")
        return self


class _Episodes(SampleContent):
    """A panel."""

    task: list[str]
    family: list[str]
    repeat: list[Annotated[int, Field(ge=0)]]
    won: list[bool]
    length: list[int]
    score: list[float | None]
    transcripts: list[_Turns]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        lengths = {len(getattr(self, name)) for name in COLUMNS}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"columns of {sorted(lengths)} entries")
        for transcript in self.transcripts:
            if transcript.episode >= len(self.task):
                raise ValueError(f"transcript of episode {transcript.episode} of {len(self.task)}")
        return self


class _Validation(SampleContent):
    """A whole file."""

    step: int
    panels: dict[str, _Episodes]


def panel_records(environment: Environment, config: RunConfig) -> dict[str, dict[str, Any]]:
    """Record of every panel of the run: task ids, and a hash of the tasks with their contents.

    A resumed run with other tasks or games is refused, because its curve would mix two runs.
    """
    panels = {
        name: environment.panel(name)
        for name in (*TRAINING_PANELS, *sorted(config.env.validation_panels))
    }
    return {
        name: {"sha256": panel.sha256, "tasks": [task.id for task in panel.tasks]}
        for name, panel in panels.items()
    }


def episode_metrics(trajectories: Sequence[Trajectory], *, by_family: bool) -> dict[str, float]:
    """Metrics of rollouts; see :func:`ended_metrics`."""
    return ended_metrics([Ended.of(trajectory) for trajectory in trajectories], by_family=by_family)


def ended_metrics(episodes: Sequence[Ended], *, by_family: bool) -> dict[str, float]:
    """Success rate, score if there is one, episode length, share of invalid steps.

    With ``by_family``, as at validation, also ``<family>/success_rate``, :func:`repeat_metrics`,
    and ``errored``: the number of episodes that were restarted after an environment failure. Such
    an episode counts once, with its final result.

    Args:
        episodes: At least one.
        by_family: Add the metrics of validations.
    """
    steps = sum(episode.length for episode in episodes)
    metrics = {
        "success_rate": float(np.mean([episode.won for episode in episodes])),
        "episodes": float(len(episodes)),
        "episode_length": steps / len(episodes),
        "invalid_rate": sum(episode.invalid for episode in episodes) / steps,
    }
    scores = [episode.score for episode in episodes if episode.score is not None]
    if scores:
        metrics["score"] = float(np.mean(scores))
    if not by_family:
        return metrics

    tasks = [episode.task for episode in episodes]
    won = [episode.won for episode in episodes]
    metrics |= repeat_metrics(tasks, won)
    metrics["errored"] = float(sum(episode.restarts > 0 for episode in episodes))

    won_by_family: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        won_by_family[episode.family].append(episode.won)
    for family in sorted(won_by_family):
        metrics[f"{family}/success_rate"] = float(np.mean(won_by_family[family]))
    return metrics


def validation_metrics(panels: Mapping[str, Sequence[Trajectory]]) -> dict[str, float]:
    """``val/<panel>/...`` of every panel, with success rates by family."""
    metrics = {}
    for panel, trajectories in panels.items():
        for name, value in episode_metrics(trajectories, by_family=True).items():
            metrics[f"val/{panel}/{name}"] = value
    return metrics


def repeat_metrics(tasks: Sequence[str], won: Sequence[bool]) -> dict[str, float]:
    """``pass_at_<k>``: share of tasks with at least one win in k episodes.

    Empty if k is 1 or differs between tasks. avg@k, the mean over all episodes, is the success rate
    of :func:`ended_metrics`.

    Args:
        tasks: Task id of each episode.
        won: True for episodes that were won.
    """
    by_task: dict[str, list[bool]] = defaultdict(list)
    for task, won_episode in zip(tasks, won, strict=True):
        by_task[task].append(won_episode)
    counts = {len(episodes) for episodes in by_task.values()}
    # pass@k compares tasks only if each was played equally often.
    if len(counts) != 1 or counts == {1}:
        return {}
    k = counts.pop()
    solved = [any(episodes) for episodes in by_task.values()]
    return {f"pass_at_{k}": float(np.mean(solved))}
