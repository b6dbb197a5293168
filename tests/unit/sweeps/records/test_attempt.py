import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint

import pytest

from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, GameError, RecordError, RecordWriteError
from scpo.records import JsonLines, State, StopRequest, code_files, code_record, provenance, run_config
from scpo.records.files import locked, read_json
from scpo.records.tracker import Tracker
from scpo.shaping.matcher import MATCHERS
from scpo.stop_signals import STOP_SIGNALS
from sweeps.launchers.run_process import RunProcess
from sweeps.launchers.slurm.observer import Observer
from sweeps.records import attempt as entry
from sweeps.status import statuses
from tests.faults import fake_train
from tests.support import fake_runs as fake
from tests.support.small_disks import half_a_checkpoint


@pytest.fixture
def folder(tmp_path):
    return fake.make_run(tmp_path)


def test_a_run_is_done_and_left_alone_afterwards(folder):
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    status = folder.read_status()
    assert (status.state, status.attempt, status.step, status.steps, status.pid) == (State.DONE, 1, 4, 4, None)
    before = folder.metrics.read_bytes()
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert (fake.starts(folder), folder.metrics.read_bytes()) == (1, before)


def test_the_end_of_a_run_names_the_command_that_reports_its_own_folder(folder, caplog, monkeypatch):
    caplog.set_level("INFO")
    entry.run(folder, fake_train.train)
    elsewhere = f"curves and credit: python -m analysis report --runs-dir {folder.path.parent}"
    assert caplog.messages[-1].endswith(elsewhere)
    (folder.path.parent / "work").mkdir()
    (folder.path.parent / "work" / "runs").symlink_to(folder.path.parent)
    monkeypatch.chdir(folder.path.parent / "work")
    entry._say_result(folder)
    assert caplog.messages[-1].endswith("curves and credit: make report")


def test_an_exception_is_a_one_line_reason_with_the_traceback_in_the_log(folder):
    def broken(_config, _folder, _stop):
        raise ValueError("no games\nat all")

    assert entry.run(folder, broken) == entry.EXIT_FAILED
    status = folder.read_status()
    assert (status.state, status.reason) == (State.FAILED, "ValueError: no games")
    assert "Traceback" in folder.attempt_log(1).read_text()
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert folder.read_status().attempt == 2
    assert folder.latest.resolve() == folder.attempt(2).resolve()


def test_secrets_in_an_error_are_in_no_record_and_no_notice(folder, monkeypatch, tmp_path):
    said = tmp_path / "said"
    script = tmp_path / "notice.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s" "$1" >"{said}"\n')
    script.chmod(0o755)
    monkeypatch.setenv("SCPO_NOTIFY", str(script))
    monkeypatch.setenv("LAB_DB_URL", "postgres://me:planted-Secret-0001@db.example/x")
    monkeypatch.setenv("LAB_TOKEN", "planted-Secret-0002")
    # A library that reads this address takes the port to end at the #.
    monkeypatch.setenv("HTTPS_PROXY", "http://me:planted-Secret-0003#1@proxy:3128")

    def broken(_config, _folder, _stop):
        secrets = [os.environ[name] for name in ("LAB_DB_URL", "LAB_TOKEN")]
        raise ConnectionError(f"no answer from {secrets}; Invalid port: 'planted-Secret-0003'")

    assert entry.run(folder, broken) == entry.EXIT_FAILED
    assert folder.read_status().reason.endswith("; Invalid port: '[redacted]'")
    assert "no answer from" in said.read_text()
    for path in (said, *(path for path in folder.path.rglob("*") if path.is_file())):
        found = [number for number in (1, 2, 3) if b"planted-Secret-000%d" % number in path.read_bytes()]
        assert not found, path


def test_the_reason_of_a_run_names_the_full_disk_that_an_error_of_a_library_hides(folder):
    def broken(_config, _folder, _stop):
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/cache")
        except OSError as error:
            raise RuntimeError("the cache cannot be made") from error

    assert entry.run(folder, broken) == entry.EXIT_FAILED
    assert folder.read_status().reason == "RuntimeError: the cache cannot be made: No space left on device"


