import csv
import io

import pytest
from omegaconf import OmegaConf

from analysis.figures import fig_learning
from analysis.rendering.table import NONE, Number
from analysis.selection import Selection, has_method_label
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.sources.rows import Row
from analysis.tables import tab_beyond
from analysis.tables.tab_main import build
from scpo.errors import ConfigError
from scpo.schema.method import METHOD_LABELS
from sweeps.compose.overrides import CONF
from tests.support.run_records import log_lines, log_only, write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, write_study

SUCCESS = "val/valid_seen/success_rate"
GIGPO, SCPO = ("method=gigpo", "trainer=local"), ("method=scpo", "trainer=local")
SHOP = ("env=webshop", "trainer=local")


def rows(runs_dir, scale):
    made = build(collect(runs_dir).at_scale(scale))
    return list(csv.DictReader(io.StringIO(made.csv())))


def logged(runs_dir, row, seed, curve, metric=SUCCESS, **settings):
    run = write_run(runs_dir, row, seed, **settings)
    log_only(runs_dir, run, metric, curve)
    return run


@pytest.fixture
def paper_runs(tmp_path):
    """Two seeds of GiGPO at 1.5B, one of SCPO with another failed, and SCPO on WebShop."""
    runs = {
        "gigpo": [
            logged(tmp_path, "gigpo", seed, {0: 0.1, 75: best, 150: last}, scale="paper", overrides=GIGPO)
            for seed, best, last in ((0, 0.9, 0.8), (1, 0.95, 0.9))
        ],
        "scpo": [
            logged(tmp_path, "scpo", 0, {0: 0.1, 150: 0.95}, scale="paper", overrides=SCPO),
            write_run(tmp_path, "scpo", 1, scale="paper", state="FAILED", overrides=SCPO),
            logged(tmp_path, "scpo", 0, {150: 0.7}, "val/test/score", scale="paper", overrides=SHOP),
        ],
    }
    write_experiment(tmp_path, runs, name="main_table", scale="paper")
    return tmp_path


def test_published_measured_and_difference_are_below_each_other(paper_runs):
    table = [row for row in rows(paper_runs, "paper") if row["block"].startswith("Qwen2.5-1.5B")]
    at = next(i for i, row in enumerate(table) if row["Method"] == "GiGPO*")
    names = ("Numbers", "Seeds", "All mean", "All std", "All source", "All, best mean", "All, best source")
    assert [tuple(row[name] for name in names) for row in table[at : at + 3]] == [
        ("quoted", "3", "", "", "", "86.7", "copied"),
        ("re-run here", "2/2; n/a", "85.0", "7.1", "re-run here", "92.5", "re-run here"),
        ("re-run − copied", "", "-1.7", "", "", "+5.8", ""),
    ]


def test_every_number_of_a_method_says_where_it_comes_from(paper_runs):
    made = build(collect(paper_runs).at_scale("paper"))
    for block in made.blocks:
        for row in block.rows:
            sources = {cell.source for cell in row if isinstance(cell, Number) and cell != NONE}
            wanted = {"quoted": {"copied"}, "published": {"copied"}, "re-run here": {"re-run here"}}
            assert sources <= wanted.get(row[2], {""})
    assert "± 1.7ᶜ" in made.md()
    assert r"$_{\pm 1.7}$$^{\mathrm{c}}$" in made.tex()


def test_a_missing_seed_and_both_benchmarks_are_shown(paper_runs):
    table = [row for row in rows(paper_runs, "paper") if row["block"].startswith("Qwen2.5-1.5B")]
    last = next(row for row in table if row["Numbers"] == "re-run here" and row["Score mean"])
    assert (last["Seeds"], last["All mean"], last["All std"], last["Score mean"]) == ("1/2; 1/1", "95.0", "", "70.0")


def test_every_published_row_is_there_and_quoted_ones_are_marked(paper_runs):
    table = rows(paper_runs, "paper")
    printed = [row for row in table if row["Numbers"] in ("published", "quoted")]
    assert len(printed) == 2 + 11 + 11
    assert {row["Method"] for row in printed if row["Numbers"] == "quoted"} == {"EMPG*", "GiGPO*", "HCAPO*", "HGPO*"}


