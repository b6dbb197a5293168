import pytest

from scpo.records import State, StopRequest, run_config
from sweeps.launchers.run_process import RunProcess, tail
from tests.support import fake_runs as fake


def run(tmp_path, text, interrupted=False, before=lambda folder: None):
    path = tmp_path / "script.py"
    path.write_text(text)
    folder = fake.make_run(tmp_path / "runs")
    before(folder)
    one = RunProcess.start(folder, run_config.read_config(folder), path, {})
    return folder, one.outcome(one.process.wait(timeout=30), interrupted)


def test_a_silent_death_is_a_failure_that_counts(tmp_path):
    folder, outcome = run(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert (outcome.state, outcome.reason) == (State.FAILED, "killed by SIGKILL")
    assert (folder.read_status().failures, folder.read_status().attempt) == (1, 1)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_killed_run_is_noticed_and_one_that_the_launcher_stopped_is_not(tmp_path, monkeypatch, interrupted):
    told = []
    monkeypatch.setattr("sweeps.notify.notify", told.append)
    folder, _ = run(tmp_path, "import os; os.kill(os.getpid(), 9)", interrupted)
    if interrupted:
        assert not told
    else:
        (text,) = told
        assert text.startswith(f"scpo: {folder.run_id} FAILED on ")
        assert text.endswith(": killed by SIGKILL")


def test_a_death_that_the_launcher_caused_is_an_interruption(tmp_path):
    folder, outcome = run(tmp_path, "import os; os.kill(os.getpid(), 9)", interrupted=True)
    assert (outcome.state, folder.read_status().failures) == (State.INTERRUPTED, 0)


def test_a_run_that_was_stopped_while_it_loaded_was_not_killed(tmp_path):
    """Ctrl-C is passed on as SIGTERM, which the user did not send."""
    folder, outcome = run(tmp_path, "import os; os.kill(os.getpid(), 15)", interrupted=True)
    assert (outcome.state, outcome.reason) == (
        State.INTERRUPTED, "stopped while it was loading; the same command goes on",
    )  # fmt: skip
    assert folder.read_status().reason == outcome.reason


def test_a_run_that_was_told_to_stop_and_died_of_it_ended_as_it_was_told(tmp_path):
    request = StopRequest(state=State.PRUNED, reason="worse than the median")
    _, outcome = run(tmp_path, "raise SystemExit(1)", before=lambda folder: folder.request_stop(request))
    assert (outcome.state, outcome.reason) == (State.PRUNED, "worse than the median")


@pytest.mark.parametrize(("text", "lines"), [("a\nb\nc", ["b", "c"]), ("", []), (None, [])])
def test_tail_is_the_end_of_a_log_or_nothing(tmp_path, text, lines):
    if text is not None:
        (tmp_path / "log").write_text(text)
    assert tail(tmp_path / "log", 2) == lines


def test_what_a_run_is_doing_is_the_last_message_of_its_log(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import logging, warnings\n"
        "from sweeps.records.process import LOG_FORMAT\n"
        "logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)\n"
        "logging.info('warm start: 600 updates')\n"
        "logging.warning('something is odd')\n"
        "print('Downloading: 100%')\n"
    )
    folder = fake.make_run(tmp_path / "runs")
    one = RunProcess.start(folder, run_config.read_config(folder), path, {})
    one.process.wait(timeout=30)
    assert one.doing() == "warm start: 600 updates"


def test_a_run_that_has_said_nothing_is_doing_nothing_known(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("")
    folder = fake.make_run(tmp_path / "runs")
    one = RunProcess.start(folder, run_config.read_config(folder), path, {})
    one.process.wait(timeout=30)
    assert one.doing() == ""


def test_of_a_long_log_only_the_end_is_read(tmp_path):
    (tmp_path / "log").write_text("first\n" + "x" * 100_000 + "\nlast but one\nlast")
    assert tail(tmp_path / "log", 2) == ["last but one", "last"]
    assert "first" not in tail(tmp_path / "log", 100)
