"""Panels as verl's data files: one row per prompt, in training order.

The training file is the schedule of the whole run. verl reads it once, from beginning to end, and a
resumed run continues where its dataloader stopped. The tasks of each step are those of the local
trainer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scpo.envs.base import Environment, Task
from scpo.records.files import write_bytes
from scpo.rollout import training_tasks
from scpo.schema.run import RunConfig
from scpo.verl_config import prompts_per_step

TRAIN, PROBE = "train", "probe"


def training_rows(environment: Environment, config: RunConfig) -> Iterator[dict[str, Any]]:
    """``prompts_per_step`` rows for each training step, in order."""
    tasks = environment.panel(TRAIN).tasks
    count = prompts_per_step(config)
    for step in range(1, config.trainer.steps + 1):
        chosen = training_tasks(tasks, groups=count, seed=config.seed, step=step)
        for group, task in enumerate(chosen):
            # The agent loop computes the training step from the index (`_check_schedule`).
            yield _row(config, (step - 1) * count + group, TRAIN, task, group=group)


def validation_rows(environment: Environment, config: RunConfig) -> Iterator[dict[str, Any]]:
    """Rows of all validation panels, with repeats, and of the probe for methods with a shaper."""
    panels = config.env.validation_panels
    episodes = {name: panels[name].repeats for name in sorted(panels)}
    if config.trained.shaper:
        episodes[PROBE] = config.trainer.probe_siblings
    index = 0
    for panel, repeats in episodes.items():
        for group, task in enumerate(environment.panel(panel).tasks):
            # Repeats are rows, because verl's `val_kwargs.n` is one number for all panels.
            for repeat in range(repeats):
                yield _row(config, index, panel, task, group=group, repeat=repeat)
                index += 1


def _row(
    config: RunConfig, index: int, panel: str, task: Task, *, group: int, repeat: int = 0
) -> dict[str, Any]:
    """One row with verl's columns; the agent loop makes the prompts of each step from the task.

    Args:
        config: The run's configuration.
        index: Number of the row in the file, from which the agent loop computes the training step.
        panel: ``train``, ``probe``, or a validation panel.
        task: The task.
        group: Number of the task in its step or panel.
        repeat: Number of the episode of a validation task; in training verl repeats the row.
    """
    entry = {"index": index, "panel": panel, "group": group, "repeat": repeat}
    return {
        "data_source": config.env.name,
        "prompt": [{"role": "user", "content": task.id}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {**entry, "task": task.id, "family": task.family, "sha256": task.sha256},
    }


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a Parquet file for verl, atomically, so that no incomplete schedule is left."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), buffer)
    write_bytes(path, buffer.getvalue())
