import json

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from analysis.figures.curves import curve
from analysis.figures.fig_learning import build
from analysis.rendering.style import COLUMN_WIDTH, PAGE_HEIGHT, PAGE_WIDTH, Look, drawn_as
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables import tab_main
from tests.support.run_records import log_lines, log_only, write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, write_study


def titles(figure):
    return [axis.get_title().replace("\n", " ") for axis in figure.axes]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def write_with_score(tmp_path):
    """A run with one panel, which has a score beside its success."""
    run = write_run(tmp_path, panels=("valid_seen",))
    path = tmp_path / run["id"] / "metrics.jsonl"
    logged = [json.loads(line) for line in path.read_text().splitlines()]
    for line in logged:
        if "val/valid_seen/success_rate" in line:
            line["val/valid_seen/score"] = 0.5
    log_lines(tmp_path / run["id"], logged)
    write_experiment(tmp_path, {"scpo": [run]})


def test_training_and_every_panel_get_axes_of_equal_range(tmp_path):
    write_ablation(tmp_path)
    figure = build(collect(tmp_path).at_scale("mini")).figure
    assert titles(figure) == [
        "training: rollouts as sampled",
        "validation: games trained on",
        "validation: held out, seen rooms",
        "validation: held out, unseen rooms",
    ]
    assert {axis.get_ylim() for axis in figure.axes} == {(0, 100)}
    assert figure.get_size_inches()[0] == PAGE_WIDTH


def test_the_mini_figure_says_what_it_cannot_show(tmp_path):
    write_ablation(tmp_path)
    assert "do not separate" in build(collect(tmp_path).at_scale("mini")).figure.get_suptitle()


def test_lines_are_means_over_seeds_in_percent(tmp_path):
    runs = []
    for seed, value in ((0, 0.2), (1, 0.6)):
        run = write_run(tmp_path, seed=seed, panels=("valid_seen",))
        log_only(tmp_path, run, "val/valid_seen/success_rate", {0: value, 40: value})
        runs.append(run)
    write_experiment(tmp_path, {"scpo": runs})
    axis = build(collect(tmp_path).at_scale("mini")).figure.axes[0]
    assert list(axis.lines[0].get_xdata()) == [0, 10, 20, 30, 40]
    assert list(axis.lines[0].get_ydata()) == pytest.approx([40] * 5)
    low, high = axis.collections[0].get_datalim(axis.transData).intervaly
    assert (low, high) == pytest.approx((40 - 28.284, 40 + 28.284), abs=0.01)


def test_a_curve_ends_where_a_seed_has_no_value(tmp_path):
    ids = write_ablation(tmp_path, rows=("scpo",), seeds=(0, 1))["scpo"]
    path = tmp_path / ids[1] / "metrics.jsonl"
    log_lines(tmp_path / ids[1], [json.loads(line) for line in path.read_text().splitlines()[:-5]])
    data = collect(tmp_path).at_scale("mini")
    made = curve(data, data.sections[0].rows[0], "val/valid_seen/success_rate")
    assert made.steps == [0, 10, 20, 30]
    assert {summary.n for summary in made.summaries} == {2}


def test_different_numbers_of_seeds_stand_beside_the_rows(tmp_path):
    finished = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    broken = [write_run(tmp_path, "no_monotonicity"), write_run(tmp_path, "no_monotonicity", 1, state="INTERRUPTED")]
    write_experiment(tmp_path, {"scpo": finished, "no_monotonicity": broken})
    assert legend(build(collect(tmp_path).at_scale("mini")).figure) == ["SCPO (default)", "− monotonicity, 1/2"]


def test_benchmarks_get_rows_of_their_own(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="longer")
    figure = build(collect(tmp_path).at_scale("mini")).figure
    assert len(figure.axes) == 8
    assert len(legend(figure)) == 1


def test_nothing_finished_names_the_command(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, state="FAILED")]})
    with pytest.raises(MissingRunsError, match=r"python sweep\.py \+experiment=ablation_monotonicity"):
        build(collect(tmp_path).at_scale("mini"))


def test_the_headline_is_not_cut(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    figure = build(collect(tmp_path).at_scale("mini")).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    extent = figure._suptitle.get_window_extent(renderer)
    assert extent.x0 > 0.02 * figure.bbox.width
    assert extent.x1 < 0.98 * figure.bbox.width


def test_what_does_not_fit_on_a_page_is_named_and_stays_in_the_table(tmp_path):
    for steps in range(40, 100, 10):
        write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=steps)]}, name=f"steps_{steps}")
    drawing = build(collect(tmp_path).at_scale("mini"))
    assert drawing.figure.get_size_inches()[1] < 9
    assert len(drawing.numbers.blocks) == 6
    assert "Only in the table: 1 other setting." in drawing.figure.get_suptitle().replace("\n", " ")
    assert drawing.numbers.caption.count("Not drawn, in the table: ALFWorld, tiny language model; trainer.steps=") == 1


