"""Searches that go on under changed code."""

from io import StringIO

import pytest
from rich.console import Console

from scpo.records.code_files import code_files
from scpo.records.files import write_json
from sweeps import __main__ as cli
from sweeps.compose.overrides import read_request
from sweeps.search import driver, search_folder
from sweeps.search import search_command as search
from sweeps.search.trial_code import change_notes, runs_of, version_notes
from tests.support.fake_runs import QUICK, folders, make_run
from tests.support.searches import InstantLauncher, drive, plan_in

GIGPO = "scpo/advantages/gigpo.py"


class Recording(InstantLauncher):
    """Each run records this code."""

    def __init__(self, **changed):
        super().__init__()
        self.files = code_files() | changed

    def _run(self, folder, config):
        super()._run(folder, config)
        write_json(folder.path / "code.json", {"files": self.files})


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(driver, "LEAST_POLL_S", 0.0)


def dry_run(runs_dir, *words):
    out = StringIO()
    given = ("+search=scpo_theta_lambda", *QUICK, f"machine.runs_dir={runs_dir}", *words, "dry_run=true")
    search.command(Console(file=out, width=100), read_request(given), None)
    return " ".join(out.getvalue().split())


def test_a_search_that_goes_on_after_an_edit_names_the_trials_of_each_version(tmp_path):
    drive(plan_in(tmp_path, "search.trials=2"), Recording(**{GIGPO: "old"}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = dry_run(tmp_path, "search.trials=3")
    assert "so far: 2 COMPLETE" in told
    assert f"note: trials 0, 1 of other code, changed since: {GIGPO}" in told
    assert f"python -m sweeps rm --finished {folders(tmp_path)[0].run_id[:20]}" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    plan = plan_in(tmp_path, "search.trials=3")
    trials, said = drive(plan, Recording())
    assert not [line for line in said if "other code" in line]
    note = f"{GIGPO} had several versions: trials 0, 1; trial 2. All are ranked together"
    assert version_notes(plan, runs_of(plan, trials)) == [note]
    assert f"Note: {note}." in search_folder.write_summary(plan, trials, []).read_text()


def test_a_finished_run_of_other_code_is_named_where_it_becomes_a_trial(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1")
    drive(plan, Recording(**{GIGPO: "old"}))
    for path in sorted(plan.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert f"trial 0 of other code, changed since: {GIGPO}" in dry_run(tmp_path, "search.trials=1")
    _, said = drive(plan)
    assert f"note: trial 0 of other code, changed since: {GIGPO}; it was not run again" in said


def test_files_that_a_search_does_not_use_are_not_named(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1")
    trials, _ = drive(plan, Recording(**{"scpo/advantages/crbc.py": "old", "sweeps/dispatch.py": "old"}))
    assert change_notes(plan, runs_of(plan, trials)) == []
    assert version_notes(plan, runs_of(plan, trials)) == []


def test_verify_counts_the_runs_of_trials_as_those_of_their_search(tmp_path, capsys):
    plan = plan_in(tmp_path, "search.trials=2")
    search_folder.write_plan(plan)
    drive(plan, InstantLauncher())
    alone = make_run(tmp_path, "seed=7").run_id
    cli.main(["verify", "--runs-dir", str(tmp_path)])
    told = capsys.readouterr().out
    assert f"{len(folders(tmp_path)) - 1} runs of the trials of search {plan.folder.name}\n" in told
    assert f"in no experiment: {alone}\n" in told.replace("\n" + alone, " " + alone)
