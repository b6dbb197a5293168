"""Sampled rollout groups with everything that explains their credit, for the credit inspector.

One gzipped JSON file per sampled training step, ``diagnostics/groups_step_<n>.json.gz``. Its
content depends on the batch, the seed and the scorer's answers in this step, so a resumed run of
the local trainer on a CPU writes the same bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from scpo.credit.metrics import CreditDiagnostics, host_anchor_groups
from scpo.diagnostics.samples import (
    SampleContent,
    check_content,
    cut_text,
    dense_similarity,
    gzipped_json,
    keep,
    read_gzipped_json,
)
from scpo.errors import ConfigError
from scpo.shaping.order import generator
from scpo.shaping.reference import active_groups, select
from scpo.shaping.shaper import FailedMatch, Shaped

if TYPE_CHECKING:
    from scpo.records import RunFolder
    from scpo.schema.method import TrainedMethod
    from scpo.schema.run import RunConfig
    from scpo.shaping.drive import Scorer
    from scpo.shaping.order import Seed
    from scpo.steps import IntArray, StepBatch, StrArray

PATTERN = "groups_step_*.json.gz"

# Characters of a text in a record; longer ones are cut.
LONGEST_TEXT = 4000

# Decimals of a similarity that `read_groups` returns: as many as the inspector prints.
DIGITS = 4

_Index = Annotated[int, Field(ge=0)]


def save_groups(
    folder: RunFolder,
    step: int,
    batch: StepBatch,
    diagnostics: CreditDiagnostics,
    *,
    config: RunConfig,
    scorer: Scorer | None,
) -> None:
    """Sample the batch every ``trainer.sample_every`` steps, and at the first and the last step.

    Does nothing for a method without a shaper.

    Raises:
        ScorerUnavailable: The scorer failed, and the configuration allows going on without it.
    """
    trainer = config.trainer
    # Comparing the first and the last step shows what training has changed.
    due = step % trainer.sample_every == 0 or step in (1, trainer.steps)
    if diagnostics.shaped is None or scorer is None or not due:
        return
    seed = (config.seed, step)
    sample = sampled_groups(
        batch, diagnostics, scorer, config.trained, seed=seed, count=trainer.sample_groups
    )
    keep(folder, f"groups_step_{step:05d}.json.gz", gzipped_json(sample))


def sampled_groups(
    batch: StepBatch,
    diagnostics: CreditDiagnostics,
    scorer: Scorer,
    method: TrainedMethod,
    *,
    seed: Seed,
    count: int,
) -> dict[str, Any]:
    """Content of a file: at most ``count`` active groups, drawn at random.

    The keys are ``step``, ``groups_in_batch``, ``active_groups`` and ``groups``. Each group has

    - ``group``, ``task``, and ``siblings``: trajectory, episode return, success, number of steps;
    - ``texts``: the distinct texts; columns of texts in ``steps`` hold indices into this list;
    - ``steps``: columns of equal length, one entry for each step of every sibling in time order:
      trajectory, step, action, observation (the answer), state (the observation before: the anchor
      state), valid, kept (passed the step filter), step_return (R), bonus (α·credit - invalid
      penalty), credit, anchor_group (as the host forms them), unshaped_advantage and advantage
      (without and with the credit);
    - ``reference``: trajectory, and its ``steps`` in reference order (m);
    - ``matches``, one for each failed sibling: trajectory, ``steps`` in time order (l),
      ``similarity`` (M, m rows of l), ``walk`` (pairs of a failed position and the reference
      position j after it, in processing order) and ``credited`` (reference position, failed
      position, similarity, credit).

    M is scored in full for the sampled groups; metrics do not count these pairs.

    Args:
        batch: The steps.
        diagnostics: Diagnostics of ``assign`` on this batch.
        scorer: The run's scorer; its cache holds the pairs that the walks of this step have read.
        method: The method, with a shaper.
        seed: Run seed and training step.
        count: Largest number of groups.

    Raises:
        ConfigError: The batch was not shaped.
        ScorerError: The scorer returned anything but similarities in [0, 1].
    """
    shaped = diagnostics.shaped
    shaper = method.shaper
    host = method.estimator
    if shaped is None or shaper is None:
        raise ConfigError(
            f"method {method.name!r} did not shape this batch: there is no credit to sample"
        )

    anchor_group_N = diagnostics.anchor_group_N
    if anchor_group_N is None:
        anchor_group_N = host_anchor_groups(batch, host)
    line = batch.timeline
    # Groups matched with a success from the buffer are not active: its steps are not in this batch.
    active = list(active_groups(line))

    # A generator of its own, so that sampling changes no other random number.
    drawn = set(generator(seed, "sample", 0).permutation(len(active))[:count].tolist())
    context = _Context(batch, diagnostics, shaped, anchor_group_N)
    groups = []
    for index in sorted(drawn):
        _, successful, _ = active[index]
        # Selected again with the same seed, because matches do not name the reference's trajectory.
        reference = select(line, successful, shaper.reference, seed)
        groups.append(_group_record(context, scorer, active[index], reference))
    return {
        "step": seed[1],
        "groups_in_batch": len(np.unique(batch.group_N)),
        "active_groups": len(active),
        "groups": groups,
    }


def read_groups(path: Path) -> dict[str, Any]:
    """Read a file of :func:`save_groups`; similarities are rounded to ``DIGITS`` decimals.

    Raises:
        RecordError: The file is not a record of groups.
    """
    record: dict[str, Any] = read_gzipped_json(path, "record of groups")
    check_content(path, "record of groups", _Sample, record)
    for group in record["groups"]:
        for match in group["matches"]:
            for row in match["similarity"]:
                # In place, because the matrices are the largest part of a record.
                row[:] = [round(value, DIGITS) for value in row]
    return record


class _Match(SampleContent):
    """A failed sibling against the reference, as ``sampled_groups`` describes it."""

    trajectory: int
    steps: list[int]
    similarity: list[list[float]]
    walk: list[list[int]]
    credited: list[list[float]]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        # The page of the report indexes these lists unchecked.
        if any(len(row) != len(self.steps) for row in self.similarity):
            raise ValueError("rows of similarity are not as long as steps")
        for cell in self.credited:
            if len(cell) != 4:
                raise ValueError(
                    "credited does not consist of position, position, similarity, credit"
                )
            if cell[0] not in range(len(self.similarity)) or cell[1] not in range(len(self.steps)):
                raise ValueError(f"credited names {cell[:2]}, a pair that similarity does not have")
        if any(len(pair) != 2 for pair in self.walk):
            raise ValueError("walk does not consist of pairs")
        return self


class _Sibling(SampleContent):
    """A trajectory of a group; ``steps`` is its number of steps."""

    trajectory: int
    episode_return: float
    success: bool
    steps: int


class _Columns(SampleContent):
    """The steps of a group by column; indices are into the group's ``texts``."""

    trajectory: list[int]
    step: list[int]
    action: list[_Index]
    observation: list[_Index]
    state: list[_Index]
    valid: list[bool]
    kept: list[bool]
    anchor_group: list[int]
    step_return: list[float]
    bonus: list[float]
    credit: list[float]
    unshaped_advantage: list[float]
    advantage: list[float]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) != 1:
            raise ValueError(f"columns of {sorted(lengths)} entries")
        return self