def test_an_exception_in_an_estimator_an_identity_or_a_matcher_names_it_and_the_line(folder, tmp_path, monkeypatch):
    """Of another package: here files without one."""

    def function_of(name, line):
        path = tmp_path / f"{name}.py"
        path.write_text(f"def {name}(*_):\n    {line}\n")
        space = {}
        exec(compile(path.read_text(), path, "exec"), space)  # noqa: S102
        return space[name], path

    method = run_config.read_config(folder).method
    (identity, *_) = method.identities.values()
    estimator = ESTIMATORS[method.estimator.name]
    broken, path = function_of("mine", "return {}['lr']")
    with monkeypatch.context() as patched:
        patched.setitem(ESTIMATORS, estimator.name, dataclasses.replace(estimator, function=broken))
        assert entry.run(folder, lambda *_: broken()) == entry.EXIT_FAILED
    told = f"(in estimator {estimator.name!r}: {path}, line 2)"
    assert folder.read_status().reason == f"KeyError: 'lr' {told}"

    walk, path = function_of("walk", "import numpy; numpy.zeros(2).reshape(3)")
    with monkeypatch.context() as patched:
        patched.setitem(MATCHERS, method.shaper.matcher, walk)
        assert entry.run(folder, lambda *_: walk()) == entry.EXIT_FAILED
    assert folder.read_status().reason.endswith(f"(in matcher {method.shaper.matcher!r}: {path}, line 2)")

    def reads_no_visit(*_):
        return identity.function(None, None)

    assert entry.run(folder, reads_no_visit) == entry.EXIT_FAILED
    assert f"(in identity {identity.name!r}: {identity.function.__code__.co_filename}" in folder.read_status().reason


def test_a_mistake_of_the_user_is_told_without_a_traceback(folder):
    def without_games(_config, _folder, _stop):
        raise GameError("no games\nrun alfworld-download")

    assert entry.run(folder, without_games) == entry.EXIT_FAILED
    assert folder.read_status().reason == "GameError: no games"
    log = folder.attempt_log(1).read_text()
    assert "no games\nrun alfworld-download" in log
    assert "Traceback" not in log


def test_a_trainer_that_returns_early_has_failed(folder):
    assert entry.run(folder, lambda *_: None) == entry.EXIT_FAILED
    assert "returned at step 0 of 4 without being asked" in folder.read_status().reason


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_stops_at_the_next_step_boundary(folder, number):
    def interrupted(config, folder, should_stop):
        with Tracker(folder, config) as tracker:
            tracker.log(0, {}, {})
            assert not should_stop()
            os.kill(os.getpid(), number)
            tracker.log(1, {}, {})
            assert should_stop()

    found = signal.signal(number, signal.default_int_handler)  # under nohup the tests ignore SIGHUP, and so would a run
    try:
        assert entry.run(folder, interrupted) == entry.EXIT_INTERRUPTED
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, found)
    status = folder.read_status()
    assert (status.state, status.reason, status.step) == (State.INTERRUPTED, "asked to stop after step 1", 1)


def test_half_written_checkpoints_go_even_if_the_run_is_refused_and_copies_stay(folder, caplog):
    half_a_checkpoint(folder.checkpoints, 3, 100)
    for step, name in {1: "step_00001", 2: "step_00002", 4: "step_00004.bak"}.items():
        (folder.checkpoints / name).mkdir()
        (folder.checkpoints / name / "weights").touch()
        if step == 1:
            folder.mark_complete(1, {}, {})
    entry.run(folder, fake_train.train)  # is refused: there is no telling which code it began under
    assert [path.name for path in sorted(folder.checkpoints.iterdir())] == ["step_00001", "step_00004.bak"]
    assert [record.message.partition(" was ")[0].rpartition("/")[2] for record in caplog.records][:2] == [
        ".step_00003.tmp",
        "step_00002",
    ]


def test_a_signal_inside_a_destructor_stops_the_run_too(folder, capfd):
    """Python prints what a ``__del__`` raises and goes on."""

    class Freed:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)  # the handler runs here

    def preparing(_config, _folder, _stop):
        Freed()
        time.sleep(20)

    before = time.monotonic()
    assert entry.run(folder, preparing) == entry.EXIT_INTERRUPTED
    assert time.monotonic() - before < 10
    assert folder.read_status().state is State.INTERRUPTED
    assert "Traceback" not in capfd.readouterr().err


