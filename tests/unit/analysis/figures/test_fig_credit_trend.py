import csv
import io

import pytest

from analysis.figures import fig_learning
from analysis.figures.fig_credit_trend import build
from analysis.rendering.style import COLUMN_WIDTH
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import log_lines, write_ablation, write_experiment, write_run


def run_with(runs_dir, row, seed, logged, **settings):
    """A run whose credited steps are its step number."""
    run = write_run(runs_dir, row, seed, **settings)
    lines = [{"step": s, "credit/steps": float(s), "credit/aux_mean": 0.01} for s in range(1, logged + 1)]
    log_lines(runs_dir / run["id"], lines)
    return run


def numbers(made):
    return list(csv.DictReader(io.StringIO(made.numbers.csv())))


def test_lines_are_moving_averages_over_five_steps(tmp_path):
    write_experiment(tmp_path, {"scpo": [run_with(tmp_path, "scpo", 0, 10)]})
    left, right = build(collect(tmp_path).at_scale("mini")).figure.axes
    assert list(left.lines[0].get_ydata()) == [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8]
    assert list(right.lines[0].get_ydata()) == pytest.approx([0.01] * 10)


def test_the_papers_means_are_over_steps_20_to_150_beside_the_printed_ones(tmp_path):
    run = run_with(tmp_path, "scpo", 0, 160, scale="paper", steps=150)
    write_experiment(tmp_path, {"scpo": [run]}, scale="paper")
    printed, chronological, measured = numbers(build(collect(tmp_path).at_scale("paper")))
    assert printed["credited steps per failed trajectory mean"] == "12"
    assert chronological["mean auxiliary reward mean"] == "0.029"
    assert (measured["Steps"], measured["credited steps per failed trajectory mean"]) == ("20–150", "85.00")


def test_both_orders_are_drawn_with_their_seeds(tmp_path):
    write_ablation(tmp_path, rows=("scpo", "chronological", "no_monotonicity"), seeds=(0, 1))
    made = build(collect(tmp_path).at_scale("mini"))
    assert [text.get_text() for text in made.figure.legends[0].get_texts()] == [
        "reordered (default), 2/2",
        "chronological, 2/2",
    ]
    assert made.figure.get_size_inches()[0] == COLUMN_WIDTH
    assert [row["Order"] for row in numbers(made)] == ["reordered (default)", "chronological"]


def test_the_scorer_is_named_in_the_picture_the_caption_and_the_table(tmp_path):
    write_experiment(tmp_path, {"scpo": [run_with(tmp_path, "scpo", 0, 10)]})
    made = build(collect(tmp_path).at_scale("mini"))
    named = "scorer=minilm, matcher=kmp, θ=0.6"
    assert named in " ".join(made.figure.get_suptitle().split())
    assert f"Credit is that of {named}." in made.numbers.caption
    assert named in made.numbers.csv()


def test_no_credit_names_the_command(tmp_path):
    run = write_run(tmp_path, "gigpo", overrides=("method=gigpo",))
    write_experiment(tmp_path, {"gigpo": [run]}, name="main_table")
    with pytest.raises(MissingRunsError, match="experiment=ablation_order"):
        build(collect(tmp_path).at_scale("mini"))


def test_credit_in_other_rows_only_names_the_row_that_is_needed(tmp_path):
    """It named no finished run with credit, which there was."""
    own = {row: [run_with(tmp_path, row, 0, 10)] for row in ("theta_0_4", "chronological")}
    write_experiment(tmp_path, own, name="one_by_theta")
    needed = "no finished run with credit in a row called scpo .rows with credit here: theta_0_4, chronological.. Make"
    with pytest.raises(MissingRunsError, match=needed):
        build(collect(tmp_path).at_scale("mini"))


def test_both_orders_are_on_the_seeds_of_the_experiment_that_has_both(tmp_path):
    """The default was on the main table's seed 7, the chronological order on seeds 0 and 1."""
    both = {row: [run_with(tmp_path, row, seed, 10) for seed in (0, 1)] for row in ("scpo", "chronological")}
    write_experiment(tmp_path, both, name="ablation_order")
    write_experiment(tmp_path, {"scpo": [run_with(tmp_path, "scpo", 7, 10)]}, name="main_table")
    (block,) = build(collect(tmp_path).at_scale("mini")).numbers.blocks
    assert [cells[1] for cells in block.rows] == ["2/2", "2/2"]


def test_the_caption_names_the_seeds_where_another_experiment_has_more(tmp_path):
    few = {row: [run_with(tmp_path, row, 0, 10)] for row in ("scpo", "chronological")}
    write_experiment(tmp_path, few, name="ablation_order")
    write_experiment(tmp_path, {"scpo": [*few["scpo"], run_with(tmp_path, "scpo", 1, 10)]}, name="more_seeds")
    data = collect(tmp_path).at_scale("mini")
    said = "further seeds of rows that are shown on seed 0 (more_seeds: SCPO on seed 1)"
    assert said in build(data).numbers.caption
    assert said in fig_learning.build(data).numbers.caption


def test_the_caption_counts_the_logged_values_of_the_moving_average_not_the_steps(tmp_path):
    write_experiment(tmp_path, {"scpo": [run_with(tmp_path, "scpo", 0, 10)]})
    caption = build(collect(tmp_path).at_scale("mini")).numbers.caption
    assert "each seed's moving average over its last 5 logged values (of fewer at the beginning)" in caption
