import csv
import io

import pytest

from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables.tab_ablation import build
from tests.support.run_records import log_only, write_ablation, write_experiment, write_run

FAMILY = "pick_and_place_simple"


def table(runs_dir, scale="mini"):
    return build(collect(runs_dir).at_scale(scale))


def rows(made):
    return list(csv.DictReader(io.StringIO(made.csv())))


def fixed_run(runs_dir, seed, before, last, **settings):
    """A run with chosen success on valid_seen, best in the middle of training."""
    run = write_run(runs_dir, seed=seed, panels=("valid_seen",), **settings)
    metric = "val/valid_seen/success_rate"
    log_only(runs_dir, run, metric, {0: before, 20: 0.9, 40: last})
    return run


def test_mean_and_std_over_seeds_by_hand(tmp_path):
    write_experiment(tmp_path, {"scpo": [fixed_run(tmp_path, 0, 0.2, 0.5), fixed_run(tmp_path, 1, 0.4, 0.7)]})
    before, last = (row for row in rows(table(tmp_path)) if row["block"].startswith("Measured"))
    assert (before["Checkpoint"], before["All mean"], before["All std"]) == ("before training", "30.0", "14.1")
    assert (last["Checkpoint"], last["All mean"], last["All std"]) == ("last", "60.0", "14.1")
    assert (last["All, best mean"], last["All, best std"]) == ("90.0", "0.0")
    assert last["Pick mean"] == ""  # never logged


def test_a_missing_seed_is_shown(tmp_path):
    runs = [
        fixed_run(tmp_path, 0, 0.2, 0.5),
        fixed_run(tmp_path, 1, 0.4, 0.7),
        write_run(tmp_path, seed=2, state="FAILED", panels=("valid_seen",)),
    ]
    write_experiment(tmp_path, {"scpo": runs})
    assert {row["Seeds"] for row in rows(table(tmp_path))} == {"3", "2/3"}


def test_further_seeds_in_another_experiment_are_named(tmp_path):
    first = fixed_run(tmp_path, 0, 0.2, 0.5)
    write_experiment(tmp_path, {"scpo": [first]}, name="ablation")
    write_experiment(tmp_path, {"scpo": [first, fixed_run(tmp_path, 1, 0.4, 0.7)]}, name="more_seeds")
    caption = table(tmp_path).caption
    assert "shown on seed 0 (more_seeds: SCPO on seed 1): --experiment more_seeds shows its own." in caption


def test_one_seed_has_no_deviation(tmp_path):
    write_experiment(tmp_path, {"scpo": [fixed_run(tmp_path, 0, 0.2, 0.5)]})
    assert rows(table(tmp_path))[-1]["All std"] == ""


def test_rows_of_another_benchmark_are_answered_with_the_one_of_the_ablation(tmp_path):
    write_ablation(tmp_path, seeds=(0,), overrides=("env=webshop",))
    with pytest.raises(MissingRunsError, match="no finished ablation runs on ALFWorld, by whose task families"):
        table(tmp_path)


def test_published_numbers_are_next_to_measured_ones_and_labelled(tmp_path):
    write_ablation(tmp_path)
    published = [row for row in rows(table(tmp_path)) if row["block"].startswith("Published")]
    assert [(row["Variant"], row["All mean"]) for row in published] == [
        ("SCPO (default)", "93.7"),
        ("− monotonicity", "90.1"),
    ]
    assert all("another scale" in row["block"] for row in published)


def test_the_mini_table_shows_every_panel_with_its_label_and_a_warning(tmp_path):
    write_ablation(tmp_path)
    made = table(tmp_path)
    titles = [block.title for block in made.blocks[1:]]
    labels = ("games trained on (train_games)", "(valid_seen)", "(valid_unseen)")
    assert all(label in title and "mini" in title for label, title in zip(labels, titles, strict=True))
    assert "do not separate the methods" in made.caption
    assert "compared with the paper's" in made.caption


