import errno
import importlib.util
import os
import re
import sqlite3
from io import StringIO
from pathlib import Path

import pytest
import sqlalchemy
from optuna.trial import TrialState, create_trial
from rich.console import Console

from scpo.errors import ConfigError, RecordWriteError
from scpo.records import State, run_config
from sweeps import __main__ as cli
from sweeps.compose.overrides import read_request
from sweeps.records import cancellation
from sweeps.search import driver, storage
from sweeps.search import search_command as search
from sweeps.search.plan import first, make_plan, propose
from sweeps.search.space import distributions
from sweeps.search.study import Study
from tests.support.fake_runs import QUICK
from tests.support.searches import InstantLauncher

TRAIN = Path(__file__).parents[3] / "faults" / "fake_objective.py"


def call(*words):
    out = StringIO()
    code = search.command(Console(file=out, width=100), read_request(words), TRAIN)
    return code, out.getvalue()


def test_a_preview_shows_space_budget_and_first_settings_and_writes_nothing(tmp_path):
    code, text = call("+search=scpo", "dry_run=true", f"machine.runs_dir={tmp_path / 'runs'}")
    assert code == 0
    assert "16 settings x seeds 0, 1" in text
    assert "theta method.shaper.theta 0.3 to 0.9 in steps of 0.05 0.6" in " ".join(text.split())
    assert "trial 0: theta=0.6 soft_base=0.4 alpha=0.5" in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_space_that_is_smaller_than_the_budget_is_counted_whole(sampler):
    """Runs and hours were those of search.trials, of which most can never start."""
    theta, soft = "search.space.theta", "search.space.soft_base"
    small = [f"{theta}.low=0.5", f"{theta}.high=0.6", f"{theta}.step=0.1", f"{soft}.low=0.2", f"{soft}.high=0.4"]
    words = ["+search=scpo_theta_lambda", "scale=paper", f"search.sampler.name={sampler}", *small, f"{soft}.step=0.2"]
    text = " ".join(call(*words, "seeds=[0]", "dry_run=true")[1].split())
    assert ": 4 settings (all of the space; search.trials=" in text
    assert "about 208 GPU-hours, of which 208 still to start" in text


def test_a_preview_at_the_papers_scale_says_what_it_would_cost():
    assert "about 2,496 GPU-hours" in call("+search=scpo", "scale=paper", "dry_run=true")[1]


def test_settings_that_failed_too_often_are_no_longer_to_come(monkeypatch):
    """They counted as hours still to start although no retry was left."""

    def still_to_start(failures):
        def trials(plan):
            space = distributions(plan.search.space)
            return [create_trial(state=TrialState.FAIL, params=plan.default(), distributions=space)] * failures

        monkeypatch.setattr(search, "read_trials", trials)
        text = call("+search=scpo", "scale=paper", "dry_run=true")[1]
        return re.search(r"of which ([\d,]+) still to start", " ".join(text.split()))[1]

    # One retry, so the second failure ends one of the 24 settings.
    assert [still_to_start(failures) for failures in range(3)] == ["2,496", "2,496", "2,392"]


def test_a_missing_package_is_told_before_anything_runs(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else found(name))
    with pytest.raises(ConfigError, match=r"a search needs sklearn; pip install -c constraints.txt -e '\.\[search\]'"):
        call("+search=scpo", "dry_run=true")


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(driver.Driver, "step", full)
    with pytest.raises(RecordWriteError, match=r"cannot write the search's records in .*No space left"):
        call("+search=scpo", f"machine.runs_dir={tmp_path}")


WORDS_OF_SQLITE = ("+search=scpo_theta_lambda", *QUICK, "search.trials=3", "search.storage=sqlite")


def database(tmp_path):
    (path,) = (tmp_path / "searches").glob("*/study.db")
    return path


def test_an_sqlite_file_on_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    words = (*WORDS_OF_SQLITE, f"machine.runs_dir={tmp_path}")
    monkeypatch.setattr(search, "open_launcher", lambda *_: InstantLauncher())
    made = storage._sqlite

    def full(path):
        """Its file may not grow, which sqlite answers as it does a full disk."""
        opened = made(path)

        @sqlalchemy.event.listens_for(opened.engine, "connect")
        def limit(connection, _):
            connection.execute(f"PRAGMA max_page_count = {path.stat().st_size // 4096}")

        opened.engine.dispose()
        return opened

    call(*words)
    monkeypatch.setattr(storage, "_sqlite", full)
    with pytest.raises(RecordWriteError) as error:
        call(*words, "search.trials=16")
    assert str(error.value) == (
        f"[Errno 28] cannot write the search's records in {database(tmp_path).parent}: No space left on device. "
        "Make room or fix the permissions, then go on"
    )
    assert error.value.errno == errno.ENOSPC

    monkeypatch.setattr(storage, "_sqlite", made)
    assert call(*words)[0] == 0


