import json

import pytest

from analysis.show import CREDIT, experiment_table
from analysis.sources.collect import collect
from scpo.records.code_files import code_files
from tests.support.run_records import (
    LABELS,
    log_lines,
    log_only,
    write_ablation,
    write_experiment,
    write_json,
    write_run,
)


def test_an_experiment_without_record_has_no_table(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    assert experiment_table(tmp_path, "main_table") is None
    assert experiment_table(tmp_path / "absent", "ablation") is None


def test_a_missing_run_has_the_state_that_the_caller_knows(tmp_path):
    runs = [write_run(tmp_path), write_run(tmp_path, seed=1, state="PENDING")]
    write_experiment(tmp_path, {"scpo": runs})
    assert f"{runs[1]['id']} is PENDING\n" in experiment_table(tmp_path, "ablation_monotonicity")
    assert f"{runs[1]['id']} is QUEUED\n" in experiment_table(
        tmp_path, "ablation_monotonicity", None, {runs[1]["id"]: "QUEUED"}
    )


def test_every_row_shows_seeds_success_and_credit_in_100_columns(tmp_path):
    write_ablation(tmp_path, rows=("scpo", "chronological", "no_monotonicity", "shortest_reference"))
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert max(len(line) for line in text.splitlines()) <= 100
    assert text.count("chronological order") == 4  # success, differences, credit, published
    assert "Credit: mean over the training steps that have a value, then over seeds\n" in text
    for word in ("games trained on", "valid_seen", "valid_unseen", "3/3", "→", "active", "credited steps"):
        assert word in text


@pytest.mark.parametrize("label", ["x", "matcher = firstseen", "learning rate = 0.0003", "a label of " + 30 * "z"])
def test_no_number_is_cut_whatever_the_length_of_the_labels(tmp_path, monkeypatch, label):
    monkeypatch.setitem(LABELS, "scpo", label)
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    for run, turned in zip(runs, (0.1254, 0.9876), strict=True):
        log = tmp_path / run["id"] / "metrics.jsonl"
        lines = [json.loads(line) | dict.fromkeys(CREDIT, turned) for line in log.read_text().splitlines()]
        log_lines(log.parent, lines)
    write_experiment(tmp_path, {"scpo": runs}, name="one")
    text = experiment_table(tmp_path, "one")
    assert max(len(line) for line in text.splitlines()) <= 100
    words = text.partition("Credit:")[2].split()
    # Shares in percent, the credited steps, the reward and the change of advantages: each has its mean and deviation.
    for number, times in {"55.6": 2, "61.0": 2, "0.6": 2, "0.556": 2, "0.610": 2}.items():
        assert words.count(number) == times, number


def test_small_credit_has_significant_digits(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    for run in runs:
        log = tmp_path / run["id"] / "metrics.jsonl"
        lines = [json.loads(line) | {"credit/aux_mean": 0.00018} for line in log.read_text().splitlines()]
        log_lines(log.parent, lines)
    write_experiment(tmp_path, {"scpo": runs}, name="one")
    assert "0.00018 ± 0.00000" in experiment_table(tmp_path, "one")


def test_a_time_that_cannot_have_been_measured_is_damage_as_in_every_other_table(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    log = tmp_path / runs[1]["id"] / "timing.jsonl"
    log.write_text(log.read_text() + json.dumps({"step": 41, "timing_s/step": -1.0}) + "\n")
    write_experiment(tmp_path, {"scpo": runs}, name="one")
    text = experiment_table(tmp_path, "one")
    assert f"{runs[1]['id']} is DAMAGED" in text
    (line,) = [line for line in text.splitlines() if line.startswith("left out: ")]
    assert "timing_s/step is -1.0 at step 41, not in [0, inf]" in line
    (problem,) = collect(tmp_path).problems
    assert line == f"left out: {problem.path}: {problem.reason}"


def test_published_numbers_are_labelled_as_another_scale(tmp_path):
    write_ablation(tmp_path)
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "93.7±4.1" in text
    assert "90.1±1.6" in text
    assert "not comparable" in text


def test_numbers_are_means_over_finished_seeds(tmp_path):
    run = write_run(tmp_path)
    log_only(tmp_path, run, "val/valid_seen/success_rate", {0: 0.25, 40: 0.75})
    with (tmp_path / run["id"] / "metrics.jsonl").open("a") as log:
        log.write('{"step')
    write_experiment(tmp_path, {"scpo": [run, write_run(tmp_path, seed=1, state="RUNNING")]})
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "25.0 → 75.0" in text
    assert "1/2" in text
    assert "seed 1" in text
    assert "RUNNING" in text


def with_success(tmp_path, row, seed, success):
    """A finished run with one held-out success at its last step."""
    run = write_run(tmp_path, row, seed, panels=("valid_seen",))
    log_only(tmp_path, run, "val/valid_seen/success_rate", {0: 0.1, 40: success})
    return run


def test_rows_that_share_seeds_end_with_their_paired_differences(tmp_path):
    # seeds 0, 1: differences 0.1 and 0.3, so 20 points, deviation 14.14, half width 12.706 x 14.14 / sqrt(2) = 127.1
    rows = {
        "scpo": [with_success(tmp_path, "scpo", seed, rate) for seed, rate in ((0, 0.2), (1, 0.2), (2, 0.9))],
        "chronological": [with_success(tmp_path, "chronological", seed, rate) for seed, rate in ((0, 0.3), (1, 0.5))],
    }
    write_experiment(tmp_path, rows)
    text = experiment_table(tmp_path, "ablation_monotonicity")
    differences = text.partition("Minus SCPO (default) at the last checkpoint only, points, paired by seed")[2]
    line = next(line for line in differences.splitlines() if "chronological" in line)
    assert line.split() == ["chronological", "order", "2", "+20.0", "[−107.1,", "147.1]"]
    assert "two types of processor" not in text


def test_the_comparisons_that_an_experiment_named_are_shown_at_any_scale_corrected_over_its_own(tmp_path):
    # From 0.1, areas are means with 0.1: differences of 5 and 15 points, so 10, deviation 7.07, half width
    # 12.706 x 7.07 / sqrt(2) = 63.5; t = 2 of 1 degree, p = 0.295, doubled by Holm.
    rates = {"scpo": (0.2, 0.2), "chronological": (0.3, 0.5), "no_monotonicity": (0.3, 0.2)}
    rows = {
        row: [with_success(tmp_path, row, seed, rate) for seed, rate in enumerate(own)] for row, own in rates.items()
    }
    compared = [("chronological", "scpo"), ("no_monotonicity", "scpo")]
    write_experiment(tmp_path, rows, name="mine", compared=compared)
    write_experiment(tmp_path, rows, name="other")
    text = experiment_table(tmp_path, "mine")
    assert max(len(line) for line in text.splitlines()) <= 100
    _, _, named = text.partition("Named before the runs: area under validation")
    assert "Holm's correction over the 2 comparisons of this experiment" in " ".join(named.split())
    own, other = (line.split() for line in named.splitlines() if "SCPO (default)" in line and "−" in line)
    assert own[-5:] == ["2/2", "+10.0", "[−53.5,", "73.5]", "0.590"]
    assert other[-5:] == ["2/2", "+2.5", "[−29.3,", "34.3]", "0.590"]
    assert own[:6] == ["chronological", "order", "−", "SCPO", "(default)", "2/2"]
    assert "Named before" not in experiment_table(tmp_path, "other")


def test_a_named_comparison_without_results_counts_in_the_correction(tmp_path):
    """Else each of several calls with 'rows=[a,b]' would print its p uncorrected."""
    rates = {"scpo": (0.2, 0.2), "chronological": (0.3, 0.5)}
    rows = {
        row: [with_success(tmp_path, row, seed, rate) for seed, rate in enumerate(own)] for row, own in rates.items()
    }
    compared = [("chronological", "scpo"), ("no_monotonicity", "scpo")]
    write_experiment(tmp_path, rows | {"no_monotonicity": []}, name="mine", compared=compared)
    (path,) = (tmp_path / "experiments").glob("mine*.json")
    record = json.loads(path.read_text())
    record["rows"][-1]["chosen"] = False
    write_json(path, record)
    _, _, named = " ".join(experiment_table(tmp_path, "mine").split()).partition("Named before the runs")
    assert "over the 2 comparisons of this experiment (1 of them, with fewer than two pairs" in named
    assert "2/2 +10.0 [−53.5, 73.5] 0.590" in named  # 0.295 of one comparison


def test_named_comparisons_say_what_was_not_paired_and_what_has_no_spread(tmp_path):
    rows = {row: [with_success(tmp_path, row, seed, 0.5) for seed in (0, 1, 2)] for row in ("scpo", "chronological")}
    folder = tmp_path / rows["scpo"][0]["id"]
    write_json(folder / "provenance.json", {"attempts": {"1": {"cpu": "another"}}})
    write_experiment(tmp_path, rows, name="mine", compared=[("chronological", "scpo")])
    _, _, named = " ".join(experiment_table(tmp_path, "mine").split()).partition("Named before the runs")
    assert "chronological order − SCPO (default) 2/3 +0.0 [0.0, 0.0] 1.000" in named
    assert "seed 0 ran on two types of processor, left out" in named
    assert "note: no spread in +0.0 [0.0, 0.0]" in named


def test_one_row_or_no_shared_seed_has_no_differences(tmp_path):
    write_experiment(
        tmp_path,
        {
            "scpo": [with_success(tmp_path, "scpo", 0, 0.5)],
            "chronological": [with_success(tmp_path, "chronological", 1, 0.5)],
        },
    )
    assert "paired by seed" not in experiment_table(tmp_path, "ablation_monotonicity")


def test_a_row_of_the_references_own_runs_is_no_difference(tmp_path):
    runs = [with_success(tmp_path, "scpo", seed, 0.5) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": runs, "exact_scorer": runs})
    assert "paired by seed" not in experiment_table(tmp_path, "ablation_monotonicity")


def test_pairs_on_two_types_of_processor_are_counted(tmp_path):
    rows = {row: [with_success(tmp_path, row, seed, 0.5) for seed in (0, 1)] for row in ("scpo", "chronological")}
    for place, cpu in (("scpo", "one"), ("chronological", "other")):
        folder = tmp_path / rows[place][0]["id"]
        write_json(folder / "provenance.json", {"attempts": {"1": {"cpu": cpu}}})
    write_experiment(tmp_path, rows)
    assert "note: 1 pair ran on two types of processor" in experiment_table(tmp_path, "ablation_monotonicity")


def test_what_the_command_line_gave_all_rows_is_below_the_title(tmp_path):
    given = ("scale=mini", "method.estimator.states=facts", "trainer.steps=3")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, overrides=given)
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "\ngiven: method.estimator.states=facts trainer.steps=3\n" in text


def test_a_learning_rate_of_its_own_is_named(tmp_path):
    other = write_run(tmp_path, "chronological", overrides=("trainer.optimizer.learning_rate=1e-5",))
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)], "chronological": [other]})
    noted = f"note: {LABELS['chronological']}: trainer.optimizer.learning_rate=1e-05 ({LABELS['scpo']}: 0.0003)"
    assert noted in experiment_table(tmp_path, "ablation_monotonicity")


