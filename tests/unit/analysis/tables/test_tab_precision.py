import csv
import io
import json

import pytest

from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables.tab_precision import build
from tests.support.run_records import write_experiment, write_lines, write_run


def measured(runs_dir, seed, *shares):
    """A run that measured (precision, random, share) at each of its steps."""
    run = write_run(runs_dir, seed=seed, steps=len(shares))
    path = runs_dir / run["id"] / "metrics.jsonl"
    lines = {line["step"]: line for line in map(json.loads, path.read_text().splitlines())}
    for step, (hit, chance, share) in enumerate(shares, start=1):
        measures = {"credit/precision": hit, "credit/precision_random": chance, "credit/share": share}
        lines[step] |= {name: value for name, value in measures.items() if value is not None}
    write_lines(path, lines.values())
    return run


def test_shares_over_the_training_of_each_seed(tmp_path):
    runs = [
        measured(tmp_path, 0, (0.5, 0.1, 0.1), (0.3, 0.3, 0.1)),
        measured(tmp_path, 1, (0.2, 0.1, 0.2), (0.2, 0.1, 0.2)),
    ]
    write_experiment(tmp_path, {"scpo": runs})
    (row,) = csv.DictReader(io.StringIO(build(collect(tmp_path).at_scale("mini")).csv()))
    assert (row["Row"], row["Seeds"]) == ("SCPO (default)", "2/2")
    assert (row["Precision mean"], row["Chance mean"], row["Share credited mean"]) == ("30.0", "15.0", "15.0")
    assert row["Over chance mean"] == "+15.0"


def test_the_caption_names_the_scorer_of_the_shapers_credit(tmp_path):
    write_experiment(tmp_path, {"scpo": [measured(tmp_path, 0, (0.5, 0.1, 0.1))]})
    caption = build(collect(tmp_path).at_scale("mini")).caption
    assert "what the shaper credits (scorer=minilm, matcher=kmp, θ=0.6);" in caption


def test_further_seeds_in_another_experiment_are_named(tmp_path):
    """The README's shares are over fifty seeds, those of the table over the ten of its experiment."""
    first = measured(tmp_path, 0, (0.5, 0.1, 0.1))
    write_experiment(tmp_path, {"scpo": [first]}, name="main_table")
    write_experiment(tmp_path, {"scpo": [first, measured(tmp_path, 1, (0.2, 0.1, 0.2))]}, name="more_seeds")
    caption = build(collect(tmp_path).at_scale("mini")).caption
    assert "shown on seed 0 (more_seeds: SCPO on seed 1): --experiment more_seeds shows its own." in caption


def test_a_seed_whose_failures_never_help_counts(tmp_path):
    runs = [measured(tmp_path, 0, (0.5, 0.2, 0.1)), measured(tmp_path, 1, (0.0, 0.0, 0.1))]
    write_experiment(tmp_path, {"scpo": runs})
    made = build(collect(tmp_path).at_scale("mini"))
    (row,) = csv.DictReader(io.StringIO(made.csv()))
    assert (row["Row"], row["Seeds"]) == ("SCPO (default)", "2/2")
    numbers = [row[f"{name} mean"] for name in ("Precision", "Chance", "Over chance", "Share credited")]
    assert numbers == ["25.0", "10.0", "+15.0", "10.0"]


def test_a_seed_that_credits_no_step_has_chance_but_no_precision(tmp_path):
    runs = [measured(tmp_path, 0, (0.5, 0.2, 0.1)), measured(tmp_path, 1, (None, 0.4, 0.0))]
    write_experiment(tmp_path, {"scpo": runs})
    made = build(collect(tmp_path).at_scale("mini"))
    (row,) = csv.DictReader(io.StringIO(made.csv()))
    numbers = [row[f"{name} mean"] for name in ("Precision", "Chance", "Over chance", "Share credited")]
    assert numbers == ["50.0", "30.0", "+30.0", "5.0"]
    assert "† over 1 of 2 finished seeds: Precision, Over chance." in made.caption


def test_a_row_on_other_seeds_than_the_first_experiments_is_marked(tmp_path):
    write_experiment(tmp_path, {"scpo": [measured(tmp_path, 0, (0.5, 0.2, 0.1))]}, name="ablation")
    later = write_run(tmp_path, "chronological", 50, steps=1)
    folder = tmp_path / later["id"] / "metrics.jsonl"
    lines = [json.loads(line) for line in folder.read_text().splitlines()]
    lines[-1] |= {"credit/precision": 0.1, "credit/precision_random": 0.1, "credit/share": 0.1}
    write_lines(folder, lines)
    write_experiment(tmp_path, {"chronological": [later]}, name="wide_intervals")
    made = build(collect(tmp_path).at_scale("mini"))
    default, other = csv.DictReader(io.StringIO(made.csv()))
    note = "on seed 50, the rows of ablation on seed 0"
    assert (default["Row"], default["notes"]) == ("SCPO (default)", "")
    assert (other["Row"], other["notes"]) == ("chronological order", note)
    assert "| chronological order† |" in made.md()
    assert "† on seed 50, the rows of ablation on seed 0." in made.caption


def test_runs_that_measured_nothing_make_no_table(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    with pytest.raises(MissingRunsError, match="measured where its credit falls"):
        build(collect(tmp_path).at_scale("mini"))


def test_the_caption_names_the_training_steps_at_which_precision_was_measured(tmp_path):
    runs = [measured(tmp_path, 0, (0.5, 0.2, 0.1), (None, 0.2, 0.0)), measured(tmp_path, 1, (0.5, 0.2, 0.1))]
    write_experiment(tmp_path, {"scpo": runs})
    caption = build(collect(tmp_path).at_scale("mini")).caption
    assert "measured at training steps 1, 2 on samples of steps (share credited: on all). A seed's precision" in caption


def test_a_method_that_credits_no_failed_step_has_a_row_without_precision(tmp_path):
    write_experiment(tmp_path, {"scpo": [measured(tmp_path, 0, (None, 0.1, 0.0))]})
    (row,) = csv.DictReader(io.StringIO(build(collect(tmp_path).at_scale("mini")).csv()))
    assert (row["Chance mean"], row["Share credited mean"]) == ("10.0", "0.0")
    assert not row["Precision mean"].strip("–")
