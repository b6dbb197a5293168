import json

from analysis.report.episode_browser import sample_episodes
from analysis.sources.collect import collect
from tests.support.run_records import write_run
from tests.support.validation_records import GAMES, MARKUP, won, write_validations


def runs_with_validations(runs, *steps, seeds=(0,), **settings):
    ids = [write_run(runs, seed=seed, steps=4)["id"] for seed in seeds]
    for seed, run in zip(seeds, ids, strict=True):
        write_validations(runs / run, seed, *steps, **settings)
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
    first, second = runs_with_validations(tmp_path, 0, seeds=(0, 1), panels=("train_games", "valid_unseen"))
    monkeypatch.setattr("tests.support.validation_records.GAMES", 5)
    write_validations(tmp_path / second, 1, 0)
    panels = sample_episodes(collect(tmp_path)).content()["panels"]
    assert [(panel["name"], len(panel["games"])) for panel in panels] == [
        ("valid_seen", 5),
        ("valid_unseen", 12),
        ("train_games", 12),
    ]
    assert list(panels[0]["runs"]) == [second]
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