def test_a_second_signal_stops_at_once(folder):
    def stubborn(_config, _folder, _stop):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("not reached")

    assert entry.run(folder, stubborn) == entry.EXIT_INTERRUPTED
    assert folder.read_status().reason == "stopped before the first step; the same command starts it again"
    folder.metrics.write_text('{"step": 0}\n')
    entry.run(folder, stubborn)
    assert folder.read_status().reason == "stopped before this attempt had done a step"

    def stubborn_later(config, folder, stop):
        with folder.metrics.open("a") as file:
            file.write('{"step": 1}\n')
        stubborn(config, folder, stop)

    entry.run(folder, stubborn_later)
    assert folder.read_status().reason == "stopped in the middle of a step"


def test_a_resumed_run_that_only_cut_its_log_has_not_done_a_step(tmp_path):
    folder = fake.make_run(tmp_path, "machine.resume_across_versions=true")
    folder.checkpoint(1).mkdir(parents=True)
    folder.mark_complete(1, {}, {})
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n')

    def cut_and_stopped(_config, folder, _stop):
        folder.metrics.write_text('{"step": 1}\n')
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("not reached")

    assert entry.run(folder, cut_and_stopped) == entry.EXIT_INTERRUPTED
    assert folder.read_status().reason == "stopped before this attempt had done a step"


@pytest.mark.parametrize("state", [State.CANCELLED, State.PRUNED])
def test_a_run_that_is_told_to_stop_ends_at_its_next_step_as_it_was_told(folder, state):
    def told(config, folder, should_stop):
        with Tracker(folder, config) as tracker:
            tracker.log(0, {}, {})
            assert not should_stop()
            folder.request_stop(StopRequest(state=state, reason="no good"))
            assert should_stop()

    assert entry.run(folder, told) == entry.EXIT_INTERRUPTED
    assert (folder.read_status().state, folder.read_status().reason) == (state, "no good")
    entry.run(folder, fake_train.train)
    assert (folder.read_status().state, fake.starts(folder)) == (state, 0)


def test_a_run_that_is_told_to_stop_while_it_waits_never_starts(folder):
    folder.request_stop(StopRequest(state=State.CANCELLED, reason="changed my mind"))
    assert entry.run(folder, fake_train.train) == entry.EXIT_INTERRUPTED
    assert (folder.read_status().reason, fake.starts(folder)) == ("changed my mind", 0)


def test_a_request_to_interrupt_holds_for_one_attempt(folder):
    folder.request_stop(StopRequest(state=State.INTERRUPTED, reason="preempted"))
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE


def test_failures_are_counted_over_attempts(folder):
    for _ in range(2):
        entry.run(folder, lambda *_: None)
    assert folder.read_status().failures == 2


def test_signals_that_come_when_training_is_over_do_not_keep_its_end_from_being_written(folder, monkeypatch):
    def interrupted(config, folder, should_stop):
        with Tracker(folder, config) as tracker:
            tracker.log(1, {}, {})
            os.kill(os.getpid(), signal.SIGTERM)

    update = folder.update_status

    def signalled(**changes):
        if "failures" in changes:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(**changes)

    monkeypatch.setattr(folder, "update_status", signalled)
    assert entry.run(folder, interrupted) == entry.EXIT_INTERRUPTED
    assert folder.read_status().state is State.INTERRUPTED


def test_a_signal_in_the_last_step_changes_nothing(folder):
    def late(config, folder, stop):
        fake_train.train(config, folder, stop)
        os.kill(os.getpid(), signal.SIGTERM)

    assert entry.run(folder, late) == entry.EXIT_DONE


