import gzip
import json

import pytest

from analysis.report.samples import GroupSample, most_telling, sample_episodes, sample_groups
from analysis.sources.collect import collect
from scpo.records import RunFolder
from scpo.records.files import file_sum
from tests.support.group_samples import write_groups
from tests.support.run_records import write_run
from tests.support.validation_records import GAMES, MARKUP, won, write_validations

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


def runs_with_validations(runs, *steps, seeds=(0,), panels=("valid_seen",), repeats=1):
    ids = [write_run(runs, seed=seed, steps=20, panels=panels)["id"] for seed in seeds]
    for seed, run in zip(seeds, ids, strict=True):
        write_validations(runs / run, seed, *steps, panels=panels, repeats=repeats)
    return ids


def test_every_game_has_its_count_at_every_validation_of_every_run(tmp_path):
    ids = runs_with_validations(tmp_path, 10, 0, 20, seeds=(0, 1))
    content = sample_episodes(collect(tmp_path)).content()
    (panel,) = content["panels"]
    assert panel["title"] == "held out, seen rooms, ALFWorld"
    assert panel["games"][0] == ["generated-0/000000", "pick and place"]
    assert len(panel["games"]) == GAMES
    for seed, run in enumerate(ids):
        assert panel["runs"][run]["steps"] == [0, 10, 20]
        expected = ["".join(str(int(won(game, seed, step))) for game in range(GAMES)) for step in (0, 10, 20)]
        assert panel["runs"][run]["won"] == expected
    assert (content["shown"], content["recorded"]) == (6, 6)


def test_repeats_of_a_game_are_counted_together(tmp_path):
    (run,) = runs_with_validations(tmp_path, 20, repeats=3)
    (panel,) = sample_episodes(collect(tmp_path)).content()["panels"]
    assert (panel["repeats"], len(panel["games"])) == (3, GAMES)
    assert panel["runs"][run]["won"] == ["3" * (GAMES - 1) + "0"]


def test_panels_of_one_name_and_other_games_stand_apart_and_held_out_ones_come_first(tmp_path, monkeypatch):
    (first,) = runs_with_validations(tmp_path, 0, panels=("train_games", "valid_unseen"))
    monkeypatch.setattr("tests.support.validation_records.GAMES", 5)
    second, third = runs_with_validations(tmp_path, 0, seeds=(1, 2), panels=("valid_seen",))
    panels = sample_episodes(collect(tmp_path)).content()["panels"]
    assert [(panel["name"], len(panel["games"])) for panel in panels] == [
        ("valid_seen", 5),
        ("valid_unseen", 12),
        ("train_games", 12),
    ]
    assert set(panels[0]["runs"]) == {second, third}
    assert list(panels[1]["runs"]) == [first]


def test_transcripts_name_their_texts_by_number(tmp_path):
    (run,) = runs_with_validations(tmp_path, 20)
    content = sample_episodes(collect(tmp_path)).content()
    panel, step, game, start, actions, answers, valid = content["transcripts"][run][0]
    assert (panel, step, game, valid) == (0, 20, 0, [1, 0, 1])
    assert content["texts"][start] == "Task 0"
    assert [content["texts"][k] for k in actions] == ["go to shelf 0", "go to shelf 1", "go to shelf 2"]
    assert MARKUP in content["texts"][answers[0]]
    assert len(content["texts"]) == len(set(content["texts"]))


def test_a_page_too_small_has_the_first_and_last_validation_of_every_run_and_says_so(tmp_path):
    ids = runs_with_validations(tmp_path, 0, 5, 10, 15, 20, seeds=(0, 1))
    sample = sample_episodes(collect(tmp_path), outcome_bytes=4 * GAMES)
    (panel,) = sample.content()["panels"]
    assert [panel["runs"][run]["steps"] for run in ids] == [[0, 20], [0, 20]]
    assert (sample.shown, sample.recorded) == (4, 10)


def test_transcripts_stop_where_their_room_ends_and_outcomes_go_on(tmp_path):
    runs_with_validations(tmp_path, 0, 20, seeds=(0, 1))
    everything = json.dumps(sample_episodes(collect(tmp_path)).content()["transcripts"])
    sample = sample_episodes(collect(tmp_path), transcript_bytes=1500)
    assert 0 < len(json.dumps(sample.content()["transcripts"])) < len(everything)
    assert sample.shown == 4


def test_a_damaged_record_is_named_and_the_others_are_shown(tmp_path):
    (run,) = runs_with_validations(tmp_path, 0, 20)
    path = tmp_path / run / "diagnostics" / "validation_step_00020.json.gz"
    path.write_bytes(path.read_bytes()[:-9])
    data = collect(tmp_path)
    sample = sample_episodes(data)
    assert sample.content()["panels"][0]["runs"][run]["steps"] == [0]
    assert [problem.path for problem in (*data.sample_problems, *sample.problems)] == [f"{run}/{path.name}"]


def rewrite(path, change):
    """Change the content of a gzipped record in place, and record its new checksum."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content["panels"])
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    folder = RunFolder(path.parent.parent)
    folder.note_sums({str(path.relative_to(folder.path)): file_sum(path)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda panels: panels.pop("valid_seen"), "has no panel valid_seen, which the run's log has at step 20"),
        (
            lambda panels: panels["valid_seen"]["won"].__setitem__(GAMES - 1, True),
            "12 of 12 episodes of panel valid_seen are won, but the run's log has a success rate of 0.916",
        ),
    ],
)
def test_a_record_that_contradicts_the_log_is_named_and_left_out(tmp_path, change, reason):
    (run,) = runs_with_validations(tmp_path, 0, 20)
    path = tmp_path / run / "diagnostics" / "validation_step_00020.json.gz"
    rewrite(path, change)
    sample = sample_episodes(collect(tmp_path))
    assert sample.content()["panels"][0]["runs"][run]["steps"] == [0]
    (problem,) = sample.problems
    assert problem.path == f"{run}/{path.name}"
    assert reason in problem.reason