def with_code(tmp_path, run, changed):
    files = code_files() | {changed: "another"}
    write_json(tmp_path / run["id"] / "code.json", {"files": files})
    return run


def test_seeds_of_several_versions_of_the_code_are_named(tmp_path):
    rows = {row: [write_run(tmp_path, row, seed) for seed in (0, 1)] for row in ("scpo", "chronological")}
    write_experiment(tmp_path, rows)
    for run in (*rows["scpo"], *rows["chronological"]):
        with_code(tmp_path, run, "scpo/advantages/crbc.py")  # no run uses it
    assert "versions" not in experiment_table(tmp_path, "ablation_monotonicity")

    with_code(tmp_path, rows["scpo"][1], "scpo/advantages/gigpo.py")
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert f"note: {LABELS['scpo']}: its seeds ran under several versions of scpo/advantages/gigpo.py;" in text
    assert text.count("several versions") == 1

    with_code(tmp_path, rows["scpo"][0], "scpo/advantages/gigpo.py")
    text = experiment_table(tmp_path, "ablation_monotonicity")
    assert "note: the rows ran under several versions of scpo/advantages/gigpo.py;" in text


def test_seeds_with_other_weights_under_one_path_are_named(tmp_path):
    """The id has the path only, so they were averaged as one row."""
    rows = {row: [write_run(tmp_path, row, seed) for seed in (0, 1)] for row in ("scpo", "chronological")}
    write_experiment(tmp_path, rows)
    for number, run in enumerate((*rows["scpo"], *rows["chronological"])):
        weights = {"model.path=/data/mine": "another" if number == 1 else "usual"}
        write_json(tmp_path / run["id"] / "provenance.json", {"attempts": {"1": {"cpu": "a", "weights": weights}}})
    text = experiment_table(tmp_path, "ablation_monotonicity")
    note = f"note: {LABELS['scpo']}: its seeds ran under several versions of the weights of model.path=/data/mine"
    assert note in text
    assert text.count("several versions") == 1


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


def test_a_sweep_shows_the_scale_that_it_ran(tmp_path):
    for scale in ("mini", "paper"):
        (tmp_path / "experiments").mkdir(exist_ok=True)
        write_ablation(tmp_path, seeds=(0,), scale=scale)
        record = tmp_path / "experiments" / "ablation_monotonicity.json"
        record.rename(record.with_name(f"ablation_monotonicity-{scale}.json"))
    both = experiment_table(tmp_path, "ablation_monotonicity")
    paper = experiment_table(tmp_path, "ablation_monotonicity", "paper")
    assert "(mini scale" in both
    assert "(paper scale" in both
    assert "(mini scale" not in paper
    assert "(paper scale" in paper
