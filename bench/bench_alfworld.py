"""Steps per second of our ALFWorld engine against the stock engine, on the same random walks in the same process.

    python -m bench.bench_alfworld            # generated games
    ALFWORLD_DATA=... python -m bench.bench_alfworld --official

Every answer is compared on the way, so the table cannot come from an engine that plays something
else.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.engine import Engine, Limits
from scpo.envs.alfworld.games.games import Game, GameSource, GeneratedGames, OfficialGames
from scpo.envs.alfworld.planning.translation import TranslationStore
from scpo.schema.env import FAMILIES
from scpo.schema.env import GeneratedGames as Sizes

REPETITIONS = 100  # a cached step takes less than the clock's noise

Walk = list[tuple[str, str, tuple[str, ...]]]
"""Command, answer, admissible commands; the first entry is the opening."""
Spent = dict[str, list[float]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="ALFWorld: our engine against the stock engine.")
    parser.add_argument("--games", type=int, default=6, help="games to play (families take turns)")
    parser.add_argument("--steps", type=int, default=50, help="random steps in each")
    parser.add_argument("--official", action="store_true", help="play official games from $ALFWORLD_DATA")
    arguments = parser.parse_args()
    source: GameSource = OfficialGames(os.environ.get("ALFWORLD_DATA")) if arguments.official else _generated()
    games = _choose(source, arguments.games)
    assets()  # imports are not part of any figure

    print(f"{len(games)} games x {arguments.steps} random steps, {os.cpu_count()} cores\n")
    walks, stock = _stock(games, arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        cold = _ours(source, walks, folder)
        warm = _ours(source, walks, folder)
    rows = [
        ("load and first reset, ms a game", 1e3 * stock["open"], 1e3 * cold["open"]),
        ("  with the translation on disk", 1e3 * stock["open"], 1e3 * warm["open"]),
        ("further reset, ms", 1e3 * stock["reset"], 1e3 * warm["reset"]),
        ("steps/s, nothing cached", 1 / stock["step"], 1 / cold["step"]),
        ("steps/s, cached transitions", 1 / stock["step"], 1 / cold["cached"]),
    ]
    print(f"{'':34}{'stock':>12}{'ours':>12}{'ratio':>9}")
    for label, theirs, ours in rows:
        ratio = ours / theirs if "steps" in label else theirs / ours
        print(f"{label:34}{theirs:12,.1f}{ours:12,.1f}{ratio:8.0f}x")
    print(f"\nmemory: {_memory(source, 60)}")


def _generated() -> GeneratedGames:
    return GeneratedGames(Sizes(seed=0, train=600, valid_seen=6, valid_unseen=6))


def _choose(source: GameSource, count: int) -> list[Game]:
    ids = source.ids("train")
    families = list(FAMILIES.values())
    return [source.read(ids[families[n % len(families)]][n // len(families)]) for n in range(count)]


def _stock(games: list[Game], steps: int) -> tuple[dict[str, Walk], dict[str, float]]:
    """Random walks on the stock engine, and its mean seconds for opening, resetting and stepping."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    rng = random.Random(0)
    walks: dict[str, Walk] = {}
    spent: Spent = defaultdict(list)
    for game in games:
        infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
        engine = AlfredDemangler(PddlEnv(infos), shuffle=False)
        texts = {"pddl_domain": game.domain, "pddl_problem": game.problem, "grammar": game.grammar}
        _clocked(spent, "open", lambda engine=engine, texts=texts: (engine.load(texts), engine.reset()))
        state = _clocked(spent, "reset", engine.reset)
        walk: Walk = [("", state.feedback, tuple(state["admissible_commands"]))]
        for _ in range(steps):
            command = rng.choice(walk[-1][2])
            state, _, _ = _clocked(spent, "step", lambda engine=engine, command=command: engine.step(command))
            walk.append((command, state.feedback, tuple(state["admissible_commands"])))
        walks[game.id] = walk
    return walks, {what: fmean(seconds) for what, seconds in spent.items()}


def _ours(source: GameSource, walks: dict[str, Walk], folder: str) -> dict[str, float]:
    """The same walks on a new engine; after the first time every transition is cached."""
    # Grammar and library are read once in a process and shared by all games: no part of a game's
    # cost.
    Engine(source, TranslationStore(None)).open(next(iter(walks)))
    engine = Engine(source, TranslationStore(Path(folder)))
    spent: Spent = defaultdict(list)
    for name, walk in walks.items():
        for what in ("step", *["cached"] * REPETITIONS):
            opened = _clocked(spent, "open" if what == "step" else "reset", lambda name=name: engine.open(name))
            state = opened.start
            assert (opened.opening, state.admissible) == walk[0][1:]  # noqa: S101
            for command, answer, admissible in walk[1:]:
                started = time.perf_counter()
                state, observation = engine.step(opened, state, command)
                offered = state.admissible
                spent[what].append(time.perf_counter() - started)
                assert (observation, offered) == (answer, admissible), f"{name}: {command}"  # noqa: S101
    return {what: fmean(seconds) for what, seconds in spent.items()}


def _clocked(spent: Spent, what: str, call: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    result = call()
    spent[what].append(time.perf_counter() - started)
    return result


def _memory(source: GameSource, games: int) -> str:
    """Growth of the resident set per game opened and walked through, with lanes to spare and with few."""
    chosen = _choose(source, games + 1)
    found = []
    for lanes in (games + 1, 4):
        engine = Engine(source, TranslationStore(None), Limits(lanes=lanes))
        for number, game in enumerate(chosen):
            opened = engine.open(game.id)
            state = opened.start
            for command in game.walkthrough:
                state, _ = engine.step(opened, state, command)
            if number == 0:
                before = _resident()
        found.append(f"{(_resident() - before) / games / 1e6:.2f} MB a game with {lanes} lanes")
    return ", ".join(found)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
