import json

from analysis.report.inspector_groups import GroupSample, most_telling, sample_groups
from analysis.sources.collect import collect
from tests.support.group_samples import write_groups
from tests.support.run_records import write_run

ROOM = 10**9


def runs_with_groups(runs, *steps, seeds=(0,)):
    ids = [write_run(runs, seed=seed, steps=4)["id"] for seed in seeds]
    for run in ids:
        write_groups(runs / run, *steps)
    return ids


def test_all_that_was_sampled_is_shown_where_there_is_room(tmp_path):
    (run,) = runs_with_groups(tmp_path, 1, 10, 5)
    sample = sample_groups(collect(tmp_path), ROOM)
    assert [record["step"] for record in sample.steps[run]] == [1, 5, 10]
    assert (sample.shown, sample.recorded, sample.problems) == (3, 3, ())


def test_a_page_too_small_for_all_shows_the_ends_of_every_run_first(tmp_path):
    runs = runs_with_groups(tmp_path, *range(1, 10), seeds=(0, 1))
    all_bytes = sum(
        len(json.dumps(one)) for run in sample_groups(collect(tmp_path), ROOM).steps.values() for one in run
    )
    sample = sample_groups(collect(tmp_path), all_bytes // 3)
    assert 4 <= sample.shown < sample.recorded == 18
    for run in runs:
        assert {1, 9} <= {record["step"] for record in sample.steps[run]}


def test_a_page_too_small_for_every_run_shows_runs_from_end_to_end(tmp_path):
    runs = sorted(runs_with_groups(tmp_path, 1, seeds=range(5)))
    one = len(json.dumps(sample_groups(collect(tmp_path), ROOM).steps[runs[0]][0]))
    assert list(sample_groups(collect(tmp_path), round(3.5 * one)).steps) == [runs[0], runs[2], runs[4]]


def test_without_room_nothing_is_shown_and_the_count_says_so(tmp_path):
    runs_with_groups(tmp_path, 1, 5)
    sample = sample_groups(collect(tmp_path), 10)
    assert (sample.steps, sample.shown, sample.recorded) == ({}, 0, 2)


def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path):
    (run,) = runs_with_groups(tmp_path, 1, 5)
    path = tmp_path / run / "diagnostics" / "groups_step_00005.json.gz"
    path.write_bytes(path.read_bytes()[:-30])
    data = collect(tmp_path)
    sample = sample_groups(data, ROOM)
    assert [record["step"] for record in sample.steps[run]] == [1]
    (problem,) = (*data.sample_problems, *sample.problems)
    assert problem.path == f"{run}/groups_step_00005.json.gz"


def telling_steps(credit, before, after):
    columns = {"trajectory": [3, 3, 4], "step": [0, 1, 0], "credit": credit}
    return {"group": 7, "steps": {**columns, "unshaped_advantage": before, "advantage": after}}


def test_the_most_telling_step_is_the_credited_one_whose_advantage_moved_most():
    quiet = telling_steps([0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.0])
    loud = telling_steps([0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.2, 9.0])  # the last moved, without credit of its own
    sample = GroupSample({"a": [{"step": 1, "groups": [quiet]}], "b": [{"step": 5, "groups": [loud]}]}, 2, 2, ())
    assert most_telling(sample) == {"run": "b", "step": "5", "group": "7", "sibling": "3", "at": "f1"}


def test_where_no_advantage_moved_no_step_is_telling():
    still = telling_steps([0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 9.0])
    assert most_telling(GroupSample({"a": [{"step": 1, "groups": [still]}]}, 1, 1, ())) is None