def test_an_sqlite_file_that_is_locked_is_not_called_damaged(tmp_path, monkeypatch):
    words = (*WORDS_OF_SQLITE, f"machine.runs_dir={tmp_path}")
    monkeypatch.setattr(search, "open_launcher", lambda *_: InstantLauncher())
    assert call(*words)[0] == 0
    monkeypatch.setattr(storage, "SQLITE_TIMEOUT_S", 0.1)
    with sqlite3.connect(database(tmp_path), isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RecordWriteError, match=r"cannot write the search's records in .*database is locked\. Wait"):
            call(*words, "search.trials=4")
        other.execute("ROLLBACK")
    assert call(*words, "search.trials=4")[0] == 0


def test_an_sqlite_file_that_may_not_be_written_is_not_called_damaged(tmp_path, monkeypatch):
    words = (*WORDS_OF_SQLITE, f"machine.runs_dir={tmp_path}")
    monkeypatch.setattr(search, "open_launcher", lambda *_: InstantLauncher())
    assert call(*words)[0] == 0
    made = storage._sqlite

    def read_only(path):
        opened = made(path)
        sqlalchemy.event.listen(
            opened.engine, "connect", lambda connection, _: connection.execute("PRAGMA query_only=1")
        )
        opened.engine.dispose()
        return opened

    monkeypatch.setattr(storage, "_sqlite", read_only)
    with pytest.raises(RecordWriteError, match=r"readonly database\. Make room or fix the permissions, then go on"):
        call(*words, "search.trials=4")


def test_another_storage_than_the_studys_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(driver.Driver, "run", lambda _: True)
    call("+search=scpo", f"machine.runs_dir={tmp_path}")
    with pytest.raises(ConfigError, match=r"has its records in .*journal\.log. Go on with search\.storage=journal"):
        call("+search=scpo", f"machine.runs_dir={tmp_path}", "search.storage=sqlite")