def test_paper_and_mini_scale_are_never_in_one_table(tmp_path):
    write_ablation(tmp_path)
    paper = {"scpo": [write_run(tmp_path, seed=seed, scale="paper", steps=150) for seed in (0, 1, 2)]}
    write_experiment(tmp_path, paper, name="ablation", scale="paper")
    mini, large = table(tmp_path), table(tmp_path, "paper")
    assert "paper scale, alfworld" not in mini.csv()
    assert "mini" not in large.csv().lower()
    assert large.label != mini.label
    assert "do not separate" not in large.caption


def test_runs_of_other_settings_are_in_blocks_of_their_own(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="ablation_order")
    titles = [block.title for block in table(tmp_path).blocks[1:]]
    assert len(titles) == 6
    assert [title.count("trainer.steps=") for title in titles] == [0, 0, 0, 1, 1, 1]


def test_other_experiments_are_not_in_the_table(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="main_table")
    with pytest.raises(MissingRunsError, match="experiment=ablation"):
        table(tmp_path)


def test_nothing_finished_names_the_command(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, state="RUNNING")]})
    with pytest.raises(MissingRunsError, match=r"python sweep\.py \+experiment=ablation_monotonicity"):
        table(tmp_path)


def test_latex_is_escaped_and_balanced(tmp_path):
    write_ablation(tmp_path)
    text = table(tmp_path).tex()
    assert r"games trained on (train\_games)" in text
    assert r"\ensuremath{-} monotonicity" in text
    assert r"93.7$_{\pm 4.1}$" in text
    assert text.isascii()
    rows_of_text = [line for line in text.splitlines() if line.count("&")]
    assert {line.count("&") for line in rows_of_text} == {11}


def test_markdown_rows_are_as_wide_as_their_heading_and_the_published_have_no_empty_column(tmp_path):
    write_ablation(tmp_path)
    printed, *measured = table(tmp_path).md().split("**Measured")
    for text, cells in ((printed, 11), *((text, 12) for text in measured)):
        assert {line.count("|") - 1 for line in text.splitlines() if line.startswith("|")} == {cells}


def test_printed_differences_have_the_minus_sign_as_the_measured_ones(tmp_path):
    write_ablation(tmp_path)
    made = table(tmp_path)
    assert "| −3.6 |" in made.md()
    assert r"& \ensuremath{-}3.6 " in made.tex()


def test_the_difference_to_the_default_is_paired_by_seed(tmp_path):
    default = [fixed_run(tmp_path, 0, 0.2, 0.5), fixed_run(tmp_path, 1, 0.2, 0.7)]
    changed = [
        fixed_run(tmp_path, 0, 0.2, 0.4, row="no_monotonicity"),
        fixed_run(tmp_path, 1, 0.2, 0.4, row="no_monotonicity"),
    ]
    write_experiment(tmp_path, {"scpo": default, "no_monotonicity": changed})
    last = rows(table(tmp_path))[-1]
    assert (last["Δ All mean"], last["Δ All low"], last["Δ All high"]) == ("-20.0", "-147.1", "+107.1")


def test_controls_are_in_the_ablation_table(tmp_path):
    control = write_run(tmp_path, "random_match", overrides=("method.shaper.allocation=random_match",))
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)], "random_match": [control]}, name="controls")
    assert {row["Variant"] for row in rows(table(tmp_path))} == {"SCPO (default)", "random_match"}


def write_two_seed_sets(folder, finished):
    """The main table on seeds 0 to 2, and an experiment with a variant on seeds 50 to 52."""
    main = {row: [write_run(folder, row, seed, panels=("valid_seen",)) for seed in (0, 1, 2)] for row in ("scpo",)}
    write_experiment(folder, {"scpo": main["scpo"]}, name="main_table")
    state = "DONE" if finished else "RUNNING"
    more = {
        "scpo": [write_run(folder, "scpo", seed, panels=("valid_seen",)) for seed in (50, 51, 52)],
        "chronological": [
            write_run(folder, "chronological", seed, panels=("valid_seen",), state=state) for seed in (50, 51, 52)
        ],
    }
    write_experiment(folder, more, name="wider")