def test_a_column_is_no_higher_than_a_page_and_labels_steps_once_for_each_line_of_panels(tmp_path):
    for steps in range(40, 90, 10):
        write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=steps)]}, name=f"steps_{steps}")
    with drawn_as(Look(width=COLUMN_WIDTH)):
        drawing = build(collect(tmp_path).at_scale("mini"))
    assert drawing.figure.get_size_inches()[1] <= PAGE_HEIGHT
    drawn = len(drawing.figure.axes) // 4
    assert 0 < drawn < 5
    assert f"Only in the table: {5 - drawn} other setting" in drawing.figure.get_suptitle().replace("\n", " ")
    assert [bool(axis.get_xlabel()) for axis in drawing.figure.axes] == [False, False, False, True] * drawn
    assert len(drawing.numbers.blocks) == 5


def test_variants_that_are_not_drawn_are_named(tmp_path):
    rows = {row: [write_run(tmp_path, row)] for row in ("scpo", "chronological")}
    rows["gigpo"] = [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))]
    write_experiment(tmp_path, rows)
    drawing = build(collect(tmp_path).at_scale("mini"))
    assert legend(drawing.figure) == ["GiGPO", "SCPO"]
    assert "Not drawn here: chronological order." in drawing.numbers.caption


def test_what_sets_a_line_of_panels_apart_is_a_footnote_and_its_seeds_are_counted_beside_it(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    gigpo = [write_run(tmp_path, "gigpo", seed, steps=80, overrides=("method=gigpo",)) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)], "gigpo": gigpo}, name="longer")
    drawing = build(collect(tmp_path).at_scale("mini"))
    labels = {axis.get_ylabel().replace("\n", " ") for axis in drawing.figure.axes if axis.get_ylabel()}
    assert any("1/1 to 2/2 seeds" in label for label in labels)
    assert not any("trainer.steps" in label for label in labels)
    assert "trainer.steps=" in drawing.figure.get_suptitle().replace("\n", " ")
    assert sorted(legend(drawing.figure)) == ["GiGPO", "SCPO"]


def test_runs_that_two_experiments_share_are_drawn_once_and_no_footnote_lacks_its_mark(tmp_path):
    own = "trainer.optimizer.learning_rate=0.004"  # SCPO's rate, which is the usual one of its ablation
    shared = {
        "gigpo": [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))],
        "scpo": [write_run(tmp_path, overrides=(own,))],
    }
    grpo = [write_run(tmp_path, "grpo", overrides=("method=grpo",))]
    write_experiment(tmp_path, {**shared, "grpo": grpo}, name="main_table")
    variant = [write_run(tmp_path, "chronological", overrides=(own, "method.shaper.order=chronological"))]
    write_experiment(tmp_path, {**shared, "chronological": variant})
    data = collect(tmp_path).at_scale("mini")
    assert len(data.sections) == 2
    drawing = build(data)
    assert len(drawing.numbers.blocks) == 1
    assert len(drawing.figure.axes) == 4
    marks = {mark for mark in "†‡§" if mark in drawing.figure.get_suptitle()}
    assert marks == {mark for mark in "†‡§" if mark in "".join(legend(drawing.figure))}


def test_a_line_of_panels_that_is_drawn_alone_is_not_set_apart_from_one_that_is_not(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="main_table")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="longer")
    alone = Selection(experiments=("longer",)).of(collect(tmp_path).at_scale("mini"))
    drawing = build(alone)
    assert len(alone.sections) == 1
    assert alone.sections[0].differs.startswith("trainer.steps=80")
    assert "trainer.steps" not in drawing.figure.get_suptitle()
    assert "trainer.steps" not in drawing.numbers.blocks[0].title + drawing.numbers.caption