class _Reference(SampleContent):
    """The success that failures are matched with; ``steps`` are time indices after the filter."""

    trajectory: int
    steps: list[int]


class _Group(SampleContent):
    """One sampled group."""

    group: int
    task: str
    siblings: list[_Sibling]
    steps: _Columns
    texts: list[str]
    reference: _Reference
    matches: list[_Match]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        named = (*self.steps.action, *self.steps.observation, *self.steps.state)
        if named and max(named) >= len(self.texts):
            raise ValueError(f"steps name text {max(named)} of {len(self.texts)}")
        if any(len(match.similarity) != len(self.reference.steps) for match in self.matches):
            raise ValueError("similarity has not a row for each step of the reference")
        return self


class _Sample(SampleContent):
    """A whole file."""

    step: _Index
    groups_in_batch: int
    active_groups: int
    groups: list[_Group]


class _Context(NamedTuple):
    """Shaped batch, with its anchor groups as the host forms them."""

    batch: StepBatch
    diagnostics: CreditDiagnostics
    shaped: Shaped
    anchor_group_N: IntArray


@dataclass(frozen=True)
class _Texts:
    """Distinct texts, numbered in order of appearance."""

    number: dict[str, int] = field(default_factory=dict)

    def numbers(self, texts: StrArray) -> list[int]:
        numbers = []
        for text in texts:
            short = cut_text(text, LONGEST_TEXT)
            numbers.append(self.number.setdefault(short, len(self.number)))
        return numbers


