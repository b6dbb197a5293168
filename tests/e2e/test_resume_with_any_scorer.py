"""A resumed run ends with the same bytes whatever its scorer does: here its answers depend on what else it is asked."""

import dataclasses
import zlib
from collections import Counter

import numpy as np
import pytest

from scpo.errors import ScorerError
from scpo.records import run_config
from scpo.scoring import PairCache
from scpo.trainers import train
from scpo.trainers.local import trainer
from sweeps.compose.configuration import compose_run
from tests.e2e.local_run import OVERRIDES
from tests.support.step_batches import CompanyScorer
from tests.support.training_in_process import Killed, logged

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

pytestmark = pytest.mark.usefixtures("threads")

SHORT = ["trainer.steps=4", "trainer.validation.every=1000", "trainer.probe_every=3", "trainer.sample_every=2",
         "env.validation_panels.valid_seen.games=1", "env.validation_panels.valid_unseen.games=1"]  # fmt: skip


class Sociable(CompanyScorer):
    """Texts are the more similar the nearer their lengths are.

    ``fails_at``: the call, counted from 1, that is not answered.
    """

    name = "sociable"

    def __init__(self, fails_at=None):
        super().__init__()
        self.fails_at = fails_at

    def alone(self, pairs):
        if len(self.asked) == self.fails_at:
            raise ScorerError("it gave out")
        return np.array([0.5 + 0.4 * min(len(a), len(b)) / max(len(a), len(b)) for a, b in pairs], dtype=np.float32)


class Shelves:
    """Wraps an environment: any answer of the policy leads to one of 30 shelves, and every second sibling wins."""

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


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    environment_of = trainer._environment_of
    monkeypatch.setattr(trainer, "_environment_of", lambda config: Shelves(environment_of(config)))


@pytest.fixture
def folder_of(cache, tmp_path):
    """The run folder of a name; all have the same configuration but for where they are."""

    def folder_of(name):
        machine = [f"machine.runs_dir={tmp_path / name}", f"machine.cache_dir={cache}"]
        return run_config.ensure(compose_run([*OVERRIDES, *SHORT, *machine]))

    return folder_of


@pytest.fixture
def run(folder_of, monkeypatch):
    """Train to the end, or till a step is recorded."""

    def run(name, scorer=None, *, killed_after=None, stopped_after=None):
        monkeypatch.setattr(trainer, "open_scorer", lambda *_, **__: PairCache(scorer or Sociable()))
        folder = folder_of(name)

        def should_stop():
            recorded = len(logged(folder)) - 1 if folder.metrics.exists() else None  # None: still warming up
            if recorded is not None and recorded == killed_after:
                raise Killed
            return recorded is not None and recorded == stopped_after

        train(run_config.read_config(folder), folder, should_stop)
        return folder

    return run


def records(folder):
    """The metrics and the sampled groups, whose matrices the scorer is asked for after the step's credit."""
    return folder.metrics.read_bytes(), {path.name: path.read_bytes() for path in folder.diagnostics.glob("groups_*")}


def test_a_resumed_run_ends_with_the_same_bytes_whatever_company_does_to_scores(run, folder_of):
    scorer = Sociable()
    undisturbed = run("undisturbed", scorer)
    asked = Counter(pair for pairs in scorer.asked for pair in pairs)
    assert sum(count > 1 for count in asked.values()) > 50  # in several steps, in other company each time
    assert all(line["credit/aux_mean"] > 0 for line in logged(undisturbed)[1:])

    with pytest.raises(Killed):
        run("killed", killed_after=3)  # its last checkpoint is of step 2
    assert records(run("killed")) == records(undisturbed)

    run("stopped", stopped_after=3)  # a checkpoint where the undisturbed run has none
    assert records(run("stopped")) == records(undisturbed)

    with pytest.raises(ScorerError, match="it gave out"):
        run("failed", Sociable(fails_at=len(scorer.asked) * 3 // 4))  # in the middle of a step
    assert 1 < len(logged(folder_of("failed"))) < len(logged(undisturbed))
    assert records(run("failed")) == records(undisturbed)