def test_the_end_of_a_search_is_told_and_one_that_was_over_before_is_not(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(search, "notify", told.append)
    monkeypatch.setattr(search, "open_launcher", lambda *_: InstantLauncher())
    words = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", "search.trials=2")
    assert call(*words)[0] == 0
    (plan,) = search.search_folder.search_folders(tmp_path)
    assert told == [f"scpo: search {plan.name} ended: 2 COMPLETE"]
    call(*words)
    assert len(told) == 1


def test_a_resumed_search_counts_the_runs_that_are_left(tmp_path, monkeypatch):
    planned = []

    def stopped(configs, *_):
        planned.append(len(configs))
        launcher = InstantLauncher(free=1)
        monkeypatch.setattr(driver.Driver, "_make_trial", limited)
        return launcher

    made = []
    make_trial = driver.Driver._make_trial

    def limited(self):
        # Ctrl-C while the third trial is to begin.
        if len(made) == 2:
            self.launcher.signals = 1
            return False
        made.append(1)
        return make_trial(self)

    told = []
    monkeypatch.setattr(search, "notify", told.append)
    monkeypatch.setattr(search, "open_launcher", stopped)
    words = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", "search.trials=4")
    assert call(*words)[0] == 130
    assert "was stopped: " in told[0]
    call(*words)
    assert planned == [8, 4]


@pytest.mark.parametrize(
    ("others", "text"), [(1, "1 trial is another driver's."), (2, "2 trials are another driver's.")]
)
def test_trials_of_another_driver_are_counted(tmp_path, monkeypatch, others, text):
    monkeypatch.setattr(search, "_drive", lambda *_: True)
    monkeypatch.setattr(search.Study, "under_way", lambda _: [None] * others)
    code, said = call("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}")
    assert code == 3
    assert text in said


def test_a_dry_run_names_the_runs_that_another_search_has_pruned(tmp_path):
    words = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", "search.trials=2")
    plan = make_plan("scpo_theta_lambda", words[1:])
    assert "pruned" not in call(*words, "dry_run=true")[1]
    runs = plan.runs(first(plan, 1)[0])
    for config in runs.values():
        cancellation.cancel(run_config.ensure(config), State.PRUNED, "pruned with trial 3 of another")
    told = f"note: another search or a deleted one had pruned {', '.join(runs)}; this search lets them go on"
    assert told in " ".join(call(*words, "dry_run=true")[1].split())

    # Of a search that has begun: the runs of its trials under way, and of the next one.
    study = Study(plan)
    trial = study.next_trial()
    assert told in " ".join(call(*words, "dry_run=true")[1].split())
    study.begin_pruning(trial, dict.fromkeys(runs, 0))
    assert "had pruned" not in call(*words, "dry_run=true")[1]
    following = plan.runs(propose(plan, study.trials()).params)
    study.close()
    one = next(iter(following))
    cancellation.cancel(run_config.ensure(following[one]), State.PRUNED, "pruned with trial 3 of another")
    told = f"another search or a deleted one had pruned {one}; this search lets it go on"
    assert told in " ".join(call(*words, "dry_run=true")[1].split())


def test_a_dry_run_says_that_a_smaller_budget_leaves_nothing_to_run(tmp_path, monkeypatch):
    """It had the time of all runs of the budget only."""

    def said(*words):
        return " ".join(call("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", *words)[1].split())

    assert "nothing is left" not in said("dry_run=true")
    with monkeypatch.context() as instant:
        instant.setattr(search, "open_launcher", lambda *_: InstantLauncher())
        assert "3 COMPLETE" in said("search.trials=3")
    for budget in (2, 3):
        text = said(f"search.trials={budget}", "dry_run=true")
        why = f"3 settings have been tried, and search.trials is {budget}; a larger one goes on"
        assert f"so far: 3 COMPLETE nothing is left to run: {why}" in text
    assert "nothing is left" not in said("search.trials=4", "dry_run=true")

    # The runs of a trial under way are left.
    study = Study(make_plan("scpo_theta_lambda", [*QUICK, f"machine.runs_dir={tmp_path}", "search.trials=4"]))
    study.next_trial()
    study.close()
    assert "nothing is left" not in said("search.trials=2", "dry_run=true")


def test_a_dry_run_says_that_all_of_a_space_is_tried(tmp_path, monkeypatch):
    words = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", "search.trials=100")
    with monkeypatch.context() as instant:
        instant.setattr(search, "open_launcher", lambda *_: InstantLauncher())
        assert "16 COMPLETE" in call(*words)[1]
    said = " ".join(call(*words, "dry_run=true")[1].split())
    assert "nothing is left to run: 16 settings have been tried, which are all of the space" in said


def test_a_retried_run_of_a_pruned_trial_is_said_to_be_of_that_search(tmp_path, capsys):
    plan = make_plan("scpo_theta_lambda", [*QUICK, f"machine.runs_dir={tmp_path}", "search.trials=1"])
    study = Study(plan)
    search.search_folder.write_plan(plan)
    trial = study.next_trial()
    folders = [run_config.ensure(config) for config in plan.runs(trial.params).values()]
    for folder in folders:
        cancellation.cancel(folder, State.PRUNED, f"pruned with trial 0 of {plan.study_id}")
    study.prune(trial)
    study.close()
    assert cli.main(["retry", "*", "--runs-dir", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"its trial in search {plan.study_id} has ended and stays PRUNED") == len(folders)


def test_settings_without_a_value_are_counted_and_retry_brings_them_back(tmp_path, monkeypatch, capsys):
    words = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={tmp_path}", "search.trials=3", "search.retries=0")
    plan = make_plan("scpo_theta_lambda", words[1:])
    doomed = list(plan.runs(plan.default()))

    class Doomed(InstantLauncher):
        def _run(self, folder, config):
            super()._run(folder, config)
            if folder.read_status().state is State.FAILED:
                folder.update_status(state=State.FAILED, failures=1)

    fails = Doomed(fate=lambda run_id, _: State.FAILED if run_id in doomed else State.DONE)
    monkeypatch.setattr(search, "open_launcher", lambda *_: fails)
    retry = f"python -m sweeps retry {' '.join(doomed)} --runs-dir {tmp_path}"
    for _ in range(2):  # the search is over at the second call
        code, said = call(*words)
        assert code == 1
        assert (
            "1 of the 3 settings has no value: trial 0 failed and was given up, for the reasons in the summary. "
            f"The same command tries it again after `{retry}`, or with search.retries=1"
        ) in " ".join(said.split())

    assert cli.main(["retry", *doomed, "--runs-dir", str(tmp_path)]) == 0
    goes_on = (
        f"goes on at the next call of sweep.py for its search {plan.study_id} with the same overrides: "
        "python sweep.py +search=scpo_theta_lambda ..."
    )
    assert [line for line in capsys.readouterr().out.splitlines() if line] == [f"{one}: {goes_on}" for one in doomed]
    monkeypatch.setattr(search, "open_launcher", lambda *_: InstantLauncher())
    code, said = call(*words)
    assert (code, "no value" in said) == (0, False)


def test_settings_of_a_pruner_that_is_null_are_answered_with_the_override_that_adds_it():
    for words in (("search.pruner.startup_trials=1",), ("search.pruner=null", "search.pruner.startup_trials=1")):
        for name in ("scpo_theta_lambda", "scpo")[: len(words)]:
            with pytest.raises(ConfigError) as error:
                make_plan(name, words)
            assert str(error.value) == (
                "search.pruner.startup_trials=1: search.pruner is null here, so no trial is pruned. To prune: "
                "'search.pruner={name: median, startup_trials: 1, warmup_steps: 0}'"
            )
    assert make_plan("scpo", ["search.pruner.startup_trials=1"]).search.pruner.startup_trials == 1
    with pytest.raises(ConfigError, match=r"search\.pruner\.startup_trails"):
        make_plan("scpo", ["search.pruner.startup_trails=1"])
