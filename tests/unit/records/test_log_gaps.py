"""Lines and measures that a log lacks, whatever its checksum."""

import json

import pytest

from scpo.errors import RecordError
from scpo.records import log_gaps, verify
from scpo.records.files import file_sum
from scpo.records.logs import read_whole
from sweeps.records import attempt as entry
from tests.faults import fake_train
from tests.support import fake_runs as fake
from tests.support.log_changes import LOG_CHANGES, change_log


def config(trainer="local", kind="trained", panels=("seen", "unseen")):
    return {
        "trainer": {"name": trainer, "steps": 7, "validation": {"every": 3}},
        "method": {"kind": kind},
        "env": {"validation_panels": {panel: {} for panel in panels}},
    }


def lines(last=7, steps=None):
    """What a local run logs that validates at 0, 3, 6 and 7."""
    found = []
    for step in range(last + 1) if steps is None else steps:
        line = {"step": step} | ({"train/success_rate": 0.5} if step else {})
        if step % 3 == 0 or step == 7:
            line |= {"val/seen/success_rate": 0.5, "val/unseen/success_rate": 0.5, "val/seen/episodes": 4.0}
        found.append(line)
    return found


def gap(records, made=None, **options):
    made = config() if made is None else made
    return log_gaps.gap(made, [line["step"] for line in records], log_gaps.numbers_by_metric(records), **options)


@pytest.mark.parametrize("last", range(8))
def test_a_whole_log_has_no_gap_however_far_it_came(last):
    assert gap(lines(last)) is None


def without(step, metric):
    records = lines()
    del records[step][metric]
    return records


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (without(3, "val/unseen/success_rate"), "no number for val/unseen/success_rate at step 3, which a validation"),
        (without(7, "val/seen/success_rate"), "no number for val/seen/success_rate at step 7"),
        (without(6, "val/seen/episodes"), "no number for val/seen/episodes at step 6"),
        (without(4, "train/success_rate"), "no number for train/success_rate at step 4, which a step of training"),
        ([line for line in lines() if line["step"] != 4], "has no line of step 4, and later ones"),
        (lines()[1:], "has no line of step 0"),
        ([line | ({"val/seen/success_rate": None} if line["step"] == 3 else {}) for line in lines()], "at step 3"),
        ([{"step": step} for step in range(8)], "no number for val/seen/success_rate at step 0"),
    ],
)
def test_the_first_gap_is_named(records, message):
    assert message in gap(records)


def test_verl_may_log_every_few_steps_but_validates_at_each_that_is_due():
    assert gap(lines(steps=(0, 2, 3, 6, 7)), config("verl")) is None
    assert "at step 3" in gap(lines(steps=(0, 2, 6, 7)), config("verl"))


def test_a_prompted_method_logs_its_validation_twice():
    assert gap([lines()[0], lines()[0] | {"step": 7}], config(kind="prompted")) is None
    assert "at step 7" in gap([lines()[0], {"step": 7}], config(kind="prompted"))


def test_a_copy_in_wandb_may_lack_lines_between_validations():
    records = [line for line in lines() if line["step"] not in (4, 5)]
    assert gap(records, every_line=False) is None
    assert "at step 6" in gap([line for line in records if line["step"] != 6], every_line=False)


@pytest.mark.parametrize("made", [{}, {"trainer": 7}, config() | {"env": {}}], ids=["empty", "a number", "no panels"])
def test_the_configuration_of_another_program_promises_nothing(made):
    assert gap(lines()[2:], made) is None


@pytest.fixture
def folder(tmp_path):
    made = fake.make_run(tmp_path)
    entry.run(made, fake_train.train)
    return made


def test_a_run_that_was_logged_whole_is_whole(folder):
    assert verify.problems(folder) == []


@pytest.mark.parametrize("how", LOG_CHANGES)
@pytest.mark.parametrize("step", [0, 4])
def test_a_change_under_a_right_checksum_is_named_by_verify(folder, how, step):
    change_log(folder, how, step)
    assert folder.read_status().sums["metrics.jsonl"] == file_sum(folder.metrics)
    (problem,) = verify.problems(folder)
    assert str(folder.metrics) in problem


def test_a_lost_record_of_attempts_is_named_by_verify(folder):
    folder.provenance.unlink()
    (problem,) = verify.problems(folder)
    assert f"{folder.provenance} is lost: it had the commit and the processor of 1 attempt" in problem


@pytest.mark.parametrize(
    ("value", "message"),
    [("NaN", "NaN is written as null here"), ("1e999", "success_rate is 'inf'"), ("[1]", "'\\[1]'")],
)
def test_what_nothing_logs_is_refused_under_a_right_checksum_too(folder, value, message):
    text = folder.metrics.read_text()
    record = json.loads(text.splitlines()[-1])
    number = json.dumps(record["train/success_rate"])
    folder.metrics.write_text(text[: text.rindex(number)] + value + text[text.rindex(number) + len(number) :])
    folder.note_sums({"metrics.jsonl": file_sum(folder.metrics)})
    with pytest.raises(RecordError, match=message):
        read_whole(folder, folder.metrics)