def test_the_best_of_each_column_is_bold_as_the_paper_prints_it(paper_runs):
    text = build(collect(paper_runs).at_scale("paper")).tex()
    assert r"\textbf{97.6}$_{\pm 1.8}$" in text  # HCAPO, Clean, 1.5B
    assert r"\textbf{95.44}$_{\pm 0.62}$" in text  # HGPO, All, 7B
    assert text.isascii()


def test_the_mini_table_holds_no_published_number_and_says_so(tmp_path):
    write_experiment(
        tmp_path,
        {"scpo": [write_run(tmp_path)], "gigpo": [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))]},
        name="main_table",
    )
    made = build(collect(tmp_path).at_scale("mini"))
    assert {row["Numbers"] for row in csv.DictReader(io.StringIO(made.csv()))} == {*("re-run here", "paired by seed")}
    assert "do not separate the methods" in made.caption
    assert "5.0 points too high; here, 4 checkpoints of 140 at " in made.caption
    measured = [block.title for block in made.blocks if block.title.startswith("Measured")]
    assert [title.rpartition("(")[2] for title in measured] == ["valid_seen)", "valid_unseen)", "train_games)"]


def test_the_bias_is_at_the_highest_mean_of_a_row_whatever_row_comes_first(tmp_path):
    """It was at the last success of the first finished run, which the caption did not name."""
    curves = {"grpo": lambda seed: rising(0.6), "gigpo": lambda seed: rising(0.8 + 0.05 * (seed % 2))}
    curves["scpo"] = lambda seed: rising(0.7)
    for order in (("grpo", "scpo", "gigpo"), ("gigpo", "grpo", "scpo")):
        folder = tmp_path / order[0]
        write_study(folder, {"main_table": order}, curves, seeds=(0, 1))
        caption = build(collect(folder).at_scale("study")).caption
        assert "here, 4 checkpoints of 140 at 82 %, the mean of GiGPO at the last checkpoint and the highest" in caption
        assert "a checkpoint before training is not counted" in caption


def test_paper_and_mini_scale_never_meet(paper_runs):
    write_experiment(paper_runs, {"scpo": [write_run(paper_runs)]}, name="main_table_mini")
    assert "mini scale" not in build(collect(paper_runs).at_scale("paper")).csv()


def test_an_ablation_without_other_runs_makes_no_main_table(tmp_path):
    write_ablation(tmp_path)
    with pytest.raises(MissingRunsError, match="experiment=main_table"):
        build(collect(tmp_path).at_scale("mini"))


def test_a_run_of_train_py_is_in_the_table(tmp_path):
    logged(tmp_path, "scpo", 0, {0: 0.1, 40: 0.5}, overrides=SCPO, panels=("valid_seen",))
    (row,) = rows(tmp_path, "mini")
    assert (row["Method"], row["Seeds"], row["All mean"], row["All, best mean"]) == ("SCPO", "1/1", "50.0", "50.0")


def test_last_and_best_checkpoint_have_columns_of_their_own(tmp_path):
    run = write_run(tmp_path, panels=("valid_seen",))
    family = "val/valid_seen/pick_and_place_simple/success_rate"
    log_lines(tmp_path / run["id"], [{"step": s, SUCCESS: a, family: p} for s, a, p in ((0, 0.9, 0.2), (40, 0.5, 1.0))])
    write_experiment(tmp_path, {"scpo": [run]}, name="main_table")
    (row,) = rows(tmp_path, "mini")
    assert (row["Pick mean"], row["All mean"], row["All, best mean"]) == ("100.0", "50.0", "90.0")


def test_the_mark_of_measured_numbers_is_explained_at_every_scale(paper_runs, tmp_path):
    assert "numbers with ʳ were re-run here" in build(collect(paper_runs).at_scale("paper")).caption
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path / "mini")]}, name="main_table")
    made = build(collect(tmp_path / "mini").at_scale("mini"))
    assert "ʳ" in made.md().split(made.caption)[0]
    assert "Numbers with ʳ were measured in these runs" in made.caption


