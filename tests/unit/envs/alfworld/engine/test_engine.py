"""The fast engine says byte for byte what the stock engine says, and leaves the stock engine and the user alone."""

import functools
import gc
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from scpo.bounded import Bounded
from scpo.envs.alfworld.engine.engine import Engine, Limits
from scpo.envs.alfworld.engine.grammar import read_grammar
from scpo.envs.alfworld.engine.graph import State
from scpo.envs.alfworld.engine.world import Lane, load_library
from scpo.envs.alfworld.games.games import Game, generate
from scpo.envs.alfworld.planning.translation import TranslationStore
from scpo.errors import GameError
from tests.support.alfworld_games import Seen, StockEngine, official_games, wander

SMALL = [7, 8]  # games of two families, of few objects: what the stock engine's time goes with
INADMISSIBLE = ("fly", "", "go to the moon 1", "take nothing", "GO TO DESK 1", "help me")


class Listed:
    """A source of the games in a list."""

    def __init__(self, *games: Game) -> None:
        self._games = {game.id: game for game in games}

    def read(self, game_id: str) -> Game:
        return self._games[game_id]


class Player:
    """One sibling: an episode of a game on an engine, seen as the stock engine's is."""

    def __init__(self, engine: Engine, game_id: str) -> None:
        self._engine = engine
        self._opened = engine.open(game_id)
        self.state = self._opened.start

    def reset(self) -> Seen:
        return self._seen(self._opened.opening, 0, False)

    def step(self, command: str) -> Seen:
        self.state, observation = self._engine.step(self._opened, self.state, command)
        return self._seen(observation, int(self.state.won), self.state.won)

    def _seen(self, observation: str, score: int, done: bool) -> Seen:
        return Seen(observation, list(self.state.admissible), self.state.won, score, done)


def fresh(*games: Game, limits: Limits | None = None) -> Engine:
    return Engine(Listed(*games), TranslationStore(None), limits)


stock_engine = functools.lru_cache(maxsize=4)(StockEngine)


@functools.cache
def wandering(game: Game, seed: int, steps: int, /) -> list[tuple[str, Seen]]:
    """A random walk on the stock engine: commands (some inadmissible) and what it showed."""
    engine, rng = stock_engine(game), random.Random(seed)
    walk = [("", engine.reset())]
    for _ in range(steps):
        command = rng.choice(INADMISSIBLE) if rng.random() < 0.1 else wander(walk[-1][1], rng)
        walk.append((command, engine.step(command)))
    return walk


def assert_same_rollouts(game: Game, seeds: int, steps: int) -> None:
    """On the walkthrough, and on a random walk for each of the seeds."""
    walks = [wandering(game, seed, steps) for seed in range(seeds)]
    stock, engine = stock_engine(game), fresh(game)
    player = Player(engine, game.id)
    assert player.reset() == stock.reset()
    for command in (*INADMISSIBLE, "  look ", *game.walkthrough, *INADMISSIBLE):
        assert player.step(command) == stock.step(command), f"{game.id}: {command}"
    assert player.state.won, f"{game.id}: the walkthrough did not win"
    for walk in walks:
        again = Player(engine, game.id)
        assert again.reset() == walk[0][1]
        for command, seen in walk[1:]:
            assert again.step(command) == seen, f"{game.id}: {command}"


@pytest.mark.parametrize("index", SMALL)
def test_a_generated_game_plays_as_on_the_stock_engine(index):
    assert_same_rollouts(generate("train", 7, index), seeds=2, steps=10)


def test_an_official_game_plays_as_on_the_stock_engine():
    assert_same_rollouts(official_games("valid_unseen", 1)[1], seeds=1, steps=16)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("split", ["train", "valid_seen", "valid_unseen"])
def test_many_games_of_all_families_play_as_on_the_stock_engine(split):
    for game in [*official_games(split, 2, more=2), *(generate(split, 11, index) for index in range(12))]:
        assert_same_rollouts(game, seeds=1, steps=80)


def test_a_second_visit_comes_from_the_cache_with_the_same_text():
    game = generate("valid_seen", 0, 4)
    walk = wandering(game, 3, 15)
    engine = fresh(game)
    states = []
    for _ in range(2):
        player = Player(engine, game.id)
        assert player.reset() == walk[0][1]
        visited = [player.state]
        for command, seen in walk[1:]:
            assert player.step(command) == seen
            visited.append(player.state)
        states.append(visited)
    assert all(first is second for first, second in zip(*states, strict=True))


@pytest.mark.parametrize("limits", [Limits(), Limits(games=1, states=2, lanes=1)], ids=["roomy", "always full"])
@pytest.mark.parametrize("held", [0, 2])
def test_siblings_that_step_in_turns_do_not_disturb_each_other(limits, held):
    games = [generate("train", 7, index) for index in SMALL]
    walks = [(game, wandering(game, seed, 10)) for game in games for seed in range(2)]
    engine = fresh(*games, limits=limits)
    engine.hold([game.id for game in games[:held]])
    players = [Player(engine, game.id) for game, _ in walks]
    for step in range(1, 11):
        for player, (_, walk) in zip(players, walks, strict=True):
            command, seen = walk[step]
            assert player.step(command) == seen


