"""The sampled rollout groups that the credit inspector shows, as many as a page should carry."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scpo.diagnostics.sampled_groups import PATTERN, read_groups

from analysis.naming.names import task
from analysis.sources.collect import Collected
from analysis.sources.run_records import Problem, noted


@dataclass(frozen=True)
class GroupSample:
    """Sampled training steps by run, in order of their steps; what the page had no room for, and what was broken."""

    steps: Mapping[str, list[dict[str, Any]]]
    shown: int
    recorded: int
    problems: tuple[Problem, ...]


def sample_groups(data: Collected, limit: int) -> GroupSample:
    """Read sampled steps until they fill ``limit`` bytes of JSON.

    Runs take turns, and a run's first, last and middle steps come before the others; so do the
    first, last and middle runs. A page too small for all shows some of every run, or of runs of
    every kind.
    """
    files = {run: data.diagnostics(run, PATTERN) for run in data.runs["id"]}
    steps: dict[str, list[dict[str, Any]]] = {}
    problems: list[Problem] = []
    for run, path in taking_turns(files):
        with noted(problems, f"{run}/{path.name}"):
            record = read_groups(path)
            for group in record["groups"]:
                group["task"] = task(group["task"])
            limit -= len(json.dumps(record, ensure_ascii=False).encode())
            if limit < 0:
                break
            steps.setdefault(run, []).append(record)
    for records in steps.values():
        records.sort(key=lambda record: int(record["step"]))
    shown = sum(map(len, steps.values()))
    ordered = {run: steps[run] for run in files if run in steps}
    return GroupSample(ordered, shown, sum(map(len, files.values())), tuple(problems))


def most_telling(sample: GroupSample) -> dict[str, str] | None:
    """The credited step whose advantage its credit moved most, as an address of the inspector; None: none moved."""
    best, place = 0.0, None
    for run, record, group in _groups_of(sample):
        steps = group["steps"]
        for row, credit in enumerate(steps["credit"]):
            moved = abs(steps["advantage"][row] - steps["unshaped_advantage"][row])
            if credit > 0 and moved > best:
                where = {"run": run, "step": str(record["step"]), "group": str(group["group"])}
                of_step = {"sibling": str(steps["trajectory"][row]), "at": f"f{steps['step'][row]}"}
                best, place = moved, where | of_step
    return place


def _groups_of(sample: GroupSample) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for run, records in sample.steps.items():
        for record in records:
            yield from ((run, record, group) for group in record["groups"])


def taking_turns(files: Mapping[str, Sequence[Path]]) -> Iterator[tuple[str, Path]]:
    """Every run's first file, every run's last, then what lies between, with runs from end to end in turn."""
    runs = [list(files)[k] for k in _ends_and_middles(len(files))]
    turns = [[(run, files[run][k]) for k in _ends_and_middles(len(files[run]))] for run in runs]
    for turn in zip_longest(*turns):
        yield from (place for place in turn if place is not None)


def _ends_and_middles(count: int) -> list[int]:
    """``0..count-1``: both ends, then the middle of each gap, the widest gaps first."""
    order = dict.fromkeys((0, count - 1) if count else ())
    gaps = [(0, count - 1)]
    for low, high in gaps:
        if high - low > 1:
            middle = (low + high) // 2
            order.setdefault(middle)
            gaps += [(low, middle), (middle, high)]
    return list(order)