def test_columns_and_caption_leave_out_a_benchmark_that_no_row_has(tmp_path):
    logged(tmp_path, "scpo", 0, {0: 0.1, 40: 0.5}, overrides=SCPO, panels=("valid_seen",))
    made = build(collect(tmp_path).at_scale("mini"))
    assert made.numbers == ("All", "All, best")
    assert "WebShop" not in made.caption
    assert "(seeds: finished/planned). Columns without a word" in made.caption

    logged(tmp_path, "gigpo", 0, {40: 0.7}, "val/test/score", overrides=("method=gigpo", *SHOP), scale="mini")
    both = build(collect(tmp_path).at_scale("mini"))
    assert {"All", "Score", "Succ"} <= set(both.numbers)
    assert "average score and success rate (%) on WebShop" in both.caption
    assert "of WebShop where they differ" in both.caption


def test_a_method_on_seeds_that_the_main_table_has_none_of_is_marked(tmp_path):
    of_main = {"scpo": [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]}
    write_experiment(tmp_path, of_main, name="main_table")
    other = {"gigpo": [write_run(tmp_path, "gigpo", seed, overrides=("method=gigpo",)) for seed in (50, 51)]}
    write_experiment(tmp_path, other, name="wider")
    made = build(collect(tmp_path).at_scale("mini"))
    assert "on seeds 50, 51, the rows of main_table on seeds 0 to 2." in made.caption
    assert {cells[1] for block in made.blocks for cells in block.rows} == {"GiGPO†", "SCPO"}


def test_a_row_has_the_label_that_the_user_gives_also_if_it_is_named_as_a_method(tmp_path):
    """A row gigpo that is called "GiGPO strong" was printed as GiGPO."""
    strong = write_run(tmp_path, "gigpo", 0, overrides=("method=gigpo", "method.estimator.omega=3.0"))
    rows = {"gigpo": [strong], "grpo": [write_run(tmp_path, "grpo", 0, overrides=("method=grpo",))]}
    write_experiment(tmp_path, rows, name="main_table", labels={"gigpo": "GiGPO strong", "grpo": "GRPO (default)"})
    made = build(collect(tmp_path).at_scale("mini"))
    assert {cells[1] for block in made.blocks for cells in block.rows} == {"GiGPO strong", "GRPO"}


def test_differences_name_the_default_row_as_the_user_calls_it(tmp_path):
    rows = {
        "gigpo": [write_run(tmp_path, "gigpo", 0, overrides=("method=gigpo",))],
        "scpo": [write_run(tmp_path, overrides=("method.shaper.alpha=2.0",))],
    }
    write_experiment(tmp_path, rows, name="main_table", labels={"scpo": "SCPO tuned", "gigpo": "GiGPO"})
    made = build(collect(tmp_path).at_scale("mini"))
    assert {cells[1] for block in made.blocks for cells in block.rows} == {"GiGPO", "SCPO tuned", "SCPO tuned − GiGPO"}


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_labels_of_our_experiments_for_methods_are_known(path):
    """Print has the method's label for these and the user's for others."""
    for row in OmegaConf.load(path).get("experiment", {}).get("rows", []):
        if row.name in METHOD_LABELS and "label" in row:
            assert has_method_label(Row(row.name, row.label, ()))


def test_further_seeds_of_a_row_in_another_experiment_are_named_with_the_option_that_shows_them(tmp_path):
    first = [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]
    write_experiment(tmp_path, {"scpo": first}, name="main_table")
    fresh = [write_run(tmp_path, seed=seed) for seed in (50, 51)]
    write_experiment(tmp_path, {"scpo": [*first, *fresh]}, name="more_seeds")
    write_experiment(tmp_path, {"scpo": fresh[:1]}, name="part")
    write_run(tmp_path, seed=52, state="INTERRUPTED")
    data = collect(tmp_path)
    sentence = "shown on seeds 0 to 2 (more_seeds: SCPO on seeds 50, 51): --experiment more_seeds shows its own."
    for table in (build, tab_beyond.build):
        assert sentence in table(data.at_scale("mini")).caption
    chosen = build(Selection(experiments=("more_seeds",)).of(data).at_scale("mini"))
    assert {cells[3] for block in chosen.blocks for cells in block.rows} == {"5/5"}
    assert "further seeds" not in chosen.caption


def write_loose(folder):
    """Finished runs of train.py: GiGPO, and SCPO in two configurations and with another theta."""
    write_run(folder, "gigpo", 0, overrides=("method=gigpo",), steps=20)
    for seed in (0, 1):
        write_run(folder, "scpo", seed)
    write_run(folder, "scpo", 2, steps=30)
    write_run(folder, "scpo", 3, steps=10, state="INTERRUPTED")
    write_run(folder, "scpo", 3, overrides=("method.shaper.theta=0.9",))