def test_games_that_are_played_in_turns_are_loaded_once_each(monkeypatch):
    loads = []
    monkeypatch.setattr(
        Lane, "load", lambda lane, translation, load=Lane.load: loads.append(1) or load(lane, translation)
    )
    games = [generate("train", 7, index) for index in (*SMALL, 0)]
    engine = fresh(*games, limits=Limits(spare_lanes=1))
    engine.hold([games[0].id])
    players = [Player(engine, game.id) for game in games]
    for step in range(min(len(game.walkthrough) for game in games)):
        for player, game in zip(players, games, strict=True):
            player.step(game.walkthrough[step])
    assert len(loads) <= 2 * len(games), "once to open a game and once to play it, not once a step"


def test_held_games_take_no_lanes_of_the_shared_pool(monkeypatch):
    reserved = []
    monkeypatch.setattr(Bounded, "reserve", lambda _, entries: reserved.append(entries))
    games = [generate("train", 7, index) for index in (*SMALL, 0)]
    engine = fresh(*games)
    engine.hold([game.id for game in games[:2]])
    player = Player(engine, games[2].id)
    player.step(games[2].walkthrough[0])
    assert reserved == [1]


def test_a_broken_lane_is_replaced_and_the_game_goes_on():
    game = generate("train", 0, 0)
    engine = fresh(game)
    player = Player(engine, game.id)
    engine.drop(game.id)
    for command in game.walkthrough:
        player.step(command)
    assert player.state.won


def test_no_more_states_are_kept_than_allowed():
    game = generate("valid_seen", 0, 4)
    walk = wandering(game, 3, 15)
    others = states_alive()
    engine = fresh(game, limits=Limits(states=3))
    player = Player(engine, game.id)
    for command, seen in walk[1:]:
        assert player.step(command) == seen
    assert states_alive() - others <= 3 + 2  # those remembered, the start and where the player stands


def states_alive():
    gc.collect()
    return sum(type(thing) is State for thing in gc.get_referrers(State))


def test_looking_around_makes_no_new_state():
    game = generate("train", 0, 0)
    engine = fresh(game)
    player = Player(engine, game.id)
    player.step(game.walkthrough[0])
    before = player.state
    for command in ("look", "inventory", "help"):
        player.step(command)
    assert player.state is before


def test_a_game_that_changes_what_matters_under_conditions_is_refused():
    game = generate("train", 0, 1)
    effect = "(isToggled ?o)\n            )\n )"
    assert effect in game.domain
    sly = replace(game, domain=game.domain.replace(effect, "(when (isOn ?o) (isToggled ?o))\n            )\n )"))
    with pytest.raises(GameError, match=r"istoggled.*under conditions"):
        fresh(sly).open(game.id)


@pytest.mark.parametrize(
    ("part", "error"),
    [("domain", "PDDL parser refused"), ("problem", "PDDL parser refused"), ("grammar", "grammar cannot be parsed")],
)
def test_a_game_that_cannot_be_parsed_is_refused(part, error):
    game = replace(generate("train", 0, 0), **{part: "(define ((("})
    with pytest.raises(GameError, match=error):
        fresh(game).open(game.id)


def test_a_goal_out_of_reach_is_refused():
    game = generate("train", 0, 0)
    declared, goal = game.problem.split("(:goal")
    unreachable = goal.replace("(inReceptacle ?o ?r)", "(inReceptacle ?o ?r) (openable ?o)")
    with pytest.raises(GameError, match="never be reached"):
        fresh(replace(game, problem=f"{declared}(:goal{unreachable}")).open(game.id)


def test_texts_of_a_game_cannot_call_anything():
    grammar = generate("train", 0, 0).grammar
    evil = grammar.replace("You close the {r.name}.", "You close the {exit()}.")
    assert evil != grammar
    with pytest.raises(GameError, match="may only name and join"):
        read_grammar(evil)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: the test reads /proc")
def test_a_private_library_copy_is_small():
    library = load_library()
    with open("/proc/self/maps") as maps:
        copies = [line.split() for line in maps if "libdownward" in line]
    assert copies
    assert library.get_applicable_operators_count is not None
    assert sum(int(b, 16) - int(a, 16) for a, b in (c[0].split("-") for c in copies[:6])) < 8_000_000


def test_importing_and_playing_changes_neither_the_users_files_nor_the_stock_engine(tmp_path):
    script = """
import os, sys
sys.argv = ["train.py", "scale=mini"]
from scpo.envs.alfworld.engine.engine import Engine
from scpo.envs.alfworld.games.games import generate
from scpo.envs.alfworld.planning.translation import TranslationStore

class One:
    def read(self, game_id):
        return generate("train", 0, 0)

engine = Engine(One(), TranslationStore(None))
opened = engine.open("train/generated-0/000000-pick_and_place_simple")
engine.step(opened, opened.start, "look")
import fast_downward
from textworld.envs.pddl import logic, textgen
assert sys.argv == ["train.py", "scale=mini"], sys.argv
assert "ALFWORLD_DATA" not in os.environ
assert fast_downward.pddl2sas.__module__ == "fast_downward.interface"
assert textgen._parse_and_convert.__module__ == "textworld.envs.pddl.textgen"
assert not [name for name in ("torch", "wandb", "transformers") if name in sys.modules]
"""
    environment = {key: value for key, value in os.environ.items() if key != "ALFWORLD_DATA"}
    environment["HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*alfworld*")) == []


def test_a_bounded_store_forgets_what_was_used_longest_ago():
    store = Bounded(2)
    store.put("a", 1)
    store.put("b", 2)
    assert store.get("a") == 1
    store.put("c", 3)
    assert (store.get("b"), store.get("a"), store.get("c"), len(store)) == (None, 1, 3, 2)
    with pytest.raises(ValueError, match="at least one"):
        Bounded(0)
