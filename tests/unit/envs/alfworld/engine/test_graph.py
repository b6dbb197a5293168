"""What one process learned of a game another reads, whole or not at all, and plays on without an engine."""

import logging
import random
import subprocess
import sys

import pytest

from scpo.envs.alfworld.engine import engine as engine_module
from scpo.envs.alfworld.engine.engine import Engine, Limits
from scpo.envs.alfworld.engine.graph import Graph, State, TransitionStore, coded, graph_of, transition_key
from scpo.envs.alfworld.games.games import generate
from scpo.envs.alfworld.planning.translation import TranslationStore

GAME = generate("train", 0, 4)


class One:
    def read(self, game_id):
        return GAME


def engine_on(folder, **limits):
    return Engine(One(), TranslationStore(None), Limits(unkept=10**9, **limits), transitions=folder)


def walk(engine, seed, steps=12):
    """What a random walk shows: answers, admissible commands and won."""
    rng, opened = random.Random(seed), engine.open(GAME.id)
    state, shown = opened.start, [opened.opening]
    for _ in range(steps):
        command = rng.choice(state.admissible)
        state, answer = engine.step(opened, state, command)
        shown += [command, answer, state.admissible, state.won]
    return shown


def file_of(folder):
    (path,) = folder.rglob("*.graph")
    return path


@pytest.fixture
def forbid_computing(monkeypatch):
    """From its call on, a transition that must be computed is a failure."""
    computed = "a known transition was computed again"
    return lambda: monkeypatch.setattr(engine_module, "_world", lambda *_: pytest.fail(computed))


def test_a_walk_that_is_on_disk_needs_no_engine(tmp_path, forbid_computing):
    first = engine_on(tmp_path)
    shown = walk(first, 0)
    first.keep()
    forbid_computing()
    assert walk(engine_on(tmp_path), 0) == shown


def test_a_new_way_from_a_state_that_was_read_is_what_a_fresh_engine_says(tmp_path):
    first = engine_on(tmp_path)
    walk(first, 0)
    first.keep()
    again = engine_on(tmp_path)
    for seed in range(1, 5):
        assert walk(again, seed) == walk(engine_on(None), seed)


def test_what_two_processes_learned_of_one_game_is_kept_of_both(tmp_path, forbid_computing):
    one, other = engine_on(tmp_path), engine_on(tmp_path)
    shown = [walk(one, 1), walk(other, 2)]
    one.keep()
    other.keep()
    forbid_computing()
    assert [walk(engine_on(tmp_path), 1), walk(engine_on(tmp_path), 2)] == shown


def test_a_process_that_ends_keeps_what_it_learned(tmp_path, forbid_computing):
    script = f"""
import sys
from tests.unit.envs.alfworld.engine.test_graph import engine_on, walk
walk(engine_on({tmp_path!r}), 0)
""".replace("PosixPath", "__import__('pathlib').Path")
    subprocess.run([sys.executable, "-c", script], check=True)
    forbid_computing()
    assert len(walk(engine_on(tmp_path), 0)) > 1


def test_what_changes_nothing_is_not_written_again(tmp_path):
    engine = engine_on(tmp_path)
    walk(engine, 0)
    engine.keep()
    before = file_of(tmp_path).stat()
    walk(engine, 0)
    engine.keep()
    assert file_of(tmp_path).stat() == before


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _: b"", lambda data: data.replace(b'": 1', b'": 9')])
def test_a_damaged_file_is_made_again(tmp_path, damage, caplog):
    engine = engine_on(tmp_path)
    shown = walk(engine, 0)
    engine.keep()
    path = file_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = engine_on(tmp_path)
    assert walk(again, 0) == shown
    assert "are not usable" in caplog.text
    again.keep()
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_one_line_and_no_result(tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    with caplog.at_level(logging.WARNING):
        engine = engine_on(tmp_path / "taken")
        shown = walk(engine, 0)
        engine.keep()
        walk(engine, 1)
        engine.keep()
    assert walk(engine_on(None), 0) == shown
    assert caplog.text.count("no longer kept") == 1


def test_no_more_states_are_kept_on_disk_than_allowed(tmp_path):
    engine = engine_on(tmp_path, states=5)
    shown = walk(engine, 0, steps=20)
    engine.keep()
    assert len(TransitionStore(tmp_path, 5).get(GAME)) == 5
    assert walk(engine_on(tmp_path, states=5), 0, steps=20) == shown


def test_another_game_or_text_is_another_file():
    keys = {transition_key(game) for game in (GAME, generate("train", 0, 10), generate("train", 1, 4))}
    assert len(keys) == 3


def content(state):
    return state.code, state.key, dict(state.operators), state.admissible, state.won, state.successors


def test_a_packed_graph_is_the_graph_it_was():
    graph = Graph(10, "You are in a room.")
    keys = [((), False), ((3, 900), False), ((2,), True)]
    offer = graph.offer({"look": 7, "go to bed 1": 1})
    states = [State(coded(frozenset(key)), offer, won) for key, won in keys]
    for state in states:
        graph.add(state)
    graph.learn(states[0], "look", 1, "A bed.")
    graph.learn(states[1], "go to bed 1", 2, "A bed.")
    once = graph_of(graph.to_bytes(), 10)
    twice = graph_of(once.to_bytes(), 10)
    for copy in (once, twice):
        assert copy.opening == graph.opening
        assert list(map(content, map(copy.state, range(3)))) == list(map(content, states))
        assert copy.find(coded(frozenset({2}))) == 2
        assert copy.state(0).operators is copy.state(2).operators