def test_a_shared_key_names_the_benchmark_where_a_row_is_set_apart(tmp_path):
    curves = {row: lambda seed: rising(0.8) for row in ("scpo", "gigpo")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    write_study(tmp_path, {"webshop_study": ("scpo", "gigpo")}, curves, env="webshop")
    data = collect(tmp_path).at_scale("study")
    differs = {part.env: part.row("gigpo").differs + part.row("scpo").differs for part in data.sections}
    assert differs["alfworld"].startswith("trainer.optimizer.learning_rate=")
    assert differs["webshop"] == ""
    drawing = build(data)
    note = f"† ALFWorld: {differs['alfworld']}."
    assert note in drawing.figure.get_suptitle().replace("\n", " ")
    assert note in drawing.numbers.caption
    assert "".join(legend(drawing.figure)).count("†") == 1
    marked = {block.title.split(",")[0] for block in drawing.numbers.blocks if "†" in str(block.rows)}
    assert marked == {"ALFWorld"}


def test_in_a_column_each_panel_names_its_own_quantity(tmp_path):
    write_with_score(tmp_path)
    with drawn_as(Look(width=COLUMN_WIDTH)):
        figure = build(collect(tmp_path).at_scale("mini")).figure
    found = {axis.get_title().split(":")[0]: axis.get_ylabel().splitlines()[-1] for axis in figure.axes}
    assert found == {
        "training": "success (%)",
        "validation": "success (%)",
        "validation, score": "score (%)",
    }


def test_beside_each_other_a_panel_of_another_quantity_has_a_label_of_its_own(tmp_path):
    write_with_score(tmp_path)
    figure = build(collect(tmp_path).at_scale("mini")).figure
    assert [axis.get_ylabel().splitlines()[-1:] for axis in figure.axes] == [["success (%)"], [], ["score (%)"]]


def test_a_benchmark_that_does_not_fit_is_named_in_the_figure(tmp_path):
    curves = {row: (lambda seed: rising(0.8, 0.01 * seed)) for row in ("scpo", "gigpo")}
    for env in ("alfworld", "webshop"):
        write_study(tmp_path, {f"main_table_{env}": ("scpo", "gigpo")}, curves, env=env)
    for size, said in ((8, False), (12, True)):
        with drawn_as(Look(width=COLUMN_WIDTH, font_size=size)):
            figure = build(collect(tmp_path).at_scale("study")).figure
        headline = figure.get_suptitle().replace("\n", " ")
        assert ("Only in the table: WebShop, choice policy." in headline) is said
        assert any("WebShop" in axis.get_ylabel() for axis in figure.axes) is not said


def test_the_table_has_the_marks_of_the_key(tmp_path):
    curves = {name: (lambda seed: rising(0.8)) for name in ("scpo", "gigpo", "crbc")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    write_study(tmp_path, {"more_seeds": ("crbc",)}, curves, seeds=(5, 6, 7))
    drawing = build(collect(tmp_path).at_scale("study"))
    marked = {label for label in legend(drawing.figure) if label[-1] in "†‡"}
    assert {label[:4] for label in marked} >= {"CRBC"}
    assert marked <= {row[1] for row in drawing.numbers.blocks[0].rows}
    assert "on seeds 5 to 7, the rows of main_table on seeds 0 to 2" in drawing.numbers.caption


def test_a_solid_line_of_training_hides_no_dashed_one(tmp_path):
    curves = {name: (lambda seed: rising(0.8)) for name in ("scpo", "gigpo")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    training = build(collect(tmp_path).at_scale("study")).figure.axes[0]
    order = {line.is_dashed(): line.get_zorder() for line in training.get_lines()}
    assert 1 < order[False] < order[True]


def test_the_highest_score_is_not_called_what_tab_main_calls_the_score_of_the_best_checkpoint(tmp_path):
    metrics = [f"val/test/{name}" for name in ("success_rate", "score")]
    run = write_run(tmp_path, overrides=("env=webshop", "trainer=local"), panels=("test",))
    numbers = ((0, 0.5, 0.9), (20, 0.8, 0.6), (40, 0.7, 0.5))
    log_lines(tmp_path / run["id"], [{"step": s, metrics[0]: a, metrics[1]: b} for s, a, b in numbers])
    write_experiment(tmp_path, {"scpo": [run]}, name="main_table")
    data = collect(tmp_path).at_scale("mini")
    learning = build(data).numbers
    (score,) = (row for block in learning.blocks for row in block.rows if "score" in row[0])
    assert score[3 + learning.numbers.index("Highest")].text == "90.0"
    main = tab_main.build(data)
    best = len(main.words) + main.numbers.index("Score, best")
    assert main.blocks[0].rows[0][best].text == "60.0ʳ"
    assert "of the score the highest score itself" in learning.caption


def test_the_key_names_each_label_of_rows_of_one_name_with_other_settings(tmp_path):
    grpo = write_run(tmp_path, "grpo", overrides=("method=grpo",))
    for experiment, label, alpha in (("first", "Ours", 1.0), ("second", "Ours, alpha 2", 2.0)):
        ours = write_run(tmp_path, "ours", overrides=(f"method.shaper.alpha={alpha}",))
        write_experiment(tmp_path, {"grpo": [grpo], "ours": [ours]}, name=experiment, labels={"ours": label})
    figure = build(collect(tmp_path).at_scale("mini")).figure
    (key,) = figure.legends
    assert [text.get_text().rstrip("†‡") for text in key.get_texts()] == ["GRPO", "Ours / Ours, alpha 2"]