def test_finished_runs_of_no_experiment_are_rows_whatever_their_configuration(tmp_path):
    write_loose(tmp_path)
    data = collect(tmp_path)
    made = build(data.at_scale("mini"))
    shown = {cells[1] for block in made.blocks for cells in block.rows}
    assert shown == {"GiGPO", "SCPO, steps=40", "SCPO, steps=30", "SCPO, theta0.9"}
    (note,) = (problem.reason for problem in data.problems if "differ in more" in problem.reason)
    assert note.endswith("they are 2 rows, scpo_steps_40, scpo_steps_30")


def test_no_heading_speaks_of_others_that_are_not_there(tmp_path):
    write_loose(tmp_path)
    every = build(collect(tmp_path).at_scale("mini"))
    assert any("trainer.steps=20 (the others: 40)" in block.title for block in every.blocks)
    made = build(Selection(rows=("gigpo",)).of(collect(tmp_path)).at_scale("mini"))
    assert made.blocks
    assert all("trainer.steps=20" in block.title and "the others" not in block.title for block in made.blocks)


def test_rows_without_a_common_seed_are_named_as_left_out(tmp_path):
    write_loose(tmp_path)
    data = Selection(common_seeds=True).of(collect(tmp_path))
    (problem,) = (problem for problem in data.problems if problem.path == "--seeds common")
    assert problem.reason.startswith("no seed is finished in all of scpo_steps_40, theta0.9 (mini scale, alfworld")


def test_differences_name_the_rates_of_both_sides_and_no_mark_relative_to_other_rows(tmp_path):
    methods = ("grpo", "gigpo", "crbc", "scpo")
    curves = {name: (lambda seed: rising(0.5, 0.01 * seed)) for name in methods}
    write_study(tmp_path, {"main_table": methods}, curves)
    made = build(collect(tmp_path).at_scale("study"))
    (shown,) = {tuple(cells[1] for cells in block.rows) for block in made.blocks if "SCPO minus" in block.title}
    assert shown == ("SCPO − GRPO (rates 4e-3, 2e-3)", "SCPO − GiGPO (rates 4e-3, 2e-3)", "SCPO − CRBC")
    assert "learning_rate=0.002 (the others: 0.004)" in made.caption  # of the rows with the numbers of each method
    assert "the learning rates of SCPO and of the method" in made.caption
    assert "SCPO − GiGPO (rates 4e-3, 2e-3)" in made.csv()


def test_differences_of_rows_that_train_longer_name_both_values(tmp_path):
    rows = {"gigpo": [write_run(tmp_path, "gigpo", overrides=GIGPO, steps=20)]}
    rows["scpo"] = [write_run(tmp_path, "scpo", overrides=SCPO, steps=40)]
    write_experiment(tmp_path, rows, name="main_table")
    made = build(collect(tmp_path).at_scale("mini"))
    shown = [cells[1] for block in made.blocks for cells in block.rows if "−" in cells[1]]
    mark = "".join(mark for mark, text in made.footnotes.items() if text == "SCPO: trainer.steps=40 (GiGPO: 20)")
    assert set(shown) == {f"SCPO − GiGPO{mark}"} != {"SCPO − GiGPO"}


def test_an_unknown_row_is_answered_with_one_that_has_results(tmp_path):
    write_loose(tmp_path)
    write_run(tmp_path, "scpo", 4, steps=9, state="INTERRUPTED")
    with pytest.raises(ConfigError, match=r"did you mean scpo_steps_[34]0"):
        Selection(rows=("scpo",)).of(collect(tmp_path))


def test_titles_say_that_observations_are_reworded(tmp_path):
    for dose, experiment in ((1, "meaning"), (0.25, "meaning_dose25")):
        words = ("env.wordings.told_to=credit", f"env.wordings.dose={dose}")
        curves = {row: (lambda seed: rising(0.5, 0.01 * seed)) for row in ("grpo", "crbc")}
        write_study(tmp_path, {experiment: ("grpo", "crbc")}, curves, overrides=words)
    data = collect(tmp_path).at_scale("study")
    for made in (build(data), fig_learning.build(data).numbers):
        doses = [word for block in made.blocks for word in ("dose 1", "dose 0.25") if word in block.title]
        assert len(doses) == len(made.blocks)
        assert all("reworded observations, " in block.title for block in made.blocks)
    figure = fig_learning.build(data).figure
    labels = [" ".join(axis.get_ylabel().split()) for axis in figure.axes]
    assert any("choice policy, reworded observations, dose 1" in label for label in labels)


