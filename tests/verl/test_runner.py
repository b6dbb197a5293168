import signal
from types import SimpleNamespace

import pytest

ray = pytest.importorskip("ray", reason="needs verl: make test-verl")


def test_the_stop_signals_that_ray_takes_are_given_back_before_training_starts(monkeypatch):
    from scpo.trainers.verl import runner

    monkeypatch.setattr(runner.ray, "remote", lambda cls: SimpleNamespace(remote=lambda: cls))
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, ours := lambda *_: None)
        keeper = runner.KeepsStopSignals()
        signal.signal(signal.SIGTERM, lambda *_: None)  # what ray.init does
        assert keeper.remote() is runner.ScpoTaskRunner
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
