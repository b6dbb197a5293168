"""The episodes of validations: who solves which game at which step, and transcripts, as many as a page should carry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scpo.diagnostics.validation_episodes import PATTERN, read_validation

from analysis.naming.names import PANELS, TRAINED_ON, benchmark, panel_order, task
from analysis.report.inspector_groups import taking_turns
from analysis.sources.collect import Collected
from analysis.sources.run_records import Problem, noted

MEGABYTE = 1_000_000
OUTCOME_BYTES = 1 * MEGABYTE
TRANSCRIPT_BYTES = 3 * MEGABYTE // 2
COUNTS = "0123456789abcdefghijklmnopqrstuvwxyz"  # how many episodes of a game were won, one character a game


@dataclass
class _Panel:
    """A list of games that runs share; those of the same name and other games are another."""

    env: str
    name: str
    games: tuple[tuple[str, str], ...]  # id, family
    repeats: int = 1
    runs: dict[str, dict[int, str]] = field(default_factory=dict)  # run -> step -> COUNTS


@dataclass
class EpisodeSample:
    """What fits into a page: panels with outcomes, and transcripts with their texts numbered.

    Attributes:
        panels: By environment, name and games.
        texts: Numbered in order of appearance; transcripts repeat most of them.
        transcripts: By run: panel, step, game, start, each turn's action, answer, format (1 or 0).
        shown: Validations whose outcomes are here.
        recorded: Validations that there are.
        problems: Files that cannot be read.
    """

    panels: dict[Any, _Panel] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    transcripts: dict[str, list[list[Any]]] = field(default_factory=dict)
    shown: int = 0
    recorded: int = 0
    problems: list[Problem] = field(default_factory=list)
    room: int = TRANSCRIPT_BYTES  # left for transcripts

    def content(self) -> dict[str, Any]:
        """As the page's script takes it: held-out panels before those trained on."""
        order = panel_order({panel.name for panel in self.panels.values()})
        keys = sorted(
            self.panels, key=lambda key: (key[1] == TRAINED_ON, order.index(key[1]), key[0], key[2])
        )
        place = {key: k for k, key in enumerate(keys)}
        transcripts = {
            run: sorted([[place[one[0]], *one[1:]] for one in told])
            for run, told in sorted(self.transcripts.items())
        }
        return {
            "panels": [_shown(self.panels[key]) for key in keys],
            "texts": list(self.texts),
            "transcripts": transcripts,
            "shown": self.shown,
            "recorded": self.recorded,
        }


def sample_episodes(
    data: Collected, *, outcome_bytes: int = OUTCOME_BYTES, transcript_bytes: int = TRANSCRIPT_BYTES
) -> EpisodeSample:
    """Read records of validations until their outcomes fill a page's room; transcripts have room of their own.

    Runs take turns as for sampled groups: a page too small for all has the first and the last
    validation of every run.
    """
    files = {run: data.diagnostics(run, PATTERN) for run in data.runs["id"]}
    sample = EpisodeSample(recorded=sum(map(len, files.values())), room=transcript_bytes)
    for run, path in taking_turns(files):
        with noted(sample.problems, f"{run}/{path.name}"):
            record = read_validation(path)
            outcome_bytes -= sum(len(set(panel["task"])) for panel in record["panels"].values())
            if outcome_bytes < 0:
                break
            _add(sample, run, data.by_id[run].head.env.name, record)
            sample.shown += 1
    return sample


def _add(sample: EpisodeSample, run: str, env: str, record: Mapping[str, Any]) -> None:
    for name, columns in record["panels"].items():
        games = dict(zip(columns["task"], columns["family"], strict=True))
        key = (env, name, tuple(games))
        panel = sample.panels.setdefault(key, _Panel(env, name, tuple(games.items())))
        panel.repeats = max(panel.repeats, 1 + max(columns["repeat"]))
        won = dict.fromkeys(games, 0)
        for game, one in zip(columns["task"], columns["won"], strict=True):
            won[game] += bool(one)
        counts = "".join(COUNTS[min(count, len(COUNTS) - 1)] for count in won.values())
        panel.runs.setdefault(run, {})[int(record["step"])] = counts
        places = list(games)
        for told in columns["transcripts"]:
            game = places.index(columns["task"][told["episode"]])
            _add_transcript(sample, run, (key, int(record["step"]), game), told)


def _add_transcript(
    sample: EpisodeSample, run: str, place: tuple[Any, int, int], transcript: dict[str, Any]
) -> None:
    """``place``: the panel, the step and the game."""
    if not transcript["turns"]:
        return
    texts = [transcript["start"], *(text for turn in transcript["turns"] for text in turn[:2])]
    new = {text for text in texts if text not in sample.texts}
    sample.room -= len(json.dumps(sorted(new), ensure_ascii=False).encode()) + 6 * len(texts)
    if sample.room < 0:
        return
    start, *numbers = [sample.texts.setdefault(text, len(sample.texts)) for text in texts]
    valid = [int(turn[2]) for turn in transcript["turns"]]
    sample.transcripts.setdefault(run, []).append(
        [*place, start, numbers[::2], numbers[1::2], valid]
    )


def _shown(panel: _Panel) -> dict[str, Any]:
    return {
        "name": panel.name,
        "env": panel.env,
        "title": f"{PANELS.get(panel.name, panel.name)}, {benchmark(panel.env)}",
        "repeats": panel.repeats,
        "games": [[_short(game, panel.name, family), task(family)] for game, family in panel.games],
        "runs": {
            run: {"steps": sorted(steps), "won": [steps[step] for step in sorted(steps)]}
            for run, steps in panel.runs.items()
        },
    }


def _short(game: str, panel: str, family: str) -> str:
    """An id without what stands beside it: the panel that it begins with, the family that it ends with."""
    return game.removeprefix(f"{panel}/").removesuffix(f"-{family}")