def _group_record(
    context: _Context, scorer: Scorer, active: tuple[int, IntArray, IntArray], reference: int
) -> dict[str, Any]:
    """Record of an active group.

    Args:
        context: The shaped batch.
        scorer: The run's scorer.
        active: Group, successful trajectories and failed trajectories, as indices of the timeline.
        reference: The reference, as an index of the timeline.
    """
    batch = context.batch
    line = context.batch.timeline
    group, successful, failed = active
    # The timeline numbers trajectories by id: siblings are shown in the order of their ids.
    members = np.sort(np.concatenate([successful, failed]))
    rows = np.concatenate([line.rows_of(k) for k in members])
    texts = _Texts()

    # In the order of ``failed``.
    matches = [match for match in context.shaped.matches if match.task.group == group]
    match_records = []
    for k, match in zip(failed, matches, strict=True):
        record = _match_record(batch, match, scorer)
        match_records.append({"trajectory": int(line.id_K[k]), **record})

    # Before the record, because this fills `texts`.
    columns = _columns(context, rows, texts)
    return {
        "group": group,
        "task": str(batch.task_N[rows[0]]),
        "siblings": [_sibling(batch, line.rows_of(k)) for k in members],
        "steps": columns,
        "texts": list(texts.number),
        "reference": {
            "trajectory": int(line.id_K[reference]),
            "steps": batch.step_N[matches[0].reference_row_m].tolist(),
        },
        "matches": match_records,
    }


def _sibling(batch: StepBatch, rows: IntArray) -> dict[str, Any]:
    """Record of a trajectory, from its rows in time order."""
    first = rows[0]
    return {
        "trajectory": int(batch.trajectory_N[first]),
        "episode_return": _rounded(batch.episode_return_N[first]),
        "success": bool(batch.success_N[first]),
        "steps": len(rows),
    }


def _columns(context: _Context, rows: IntArray, texts: _Texts) -> dict[str, list[Any]]:
    """Columns of the given rows; adds their texts to ``texts``."""
    batch = context.batch
    diagnostics = context.diagnostics
    shaped = context.shaped
    numbers = {
        "step_return": diagnostics.step_return_N,
        "bonus": diagnostics.bonus_N,
        "credit": shaped.credit_N,
        "unshaped_advantage": diagnostics.unshaped_advantage_N,
        "advantage": diagnostics.advantage_N,
    }
    columns: dict[str, list[Any]] = {
        "trajectory": batch.trajectory_N[rows].tolist(),
        "step": batch.step_N[rows].tolist(),
        "action": texts.numbers(batch.action_N[rows]),
        "observation": texts.numbers(batch.next_observation_N[rows]),
        "state": texts.numbers(batch.anchor_N[rows]),
        "valid": batch.valid_N[rows].tolist(),
        "kept": shaped.surviving_N[rows].tolist(),
        "anchor_group": context.anchor_group_N[rows].tolist(),
    }
    for name, value_N in numbers.items():
        # A shaped batch has all of these columns.
        assert value_N is not None  # noqa: S101
        columns[name] = [_rounded(value) for value in value_N[rows]]
    return columns


def _match_record(batch: StepBatch, match: FailedMatch, scorer: Scorer) -> dict[str, Any]:
    """Record of one failed trajectory's match, with the whole matrix M."""
    similarity_ml = dense_similarity(match.task, scorer)
    credited = []
    for cell in match.trace.credited:
        credited.append([cell.u, cell.v, _rounded(cell.similarity), _rounded(cell.credit)])
    return {
        "steps": batch.step_N[match.failed_row_l].tolist(),
        "similarity": [[_rounded(value) for value in row] for row in similarity_ml],
        "walk": [list(pair) for pair in match.trace.walk],
        "credited": credited,
    }


def _rounded(value: float | np.floating[Any]) -> float:
    """Round to six significant digits, the precision of float32."""
    return float(f"{value:.6g}")