def test_what_another_process_runs_is_not_touched_and_the_process_is_named(folder, caplog):
    folder.update_status(state=State.RUNNING, pid=4321, host="node7")
    with locked(folder.lock):
        before = folder.status.read_bytes()
        assert entry.run(folder, fake_train.train) == entry.EXIT_BUSY
        assert "is being run by process 4321 on node7; to look at it: python -m sweeps status" in caplog.text
    assert folder.status.read_bytes() == before
    assert not fake.starts(folder)


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A checkout of a few files, without git; returns how to write one of them."""
    root = tmp_path / "checkout"

    def write(name, text):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    for name in ("sweeps/a.py", "train.py", "README.md", "slurm/site.yaml", "conf/rloo.yaml"):
        write(name, "old")
    write("scpo/trainers/__init__.py", "from scpo.loss import loss")
    write("scpo/loss.py", "loss = 1")
    write("scpo/advantages/registry.py", "from scpo.advantages.rloo import RLOO\n\nOURS = (\n    RLOO,\n)\n")
    for module in (provenance, code_files, code_record):
        monkeypatch.setattr(module, "REPOSITORY", root)
    return write


def stopped_at_step_2(folder):
    def until_2(config, folder, stop):
        fake_train.train(config, folder, lambda: JsonLines(folder.metrics).last()["step"] == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    assert entry.run(folder, until_2) == entry.EXIT_INTERRUPTED


@pytest.mark.parametrize("name", ["README.md", "slurm/site.yaml", "conf/rloo.yaml", "sweeps/a.py", "scpo/mine.py"])
def test_what_the_run_does_not_use_may_change_before_a_resume(folder, code, monkeypatch, name):
    stopped_at_step_2(folder)
    code(name, "new")
    monkeypatch.setattr(provenance, "git_commit", lambda: "another")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert folder.read_status().commit == "another"


def test_a_resume_by_other_code_is_refused_with_its_files_unless_allowed(folder, code, tmp_path):
    stopped_at_step_2(folder)
    code("scpo/loss.py", "from scpo.more import loss")
    code("scpo/more.py", "loss = 2")
    for _ in range(2):
        assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
        reason = folder.read_status().reason
        assert reason.count("stopped at step 2 under other code") == 1
        assert "Changed since: scpo/loss.py, scpo/more.py. Restore them" in reason
    fake.make_run(tmp_path, "machine.resume_across_versions=true")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    told = "resumed at step 2 by other code: scpo/loss.py, scpo/more.py"
    assert code_record.resumes_by_other_code(folder) == [told]
    (row,) = statuses([folder], Observer(None))
    assert told in row.remark


def test_of_two_refused_resumes_of_a_killed_run_the_last_is_shown(folder, code):
    """A killed run has no reason of its own: the second refusal was added to the first."""
    stopped_at_step_2(folder)
    folder.update_status(state=State.RUNNING, reason=None)
    for name in ("loss", "trainers/__init__"):
        code(f"scpo/{name}.py", "loss = 2")
        assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
        reason = folder.read_status().reason
        assert reason.startswith(f"not resumed: ConfigError: {folder.run_id} stopped at step 2 under other code.")
        assert reason.count("not resumed") == reason.count("stopped at step 2") == 1
        assert f"scpo/{name}.py" in reason


def test_the_record_of_the_code_has_the_versions_that_wrote_steps_and_no_other(folder, code, tmp_path):
    def fails(config, folder, stop):
        raise ValueError("before its first checkpoint")

    stopped_at_step_2(folder)
    code("README.md", "new")
    code("sweeps/a.py", "new")  # which the run does not use
    assert entry.run(folder, fails) == entry.EXIT_FAILED
    assert code_record.read_code(folder).earlier == ()
    fake.make_run(tmp_path, "machine.resume_across_versions=true")
    code("scpo/loss.py", "loss = 2")
    assert entry.run(folder, fails) == entry.EXIT_FAILED
    assert [version.after_step for version in code_record.read_code(folder).versions] == [0, 2]
    code("scpo/loss.py", "loss = 1")
    assert entry.run(folder, fails) == entry.EXIT_FAILED
    assert [version.after_step for version in code_record.read_code(folder).versions] == [0]
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert code_record.resumes_by_other_code(folder) == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("", "", "(the run stopped under commit abc; now it is commit abc), or"),
        ("", "edit", "(the run stopped under commit abc; now it is commit abc with uncommitted changes), or"),
        ("edit", "", "commit abc with uncommitted changes, {diff}; now it is commit abc), or"),
    ],
)
def test_a_refused_resume_says_where_changes_are_in_no_commit(folder, code, monkeypatch, *, before, now, told):
    monkeypatch.setattr(provenance, "git_commit", lambda: "abc")
    for module in (provenance, code_record):
        monkeypatch.setattr(module, "code_state", lambda *_: {"commit": "abc", "uncommitted": before})
    stopped_at_step_2(folder)
    code("scpo/loss.py", "loss = 2")
    for module in (provenance, code_record):
        monkeypatch.setattr(module, "code_state", lambda *_: {"commit": "abc", "uncommitted": now})
    assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
    assert told.format(diff=folder.attempt(1) / "uncommitted.diff") in folder.read_status().reason


def test_a_resume_under_an_edited_package_s_estimator_is_refused_with_its_file(folder, code, tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("MINE = 1")
    name = run_config.read_config(folder).method.estimator.name
    point = EntryPoint(name, "mine:MINE", "scpo.estimators")
    monkeypatch.setattr(code_files, "PACKAGES", {(point.group, name): point})
    for module in (code_files, code_record):
        monkeypatch.setattr(module, "installed_files", lambda: {"mine.py": file})
    stopped_at_step_2(folder)
    file.write_text("MINE = 2")
    assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
    reason = folder.read_status().reason
    assert "Changed since: mine.py. Restore it" in reason
    assert "; mine.py: of an installed package, which neither records), or" in reason
    file.write_text("MINE = 1")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE


def test_a_refused_resume_keeps_the_reason_why_the_run_failed(folder, code):
    def broken(config, folder, should_stop):
        fake_train.train(config, folder, lambda: bool(folder.complete_checkpoints()))
        raise ValueError("loss is nan")

    assert entry.run(folder, broken) == entry.EXIT_FAILED
    code("scpo/loss.py", "loss = 2")
    for _ in range(2):
        assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
        reason = folder.read_status().reason
        assert reason.startswith("ValueError: loss is nan; then not resumed: ConfigError: ")
        assert reason.count("not resumed") == 1
        assert folder.read_status().failures == 1  # a refusal does not count
    code("scpo/loss.py", "loss = 1")


def test_a_launcher_leaves_the_record_of_a_refused_resume_as_it_is(folder, code):
    stopped_at_step_2(folder)
    code("scpo/loss.py", "loss = 2")
    number = folder.new_attempt()
    assert entry.run(folder, fake_train.train, number) == entry.EXIT_FAILED
    refused = folder.read_status()
    process = RunProcess(folder, number, None)
    assert process.outcome(entry.EXIT_FAILED, interrupted=False).reason == refused.reason
    assert folder.read_status() == refused
    assert refused.failures == 0
    code("scpo/loss.py", "loss = 1")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE


def test_a_finished_run_of_other_code_says_so_and_how_to_run_it_again(folder, code, caplog):
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    code("scpo/advantages/mine.py", "MINE = 1")  # which it does not use
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert "what gave its numbers" not in caplog.text
    code("scpo/loss.py", "loss = 2")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert "what gave its numbers has changed since: scpo/loss.py. To run it again" in caplog.text
    assert f"rm --finished {folder.run_id}" in caplog.text


def test_a_new_baseline_keeps_no_run_from_being_resumed(folder, code):
    stopped_at_step_2(folder)
    code("scpo/advantages/mine.py", "MINE = 1")
    code(
        "scpo/advantages/registry.py",
        "from scpo.advantages.mine import MINE\nfrom scpo.advantages.rloo import RLOO\n\nOURS = (RLOO, MINE)\n",
    )
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE


def test_of_an_older_run_the_commits_are_compared(folder, code, monkeypatch):
    stopped_at_step_2(folder)
    folder.code.unlink()
    folder.update_status(commit="old")
    monkeypatch.setattr(provenance, "git_commit", lambda: "new")
    assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
    assert "Changed since: commit old, now new" in folder.read_status().reason


@pytest.mark.usefixtures("code")
def test_a_run_that_goes_on_without_the_record_of_its_code_says_so(folder, caplog):
    stopped_at_step_2(folder)
    folder.code.unlink()
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    answer = (
        f"{folder.code} is lost: only the commits could be compared, not the files of the code that wrote the steps up "
        "to 2"
    )
    assert [line for line in caplog.messages if "could be compared" in line] == [answer]


def test_the_code_has_the_same_hash_with_git_and_without(tmp_path, monkeypatch):
    with_git = code_files.code_files()
    assert {"train.py", "scpo/steps.py", "sweeps/records/attempt.py"} <= with_git.keys()
    for part in code_files.CODE_PARTS:
        source = code_files.REPOSITORY / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / part)
    monkeypatch.setattr(code_files, "REPOSITORY", tmp_path)
    assert code_files.code_files() == with_git


def test_a_run_without_a_checkpoint_starts_again_under_any_commit(folder, monkeypatch):
    monkeypatch.setattr(provenance, "git_commit", lambda: "new")
    folder.update_status(state=State.FAILED, commit="old")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE


def test_a_run_folder_of_another_configuration_is_refused(folder):
    run_config.write_config(folder, run_config.read_config(folder).model_copy(update={"seed": 3}))
    with pytest.raises(RecordError, match="seed is 3"):
        entry.run(folder, fake_train.train)


def test_provenance_tells_code_packages_and_machine_but_no_secrets(folder, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted-secret")
    monkeypatch.setattr(sys, "argv", ["train.py", "planted-secret"])
    entry.run(folder, fake_train.train)
    recorded = read_json(folder.provenance)["attempts"]["1"]
    assert {"commit", "dirty", "host", "cpu", "gpus", "python", "seed", "packages"} <= recorded.keys()
    assert recorded["packages"]["pydantic"]
    for path in folder.path.rglob("*"):
        assert path.is_dir() or path.name == "uncommitted.diff" or b"planted-secret" not in path.read_bytes()


def test_threads_are_set_before_training(folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    entry.run(folder, lambda *_: None)
    assert os.environ["OMP_NUM_THREADS"] == "1"


def left(program):
    """A process that ends by ``leave``."""
    words = f"import atexit, sys, threading, time\nfrom sweeps.records.attempt import leave\n{program}"
    return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False, timeout=60)


def test_a_process_exits_without_freeing_its_memory_but_runs_the_other_exit_handlers():
    freed = "class Object:\n    def __del__(self): print('freed')\nheld = Object()\n"
    ended = left(f"{freed}atexit.register(print, 'finished')\nprint('said', end='')\nleave(3)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "saidfinished\n", "")


def test_stop_signals_do_not_interrupt_exit_handlers():
    signals = "import os, signal\natexit.register(print, 'finished')\n"
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signals += f"atexit.register(os.kill, os.getpid(), signal.{name})\n"
    ended = left(f"{signals}leave(0)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "finished\n", "")


def test_a_process_waits_for_its_threads_before_it_leaves():
    late = "threading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()"
    assert left(f"{late}\nleave(0)").stdout == "late\n"


def test_output_that_cannot_be_written_is_not_taken_for_written():
    unread = "import os\nread, write = os.pipe()\nos.close(read)\nsys.stdout = open(write, 'w')\n"
    ended = left(f"{unread}print('said')\nleave(0)")
    assert ended.returncode != 0
    assert "Broken pipe" in ended.stderr


def test_a_failure_is_noticed_and_a_finished_run_is_not(folder, monkeypatch):
    told = []
    monkeypatch.setattr("sweeps.notify.notify", told.append)

    def fails(config, folder, stop):
        raise ConfigError("no games")

    entry.run(folder, fails)
    assert len(told) == 1
    assert f"{folder.run_id} FAILED" in told[0]
    assert "no games" in told[0]
    entry.run(folder, fake_train.train)
    assert len(told) == 1


def test_a_failure_that_a_full_disk_keeps_out_of_the_records_is_noticed(folder, monkeypatch):
    told = []
    monkeypatch.setattr("sweeps.notify.notify", told.append)

    def full(folder, status):
        raise RecordWriteError(28, "cannot write status.json")

    def fails(config, folder, stop):
        monkeypatch.setattr(type(folder), "write_status", full)
        raise ConfigError("no games")

    entry.run(folder, fails)
    (text,) = told
    assert "no games" in text
    assert "not recorded: " in text
    assert "cannot write status.json" in text


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_a_new_attempt_begins_at_its_checkpoint_not_at_the_step_of_the_killed_one(folder, checkpoint):
    seen = []

    def killed(config, folder, should_stop):
        with Tracker(folder, config) as tracker:
            for step in range(4):
                tracker.log(step, {"train/success_rate": step / 4}, {"timing_s/step": 60.0})
        raise KeyboardInterrupt

    def again(config, folder, should_stop):
        seen.extend(statuses([folder], Observer(None)))

    entry.run(folder, killed)
    if checkpoint:
        folder.checkpoint(checkpoint).mkdir(parents=True)
        folder.mark_complete(checkpoint, {}, {})
    entry.run(folder, again)
    (row,) = seen
    assert (row.step, row.train) == ((2, 0.5) if checkpoint else (0, 0.0))
    assert row.left_s == (120.0 if checkpoint else None)