def write_own(folder, *, name="mine", words=("method=grpo",), experiment="mymix"):
    """Two methods, and a row with a name of its own."""
    rows = {method: [write_run(folder, method, overrides=(f"method={method}",))] for method in ("scpo", "gigpo")}
    rows[name] = [write_run(folder, name, overrides=words)]
    write_experiment(folder, rows, name=experiment)
    return collect(folder)


def labels(data):
    made = build(data.at_scale("mini"))
    return [cells[1] for block in made.blocks if "(valid_seen)" in block.title for cells in block.rows], made.caption


def test_an_experiments_only_row_of_a_method_is_in_the_table_under_its_own_label(tmp_path):
    data = write_own(tmp_path)
    shown, caption = labels(data)
    assert shown == ["GiGPO", "mine", "SCPO", "SCPO − GiGPO", "SCPO − mine"]
    assert "Variants of a method" not in caption
    drawn = fig_learning.build(data.at_scale("mini")).numbers
    assert {cells[1] for block in drawn.blocks for cells in block.rows} == {"GiGPO", "mine", "SCPO"}
    # The table has the method's own row once another experiment has one.
    write_experiment(tmp_path, {"grpo": [write_run(tmp_path, "grpo", 1, overrides=("method=grpo",))]}, name="other")
    assert labels(collect(tmp_path))[0][:3] == ["GRPO†", "GiGPO", "SCPO"]
    assert "mine" in labels(Selection(experiments=("mymix",)).of(collect(tmp_path)))[0]


@pytest.mark.parametrize(
    "words",
    [
        ("method=scpo", "method.shaper.theta=0.4"),  # not the only row of its method
        ("method=grpo", "method.estimator.std_floor=0.1"),  # other settings than the method's row elsewhere
    ],
)
def test_a_variant_is_counted_and_shown_only_where_it_is_named(tmp_path, words):
    write_experiment(tmp_path, {"grpo": [write_run(tmp_path, "grpo", overrides=("method=grpo",))]}, name="other")
    data = write_own(tmp_path, words=words)
    of_own = Selection(experiments=("mymix",)).of(data)
    shown, caption = labels(of_own)
    assert "mine" not in shown
    assert "Variants of a method (1 row) are in" in caption
    named, caption = labels(Selection(rows=("scpo", "gigpo", "mine")).of(data))
    assert named[:3] == ["GiGPO", "mine", "SCPO"]
    assert "Variants of a method" not in caption


def test_an_only_row_with_other_settings_of_the_credit_is_a_variant(tmp_path):
    methods = ("gigpo", "grpo")
    rows = {name: [write_run(tmp_path, name, overrides=(f"method={name}",))] for name in methods}
    rows["mine"] = [write_run(tmp_path, "mine", overrides=("method=scpo", "method.shaper.theta=0.4"))]
    write_experiment(tmp_path, rows, name="mymix")
    assert labels(collect(tmp_path))[0] == ["GRPO", "GiGPO"]


@pytest.mark.parametrize("alpha", [0.5, 1.0], ids=["default", "other"])
def test_a_single_run_of_its_method_does_not_hide_an_experiments_row(tmp_path, alpha):
    """A run of train.py, or of settings that the row had before it was edited."""
    rows = {"gigpo": [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))]}
    rows["mine"] = [write_run(tmp_path, "mine", overrides=("method=scpo", "method.shaper.alpha=2.0"))]
    write_experiment(tmp_path, rows, name="mymix")
    before = labels(collect(tmp_path))[0]
    assert before == ["GiGPO", "mine"]
    write_run(tmp_path, overrides=(f"method.shaper.alpha={alpha}",))
    after, caption = labels(collect(tmp_path))
    single = {0.5: "SCPO", 1.0: "SCPO, alpha=1.0"}[alpha]
    assert {label.rstrip("†‡") for label in after if "−" not in label} == {"GiGPO", "mine", single}
    assert "Variants of a method" not in caption
