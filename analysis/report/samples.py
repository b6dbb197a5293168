"""Samples on the page: rollout groups of training, and episodes of validations.

A page has room for a few megabytes. Samples are taken from the runs in turns (``round_robin``), so
that a page that is too small for all samples has some of every run.
"""

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from analysis.names import PANELS, benchmark, panel_order, task
from analysis.sources.collected import Collected
from analysis.sources.run_records import Problem, noted
from scpo.benchmarks import TRAINED_ON
from scpo.diagnostics.sampled_groups import PATTERN as GROUPS
from scpo.diagnostics.sampled_groups import read_groups
from scpo.diagnostics.validation_episodes import PATTERN as VALIDATIONS
from scpo.diagnostics.validation_episodes import read_validation
from scpo.errors import RecordError
from scpo.records.files import SAMPLE

MEGABYTE = 1_000_000
OUTCOME_BYTES = 1 * MEGABYTE
TRANSCRIPT_BYTES = 3 * MEGABYTE // 2

# Estimated bytes of a text's number in a transcript, with its comma.
BYTES_A_NUMBER = 6

# Digits for the number of won episodes of a game, so that a validation has one character per game.
COUNTS = "0123456789abcdefghijklmnopqrstuvwxyz"


# Rollout groups


@dataclass(frozen=True)
class GroupSample:
    """Sampled training steps.

    Attributes:
        steps: Run id -> records in order of their steps.
        shown: Number of records on the page.
        recorded: Number of records in the run folders.
        problems: Files that cannot be read.
    """

    steps: Mapping[str, list[dict[str, Any]]]
    shown: int
    recorded: int
    problems: tuple[Problem, ...]


def sample_groups(data: Collected, limit: int) -> GroupSample:
    """Read sampled steps until they fill ``limit`` bytes of JSON."""
    files = {run: data.diagnostics(run, GROUPS) for run in data.runs["id"]}
    steps: dict[str, list[dict[str, Any]]] = {}
    problems: list[Problem] = []
    for run, path in round_robin(files):
        with noted(problems, f"{run}/{path.name}"):
            record = read_groups(path)
            for group in record["groups"]:
                group["task"] = task(group["task"])
            # The size that the record will have on the page.
            limit -= len(json.dumps(record, ensure_ascii=False).encode())
            if limit < 0:
                break
            steps.setdefault(run, []).append(record)

    for records in steps.values():
        records.sort(key=lambda record: int(record["step"]))
    return GroupSample(
        steps={run: steps[run] for run in files if run in steps},
        shown=sum(map(len, steps.values())),
        recorded=sum(map(len, files.values())),
        problems=tuple(problems),
    )


def most_telling(sample: GroupSample) -> dict[str, str] | None:
    """Address in the inspector of the credited step whose advantage changed most.

    None if credit changed no advantage.
    """
    largest, address = 0.0, None
    for run, record, group in _groups_of(sample):
        steps = group["steps"]
        for row, credit in enumerate(steps["credit"]):
            change = abs(steps["advantage"][row] - steps["unshaped_advantage"][row])
            # Strictly larger, so that the first of several equal changes is taken.
            if credit > 0 and change > largest:
                largest = change
                address = {
                    "run": run,
                    "step": str(record["step"]),
                    "group": str(group["group"]),
                    "sibling": str(steps["trajectory"][row]),
                    # "f": a step of the failed sibling, not of the reference.
                    "at": f"f{steps['step'][row]}",
                }
    return address


def _groups_of(sample: GroupSample) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for run, records in sample.steps.items():
        for record in records:
            for group in record["groups"]:
                yield run, record, group


# Episodes


@dataclass
class _Panel:
    """Games that runs were validated on. Panels of one name with other games are different panels.

    Attributes:
        env: Environment.
        name: Name in the records.
        games: (id, family) of each game.
        repeats: Number of episodes of each game.
        runs: Run id -> step -> string with a character of ``COUNTS`` per game.
    """

    env: str
    name: str
    games: tuple[tuple[str, str], ...]
    repeats: int = 1
    runs: dict[str, dict[int, str]] = field(default_factory=dict)


@dataclass
class EpisodeSample:
    """Outcomes and transcripts that fit into a page.

    Attributes:
        panels: Panels by (environment, name, games).
        texts: Text -> its number, in order of appearance. Transcripts refer to texts by number,
            because most texts occur often.
        transcripts: Run id -> entries of panel, step, game, start, and the lists of all turns'
            actions, answers and formats (1 if valid, else 0).
        shown: Number of validations whose outcomes are on the page.
        recorded: Number of validations in the run folders.
        problems: Files that cannot be read.
        room: Number of bytes left for transcripts.
    """

    panels: dict[Any, _Panel] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    transcripts: dict[str, list[list[Any]]] = field(default_factory=dict)
    shown: int = 0
    recorded: int = 0
    problems: list[Problem] = field(default_factory=list)
    room: int = TRANSCRIPT_BYTES

    def content(self) -> dict[str, Any]:
        """Content for the page's script; held-out panels come before those trained on."""
        order = panel_order({panel.name for panel in self.panels.values()})

        def rank(key: Any) -> tuple[Any, ...]:
            env, name, games = key
            return (name == TRAINED_ON, order.index(name), env, games)

        keys = sorted(self.panels, key=rank)
        numbers = {key: number for number, key in enumerate(keys)}
        transcripts = {}
        for run, entries in sorted(self.transcripts.items()):
            transcripts[run] = sorted([numbers[key], *entry] for key, *entry in entries)
        return {
            "panels": [_panel_content(self.panels[key]) for key in keys],
            "texts": list(self.texts),
            "transcripts": transcripts,
            "shown": self.shown,
            "recorded": self.recorded,
        }


