"""Settings that all tests share."""

import gc
import os
import signal
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch loads: spinning threads fight over a busy machine

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: a core each, for what a test starts too
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what it runs in the background with SIGINT ignored, and every child inherits that: no Ctrl-C of a test
# would arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

from tests.support.skips import skip_summary

# A busy machine is no failure, and a commit's tests do the same thing twice.
settings.register_profile("scpo", deadline=None, derandomize=True)
settings.load_profile("scpo")

gc.set_threshold(100_000, 50, 50)  # or a tenth of the time goes by in looking through torch and thousands of tests

COMPOSING = tuple(str(Path(__file__).parent / folder) for folder in ("configs", "unit/sweeps", "unit/analysis"))
"""Tests that compose the configurations of whole experiments, many of them the same."""


def pytest_collection_modifyitems(items):
    """What is composed is kept by the process that did it, so these tests stand together: most of them share one."""
    items.sort(key=lambda item: not str(item.path).startswith(COMPOSING))


def pytest_collection_finish():
    """Imports and collected tests stay to the end: the garbage collector need not go through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """What is written is there for whoever reads it next; what a power cut would leave, no test here can see."""
    with patch.object(os, "fsync", lambda _: None):
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache, and so one start of each kind and one translation of a game, for all small runs of all processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the workers' folders lie in one
        folder = folder.parent
    (cache := folder / "cache").mkdir(exist_ok=True)
    return cache


@pytest.fixture
def threads():
    """The trainer sets the threads of its process, which for a test that trains in its own is that of all tests."""
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """The last line counts what was skipped by reason; with pytest-xdist only its controller has a terminal."""
    outcome = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(skip_summary(report.longrepr[2] for report in reporter.stats.get("skipped", [])))
    return outcome
