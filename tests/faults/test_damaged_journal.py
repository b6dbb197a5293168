"""A search's records with another bit: the trials are what they were, or the damage is named."""

import contextlib
import json
import random
import sqlite3

import pytest

pytest.importorskip("optuna", reason="needs optuna: make setup")

from scpo.errors import RecordError
from sweeps.search.plan import make_plan
from sweeps.search.study import Study, read_trials
from tests.support.damage import flip_a_bit

FLIPS = 150


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A search with trials told, one of them failed."""
    made = make_plan("scpo", [f"machine.runs_dir={tmp_path_factory.mktemp('runs')}", "scale=mini"])
    study = Study(made)
    for number in range(4):
        trial = study.next_trial()
        study.report(trial, {0: 0.1, 10: 0.2 + number / 10})
        if number == 2:
            study.fail(trial, "on purpose")
        else:
            study.complete(trial, 0.5 + number / 10, {0: 0.5 + number / 10})
    study.close()
    return made


def told(plan):
    return [
        (trial.number, trial.state.name, trial.params, trial.value, trial.intermediate_values, trial.user_attrs)
        for trial in read_trials(plan)
    ]


def test_a_flipped_bit_changes_no_value_without_a_word(plan):
    journal, chance = plan.folder / "journal.log", random.Random(0)
    whole, truth, named = journal.read_bytes(), told(plan), 0
    for _ in range(FLIPS):
        place = chance.randrange(len(whole) - 200)  # its last line may be one that a kill has torn
        flip_a_bit(journal, place, chance.randrange(8))
        try:
            assert told(plan) == truth
        except RecordError as error:
            named += 1
            assert str(plan.folder) in str(error)  # noqa: PT017 (most raise, a bit of a space may read well)
        journal.write_bytes(whole)
    assert named > FLIPS // 2


def test_a_line_without_a_checksum_is_named(plan):
    journal = plan.folder / "journal.log"
    whole = journal.read_bytes()
    lines = [json.loads(line) for line in whole.splitlines()]
    del lines[2]["checksum"]
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(RecordError, match=r"journal\.log, line 3: it has no 'checksum'"):
        told(plan)
    journal.write_bytes(whole)


@pytest.mark.parametrize("change", ["swapped", "doubled", "lost"])
def test_lines_that_were_lost_doubled_or_moved_are_named(plan, change):
    """Each line is whole by itself."""
    journal = plan.folder / "journal.log"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    for place in range(len(lines) - 1):
        changed = list(lines)
        if change == "swapped":
            changed[place : place + 2] = reversed(changed[place : place + 2])
        elif change == "doubled":
            changed.insert(place, lines[place])
        else:
            del changed[place]
        journal.write_bytes(b"".join(changed))
        with pytest.raises(RecordError, match=r"journal\.log: lines before line \d+ were lost, doubled or moved"):
            told(plan)
        journal.write_bytes(whole)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("trial_user_attributes", "value_json", '{"0": 0.9}'),
        ("trial_values", "value", 0.9),
        ("trial_params", "param_value", 0.35),
    ],
)
def test_a_changed_result_in_an_sqlite_study_is_named(tmp_path, table, column, value):
    plan = make_plan("scpo", [f"machine.runs_dir={tmp_path}", "scale=mini", "search.storage=sqlite"])
    study = Study(plan)
    study.complete(study.next_trial(), 0.5, {0: 0.5})
    study.close()
    assert told(plan)[0][3] == 0.5
    what = {"value_json": "key = 'by_seed'", "param_value": "param_name = 'theta'"}.get(column, "true")
    with contextlib.closing(sqlite3.connect(plan.folder / "study.db")) as database, database:
        assert database.execute(f"UPDATE {table} SET {column} = ? WHERE {what}", (value,)).rowcount == 1  # noqa: S608
    with pytest.raises(
        RecordError, match=r"the parameters or values of trial 0 are not those.*Delete .* its runs stay"
    ):
        read_trials(plan)