def sample_episodes(
    data: Collected,
    *,
    outcome_bytes: int = OUTCOME_BYTES,
    transcript_bytes: int = TRANSCRIPT_BYTES,
) -> EpisodeSample:
    """Read validations until their outcomes fill ``outcome_bytes`` (one byte per game).

    Their transcripts are added until they fill ``transcript_bytes``.
    """
    files = {run: data.diagnostics(run, VALIDATIONS) for run in data.runs["id"]}
    sample = EpisodeSample(recorded=sum(map(len, files.values())), room=transcript_bytes)
    for run, path in round_robin(files):
        with noted(sample.problems, f"{run}/{path.name}"):
            record = read_validation(path)
            _check_against_log(data, run, path, record)
            for panel in record["panels"].values():
                outcome_bytes -= len(set(panel["task"]))
            if outcome_bytes < 0:
                break
            _add(sample, run, data.by_id[run].head.env.name, record)
            sample.shown += 1
    return sample


def _check_against_log(data: Collected, run: str, path: Path, record: Mapping[str, Any]) -> None:
    """Check that a validation agrees with the success rates that its run logged.

    Raises:
        RecordError: A panel of this step in the log is missing or has other outcomes.
    """
    step = int(record["step"])
    for name in data.panels(run):
        logged = data.series(run, f"val/{name}/success_rate").at(step)
        if logged is None:
            continue
        if name not in record["panels"]:
            raise RecordError(
                f"{path.name} has no panel {name}, which the run's log has at step {step}: "
                f"left out. {SAMPLE}"
            )
        won = record["panels"][name]["won"]
        if not math.isclose(sum(won) / len(won), logged, abs_tol=1e-6):
            raise RecordError(
                f"{path.name}: {sum(won)} of {len(won)} episodes of panel {name} are won, but the "
                f"run's log has a success rate of {logged} at step {step}: left out. {SAMPLE}"
            )


def _add(sample: EpisodeSample, run: str, env: str, record: Mapping[str, Any]) -> None:
    """Add the outcomes and transcripts of one validation."""
    step = int(record["step"])
    for name, columns in record["panels"].items():
        games = dict(zip(columns["task"], columns["family"], strict=True))
        key = (env, name, tuple(games))
        panel = sample.panels.setdefault(key, _Panel(env, name, tuple(games.items())))
        panel.repeats = max(panel.repeats, 1 + max(columns["repeat"]))
        won = dict.fromkeys(games, 0)
        for game, success in zip(columns["task"], columns["won"], strict=True):
            won[game] += bool(success)
        counts = [COUNTS[min(count, len(COUNTS) - 1)] for count in won.values()]
        panel.runs.setdefault(run, {})[step] = "".join(counts)
        places = list(games)
        for transcript in columns["transcripts"]:
            game = places.index(columns["task"][transcript["episode"]])
            _add_transcript(sample, run, (key, step, game), transcript)


def _add_transcript(
    sample: EpisodeSample,
    run: str,
    place: tuple[Any, int, int],
    transcript: dict[str, Any],
) -> None:
    """Add a transcript if there is room; ``place``: its panel, step and game."""
    if not transcript["turns"]:
        return
    texts = [transcript["start"]]
    for action, answer, _ in transcript["turns"]:
        texts += [action, answer]
    new = {text for text in texts if text not in sample.texts}
    size = len(json.dumps(sorted(new), ensure_ascii=False).encode())
    sample.room -= size + BYTES_A_NUMBER * len(texts)
    if sample.room < 0:
        return
    start, *numbers = [sample.texts.setdefault(text, len(sample.texts)) for text in texts]
    actions = numbers[::2]
    answers = numbers[1::2]
    valid = [int(turn[2]) for turn in transcript["turns"]]
    entry = [*place, start, actions, answers, valid]
    sample.transcripts.setdefault(run, []).append(entry)


def _panel_content(panel: _Panel) -> dict[str, Any]:
    runs = {}
    for run, steps in panel.runs.items():
        ordered = sorted(steps)
        runs[run] = {"steps": ordered, "won": [steps[step] for step in ordered]}
    games = []
    for game, family in panel.games:
        # The page shows panel and family next to the id, so the id does not repeat them.
        short = game.removeprefix(f"{panel.name}/").removesuffix(f"-{family}")
        games.append([short, task(family)])

    return {
        "name": panel.name,
        "env": panel.env,
        "title": f"{PANELS.get(panel.name, panel.name)}, {benchmark(panel.env)}",
        "repeats": panel.repeats,
        "games": games,
        "runs": runs,
    }


# Order of files


def round_robin(files: Mapping[str, Sequence[Path]]) -> Iterator[tuple[str, Path]]:
    """Yield the files of all runs in turns: every run's first file, every run's last, then others.

    Runs take their turns in the same order: the first run, the last one, then those in between.
    """
    names = list(files)
    turns = []
    for place in _ends_and_middles(len(names)):
        run = names[place]
        turns.append([(run, files[run][k]) for k in _ends_and_middles(len(files[run]))])
    for turn in zip_longest(*turns):
        for entry in turn:
            if entry is not None:
                yield entry


def _ends_and_middles(count: int) -> list[int]:
    """``0..count-1`` in an order that covers the range early: both ends, then middles of gaps."""
    order = dict.fromkeys((0, count - 1) if count else ())
    gaps = deque([(0, count - 1)])
    while gaps:
        low, high = gaps.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            order.setdefault(middle)
            gaps += [(low, middle), (middle, high)]
    return list(order)