def test_rows_on_other_seeds_are_a_block_of_their_own_with_the_default_on_these(tmp_path):
    write_two_seed_sets(tmp_path, finished=True)
    measured = [row for row in rows(table(tmp_path)) if row["block"].startswith("Measured") and row["All mean"]]
    shown = {(row["block"].partition("(valid_seen)")[2][:19], row["Variant"]) for row in measured}
    assert shown == {
        (", seeds 50 to 52, 140"[:19], "SCPO (default)"),
        (", seeds 50 to 52, 140"[:19], "chronological order"),
    }
    (change,) = (row for row in measured if row["Variant"] == "chronological order" and row["Δ All mean"])
    assert change["Seeds"] == "3/3"


def test_a_block_whose_variants_have_no_finished_run_is_left_out(tmp_path):
    write_two_seed_sets(tmp_path, finished=False)
    with pytest.raises(MissingRunsError):
        table(tmp_path)


def write_own(folder, compared=()):
    """An experiment of rows that neither the paper's ablation nor the controls have, on two seeds."""
    last = {"loo": (0.5, 0.7), "loo_no_group": (0.4, 0.4), "gigpo": (0.3, 0.3)}
    overrides = {"loo": ("method=rloo",), "loo_no_group": ("method=grpo",), "gigpo": ("method=gigpo",)}
    runs = {
        row: [fixed_run(folder, seed, 0.2, rate, overrides=overrides[row]) for seed, rate in enumerate(rates)]
        for row, rates in last.items()
    }
    write_experiment(folder, runs, name="loo_paper", compared=compared)
    return runs


def chosen(folder, rows=(), experiment="loo_paper"):
    made = build(Selection(rows=rows, experiments=(experiment,)).of(collect(folder)).at_scale("mini"))
    return made, rows_of_last(made)


def rows_of_last(made):
    return [(row["Variant"], row["Δ All mean"]) for row in rows(made) if row["Checkpoint"] == "last"]


def test_a_chosen_experiment_shows_its_own_rows_minus_the_first_of_them(tmp_path):
    write_own(tmp_path)
    with pytest.raises(MissingRunsError, match="--experiment NAME shows the rows of another experiment"):
        table(tmp_path)
    made, shown = chosen(tmp_path)
    assert shown == [("loo", ""), ("loo_no_group", "-20.0"), ("gigpo", "-30.0")]
    assert made.blocks[-1].title.startswith("Measured, mini scale, loo_paper, ALFWorld")
    assert "Of loo_paper, the default is loo." in made.caption
    assert rows(made)[-1]["Δ All low"] == "-157.1"  # -20 and -40 points: 12.706 x 14.14 / sqrt(2) around -30


def test_the_default_of_a_chosen_experiment_is_the_row_of_all_its_comparisons_and_the_first_drawn(tmp_path):
    write_own(tmp_path, compared=[("loo_no_group", "loo"), ("loo_no_group", "gigpo")])
    _, shown = chosen(tmp_path)
    assert shown == [("loo_no_group", ""), ("loo", "+20.0"), ("gigpo", "-10.0")]
    _, shown = chosen(tmp_path, rows=("gigpo", "loo"))
    assert shown == [("gigpo", ""), ("loo", "+30.0")]


def test_the_papers_ablation_is_the_same_whether_it_is_chosen_or_not(tmp_path):
    write_ablation(tmp_path)
    made, _ = chosen(tmp_path, experiment="ablation_monotonicity")
    assert made.csv() == table(tmp_path).csv()
    assert made.caption == table(tmp_path).caption


def test_no_published_number_is_shown_for_a_row_of_another_experiment_with_the_same_name(tmp_path):
    rows_of_own = {
        "loo": [fixed_run(tmp_path, seed, 0.2, 0.5, overrides=("method=rloo",)) for seed in (0, 1)],
        "scpo": [fixed_run(tmp_path, seed, 0.2, 0.6, group_size=4) for seed in (0, 1)],
    }
    write_experiment(tmp_path, rows_of_own, name="loo_paper")
    made, shown = chosen(tmp_path)
    assert [name for name, _ in shown] == ["loo", "SCPO (default)"]
    assert [block.title[:8] for block in made.blocks] == ["Measured"]
