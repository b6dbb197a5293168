from analysis.show import experiment_table
from tests.support.run_records import write_ablation, write_experiment, write_run


def test_an_experiment_without_record_has_no_table(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    assert experiment_table(tmp_path, "main_table") is None
    assert experiment_table(tmp_path / "absent", "ablation") is None


def test_every_row_shows_seeds_success_and_credit_in_100_columns(tmp_path):
    write_ablation(tmp_path, rows=("scpo", "chronological", "no_monotonicity", "shortest_reference"))
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert max(len(line) for line in text.splitlines()) <= 100
    assert text.count("chronological order") == 3  # success, credit, published
    for word in ("games trained on", "valid_seen", "valid_unseen", "3/3", "→", "active", "credited steps", "effective"):
        assert word in text


def test_published_numbers_are_labelled_as_another_scale(tmp_path):
    write_ablation(tmp_path)
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "93.7±4.1" in text
    assert "90.1±1.6" in text
    assert "not comparable" in text


def test_numbers_are_means_over_finished_seeds(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / run["id"] / "metrics.jsonl").write_text(
        '{"step": 0, "val/valid_seen/success_rate": 0.25}\n{"step": 40, "val/valid_seen/success_rate": 0.75}\n{"step'
    )
    write_experiment(tmp_path, {"scpo": [run, write_run(tmp_path, seed=1, state="RUNNING")]})
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "25.0 → 75.0" in text
    assert "1/2" in text
    assert "seed 1" in text
    assert "RUNNING" in text


def test_nothing_finished_is_still_a_table(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, state="FAILED")]})
    assert "0/1" in experiment_table(tmp_path, "ablation_monotonicity")


def test_other_experiments_show_no_published_ablation(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="main_table")
    assert "Published" not in experiment_table(tmp_path, "main_table")


def test_webshop_has_no_published_ablation(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, overrides=("env=webshop",))]})
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "webshop, tiny" in text
    assert "Published" not in text


def test_a_run_of_another_scale_enters_no_mean(tmp_path):
    runs = [write_run(tmp_path), write_run(tmp_path, seed=1, scale="paper") | {"model": "tiny"}]
    write_experiment(tmp_path, {"scpo": runs})
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "1/2" in text
    assert "of scale paper" in text


def test_a_row_that_cannot_run_at_this_scale_is_not_applicable(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)], "chronological": []}, name="main_table")
    (line, *_) = (line for line in experiment_table(tmp_path, "main_table").splitlines() if "chronological" in line)
    assert set(line.split()[2:]) == {"n/a"}
