"""A resumed run ends with the same bytes whatever its scorer does: here its answers depend on what else it is asked."""

import dataclasses
import json
import zlib

import numpy as np
import pytest

from scpo.errors import ScorerError
from scpo.scoring import PairCache
from scpo.trainers import train
from scpo.trainers.local import trainer
from sweeps import store
from sweeps.compose import compose_run
from tests.e2e.local_run import OVERRIDES

pytest.importorskip("alfworld", reason="needs the alfworld extra")
torch = pytest.importorskip("torch", reason="needs the local extra")

SHORT = ["trainer.validation.every=1000", "trainer.probe_every=3", "trainer.sample_every=2",
         "env.validation_panels.valid_seen.games=1", "env.validation_panels.valid_unseen.games=1"]  # fmt: skip


class Sociable:
    """Texts are as similar as they are long, and a little more so in company: 1e-6 for each pair of the call.

    ``fails_at``: the call, counted from 1, that is not answered.
    """

    name = "sociable"

    def __init__(self, fails_at=None):
        self.fails_at = fails_at
        self.calls = []

    def score(self, pairs):
        self.calls.append(list(pairs))
        if len(self.calls) == self.fails_at:
            raise ScorerError("it had enough")
        alone = [0.5 + 0.4 * min(len(a), len(b)) / max(len(a), len(b), 1) for a, b in pairs]
        return np.array(alone, dtype=np.float32) + np.float32(1e-6 * len(pairs))


class Shelves:
    """Wraps an environment: whatever the policy says takes it to one of 30 shelves, and every second sibling wins."""

    def __init__(self, environment):
        self._environment = environment

    def __getattr__(self, name):
        return getattr(self._environment, name)

    def start(self, task, slot):
        return Walk(self._environment.start(task, slot), wins=slot % 2 == 0)


class Walk:
    def __init__(self, episode, wins):
        self._episode = episode
        self._wins = wins

    def __getattr__(self, name):
        return getattr(self._episode, name)

    def step(self, response):
        result = self._episode.step(response)
        shelf = "I" * (zlib.crc32(response.encode()) % 30)
        won = result.done and self._wins
        return dataclasses.replace(
            result, action=f"go to shelf {shelf}", observation="You arrive.", valid=True, reward=10.0 * won, won=won
        )


class Killed(Exception):
    """Stands for kill -9 behind a step's record."""


@pytest.fixture(autouse=True)
def threads():
    """The trainer sets the threads of its process, which here is that of all tests."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    make = trainer.make_environment
    monkeypatch.setattr(trainer, "make_environment", lambda *args, **settings: Shelves(make(*args, **settings)))


@pytest.fixture
def run(cache, tmp_path, monkeypatch):
    """Train to the end, or till a step is recorded; returns the run folder and the scorer."""

    def run(name, *, killed_after=None, stopped_after=None, scorer=None):
        scorer = scorer or Sociable()
        monkeypatch.setattr(trainer, "open_scorer", lambda *_, **__: PairCache(scorer))
        machine = [f"machine.runs_dir={tmp_path / name}", f"machine.cache_dir={cache}"]
        folder = store.ensure(compose_run([*OVERRIDES, *SHORT, *machine]))

        def should_stop():
            step = logged(folder)[-1]["step"] if folder.metrics.exists() else None  # None: still warming up
            if step is not None and step == killed_after:
                raise Killed
            return step is not None and step == stopped_after

        train(folder.read_config(), folder, should_stop)
        return folder, scorer

    return run


def logged(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


def records(folder):
    samples = {path.name: path.read_bytes() for path in folder.diagnostics.glob("groups_*")}
    return folder.metrics.read_bytes(), samples


@pytest.fixture
def undisturbed(run):
    return run("undisturbed")


def test_one(undisturbed, run):
    folder, scorer = undisturbed
    print([(l["step"], l.get("credit/active_groups"), l.get("scpo/pairs_scored"), l.get("credit/aux_mean")) for l in logged(folder)], len(scorer.calls))
    with pytest.raises(Killed):
        run("k", killed_after=3)
    again, _ = run("k")
    print([(l["step"], l.get("credit/active_groups"), l.get("scpo/pairs_scored"), l.get("credit/aux_mean")) for l in logged(again)])
    a, b = logged(folder), logged(again)
    for x, y in zip(a, b):
        print(x["step"], {k: (x[k], y[k]) for k in x if x[k] != y.get(k)})
    assert records(again) == records(folder)
