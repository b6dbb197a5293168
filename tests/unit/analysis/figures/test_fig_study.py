"""The study's figures: which rows are drawn, against what, and what the caption's table holds."""

import csv
import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
from cycler import cycler
from matplotlib.text import Text

from analysis import names
from analysis.figures import fig_learning, fig_study_curves, fig_study_effects, fig_study_rates
from analysis.figures.fig_study_effects import FEW, STYLES, UNNAMED
from analysis.rendering.style import COLUMN_WIDTH, Look, drawn_as, house_style, legible
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.stats.comparisons import HIGHER, LOWER, OPEN, named_comparisons
from scpo.errors import ConfigError
from tests.support.run_records import config, write_json
from tests.support.study_runs import PRIMARY, rising, set_processors, write_study, write_study_run

EXPERIMENTS = {
    "ablation": ("scpo", "chronological"),
    "main_table": ("scpo", "gigpo", "grpo"),
    "scorers": ("scpo", "scpo_lexical", "gigpo"),
}
CURVES = {
    "scpo": lambda seed: rising(0.9, 0.01 * (seed % 2)),
    "gigpo": lambda seed: rising(0.88, 0.01 * (seed % 3)),
    "grpo": lambda seed: rising(0.6, 0.01 * (seed % 2)),
    "chronological": lambda seed: rising(0.9, 0.002 * seed),
    "scpo_lexical": lambda seed: rising(0.7, 0.01 * (seed % 2)),
}
PRIMARY_TOO = {"scorers": (("scpo_lexical", "gigpo"),)}
CREDIT = {"scpo": {"credit/steps": 1.5, "credit/precision": 0.1, "credit/precision_uncredited": 0.2}}


@pytest.fixture
def data(tmp_path):
    write_study(tmp_path, EXPERIMENTS, CURVES, credit=CREDIT, primary=PRIMARY | PRIMARY_TOO)
    return collect(tmp_path).at_scale("study")


def test_the_main_table_comes_first_and_what_is_not_drawn_is_named(data, monkeypatch):
    monkeypatch.setattr(fig_study_curves, "MOST", 2)
    made = fig_study_curves.build(data)
    assert [block.title for block in made.numbers.blocks] == ["Main_table: ALFWorld", "Ablation: ALFWorld"]
    assert "not drawn, in the tables: Scorers" in made.numbers.caption
    assert [axis.get_xlabel() for axis in made.figure.axes[1::2]] == [
        "minus GiGPO (points)",
        "minus SCPO (points)",
    ]


def test_the_curves_figure_is_a_column_wide_with_no_text_below_six_points(data):
    figure = fig_study_curves.build(data).figure
    assert figure.get_size_inches()[0] == COLUMN_WIDTH
    texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(text.get_fontsize() for text in texts) >= fig_study_curves.TINY


def test_each_row_is_named_beside_its_difference_in_the_colour_of_its_curve(data):
    left, right = fig_study_curves.build(data).figure.axes[:2]
    labels = right.get_yticklabels()
    # SCPO's rate at this scale is not GiGPO's.
    assert [label.get_text() for label in labels] == ["SCPO, at\u00a04e-3", "GiGPO", "GRPO"]
    assert [label.get_color() for label in labels] == [legible(line.get_color()) for line in left.get_lines()]


def test_a_difference_over_fewer_pairs_than_the_rows_seeds_names_them(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES)
    set_processors(tmp_path, "grpo", ("a processor", "another", "a processor"))
    made = fig_study_curves.build(collect(tmp_path).at_scale("study"))
    labels = [label.get_text() for label in made.figure.axes[1].get_yticklabels()]
    assert labels == ["SCPO, at\u00a04e-3", "GiGPO", "GRPO, 2 pairs"]
    assert [row[0] for row in made.numbers.blocks[0].rows][2] == "GRPO, 2 pairs"
    left_out = "GRPO − GiGPO: seed 1 ran on two types of processor, left out"
    assert f"Of the pairs: {left_out}." in made.numbers.caption


def test_every_text_of_a_figure_has_the_font_size_that_was_chosen_whatever_the_style(data):
    style = (("font.size", 10.0), ("axes.titlesize", 20.0), ("xtick.labelsize", 3.0), ("axes.labelsize", "xx-large"))
    for build in (fig_study_curves.build, fig_study_effects.build, fig_learning.build):
        sizes = []
        for look in (
            Look(width=12),
            Look(width=12, font_size=8, style=style),
            Look(width=12, font_size=12, style=style),
        ):
            with drawn_as(look), house_style():
                texts = [text for text in build(data).figure.findobj(Text) if text.get_text().strip()]
                sizes.append(sorted({round(text.get_fontsize(), 3) for text in texts}))
        usual, same, larger = sizes
        assert usual == same
        assert larger == pytest.approx([1.5 * size for size in usual], abs=0.002)


def test_a_font_that_is_too_large_for_the_width_is_refused(data):
    with drawn_as(Look(width=6.75, font_size=10)), pytest.raises(ConfigError, match=r"below 8\.12 its labels cover"):
        fig_study_effects.build(data)


def test_curves_are_the_mean_over_the_seeds(data):
    scpo = fig_study_curves.build(data).figure.axes[0].get_lines()[0]
    assert list(scpo.get_xdata()) == [0, 10, 20, 30, 40]
    assert scpo.get_ydata()[-1] == pytest.approx((90 + 91 + 90) / 3)


def test_effects_are_sorted_by_the_difference_to_gigpo(data):
    made = fig_study_effects.build(data)
    rows = [row[0] for row in made.numbers.blocks[0].rows]
    assert rows == ["SCPO", "SCPO, CHRONOLOGICAL", "GiGPO", "SCPO_LEXICAL", "GRPO"]
    labels = [label.get_text() for label in made.figure.axes[0].get_yticklabels()]
    assert labels == [f"{row}, 3/3" for row in rows]


def test_only_what_was_named_and_is_resolved_is_filled_and_the_key_says_so(data):
    made = fig_study_effects.build(data)
    kinds = {row[0]: row[2:4] for row in made.numbers.blocks[0].rows}
    assert kinds["SCPO"] == (OPEN, "–")
    assert kinds["GRPO"] == (LOWER, UNNAMED)  # GiGPO - GRPO is named; SCPO - GRPO is not
    assert kinds["GiGPO"] == ("–", OPEN)
    keys = [text.get_text() for text in made.figure.legends[0].get_texts()]
    assert keys == [style[0] for kind, style in STYLES.items() if kind != FEW]
    named = {one.name: one.effect.verdict for one in named_comparisons(data)}
    assert named["GiGPO − GRPO"] == HIGHER  # the text bolds what the figure fills


def test_a_caption_without_a_tested_comparison_speaks_of_no_correction(tmp_path):
    write_study(tmp_path, {"beyond": ("scpo", "gigpo")}, CURVES, primary={})
    caption = fig_study_effects.build(collect(tmp_path).at_scale("study")).numbers.caption
    assert "No comparison that was named before the runs has two pairs, so none is tested." in caption
    assert "Holm" not in caption


def test_a_far_row_is_an_arrow_with_its_value_and_does_not_squeeze_the_others(tmp_path):
    curves = dict.fromkeys(("gigpo", "grpo", "crbc", "gagpo", "scpo", "chronological"), CURVES["gigpo"])
    curves |= {"random_match": lambda seed: rising(0.05, 0.001 * seed)}
    write_study(tmp_path, {"beyond": tuple(curves)}, curves, primary={})
    axis = fig_study_effects.build(collect(tmp_path).at_scale("study")).figure.axes[0]
    assert axis.get_xlim()[0] > -30
    assert "−42" in [text.get_text() for text in axis.texts]


def test_an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow(tmp_path):
    curves = dict.fromkeys(("gigpo", "grpo", "crbc", "gagpo", "scpo", "chronological"), CURVES["gigpo"])
    curves |= {"random_match": lambda seed: rising(0.88, 0.1 * (seed - 1))}
    write_study(tmp_path, {"beyond": tuple(curves)}, curves, primary={})
    axis = fig_study_effects.build(collect(tmp_path).at_scale("study")).figure.axes[0]
    low, high = axis.get_xlim()
    arrows = [(line.get_marker(), *line.get_xdata()) for line in axis.lines if line.get_marker() in "<>"]
    assert arrows == [("<", low), (">", high)]


def test_a_row_that_is_not_trained_is_left_out(tmp_path):
    curves = CURVES | {"plain": lambda seed: {0: 0.01, 40: 0.01}}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "plain")}, curves)
    rows = fig_study_effects.build(collect(tmp_path).at_scale("study")).numbers.blocks[0].rows
    assert [row[0] for row in rows] == ["SCPO", "GiGPO"]


def test_credit_is_shown_of_the_rows_that_gave_any(data):
    rows = {row[0]: row for row in fig_study_effects.build(data).numbers.blocks[0].rows}
    assert rows["SCPO"][7].text == "1.50 ± 0.00"
    assert rows["SCPO"][8].text == "10.0 ± 0.0"
    assert rows["GRPO"][7].text == "–"


@pytest.mark.parametrize("steps", [(0.25, 1.4), (1.1, 1.25), (0.8, 0.8), (0.02, 0.09), (120, 900)])
def test_the_ticks_of_credited_steps_keep_apart_on_an_axis_below_a_decade(tmp_path, steps):
    credit = {row: {"credit/steps": mean} for row, mean in zip(("scpo", "chronological"), steps, strict=True)}
    write_study(tmp_path, EXPERIMENTS, CURVES, credit=credit)
    figure = fig_study_effects.build(collect(tmp_path).at_scale("study")).figure
    (axis,) = (axis for axis in figure.axes if axis.get_xlabel().startswith("credited steps"))
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    ticks = [tick for tick in axis.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    ticks += [tick for tick in axis.xaxis.get_minor_ticks() if low <= tick.get_loc() <= high]
    labels = [tick.label1 for tick in ticks if tick.label1.get_text()]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert len(boxes) >= 1 + (steps[0] != steps[1])
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def write_sweep(tmp_path):
    """GiGPO at three rates, the best one in the middle, and a main table."""
    areas = {"5.0e-4": 0.7, "1.0e-3": 0.9, "2.0e-3": 0.8}
    listed = []
    for rate, end in areas.items():
        words = (f"trainer.optimizer.learning_rate={rate}",)
        runs = [
            write_study_run(tmp_path, "gigpo", seed, rising(end, 0.01 * (seed % 2)), overrides=words)
            for seed in (100, 101)
        ]
        name = f"gigpo_lr_{rate[0]}e_{rate[-1]}"
        listed.append({"name": name, "label": f"GiGPO, {rate}", "runs": runs})
    record = {"experiment": "learning_rates", "title": "Rates", "scale": "study", "rows": listed}
    write_json(tmp_path / "experiments" / "learning_rates-study.json", record)
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)  # at the rate of conf/scale/method


def test_the_sweep_of_rates_marks_the_rate_of_the_main_table(tmp_path):
    write_sweep(tmp_path)
    used = config("study", "", 0, ("method=gigpo",))["trainer"]["optimizer"]["learning_rate"]
    made = fig_study_rates.build(collect(tmp_path).at_scale("study"))
    (row,) = made.numbers.blocks[0].rows
    assert row[:3] == ("GiGPO", "2", fig_study_rates.rate_text(used))
    assert made.numbers.numbers == ("Area at 5e-4 (%)", "Area at 1e-3 (%)", "Area at 2e-3 (%)")
    assert [cell.text for cell in row[3:]] == ["35.4 ± 0.6", "45.4 ± 0.6", "40.4 ± 0.6"]
    assert [cell.bold for cell in row[3:]] == [rate == used for rate in (5e-4, 1e-3, 2e-3)]
    caption = made.numbers.caption
    assert "edge of the sweep" not in caption
    assert "Not marked" not in caption
    assert "over the finished tuning runs, on seeds 100, 101; small dots: seeds." in caption
    assert "the rate of the method's row in the main table, or else in the first other experiment" in caption


def test_what_the_sweep_says_of_its_edge_and_of_unmarked_rates_counts_the_rates_that_are_not_selected(tmp_path):
    write_sweep(tmp_path)

    def caption(*rows):
        data = Selection(rows=rows).of(collect(tmp_path))
        return fig_study_rates.build(data.at_scale("study")).numbers.caption

    inside = caption("gigpo_lr_5e_4", "gigpo_lr_1e_3")
    assert "edge of the sweep" not in inside
    assert "no other experiment" not in inside
    assert "Not marked, since the rate of their row is not among those shown: GiGPO." in inside
    assert "Not marked" not in caption("gigpo_lr_1e_3", "gigpo_lr_2e_3")


def test_rows_without_a_sweep_are_answered_with_those_of_the_sweep_and_not_with_its_command(tmp_path):
    write_sweep(tmp_path)
    data = Selection(rows=("scpo", "gigpo")).of(collect(tmp_path)).at_scale("study")
    with pytest.raises(MissingRunsError) as refused:
        fig_study_rates.build(data)
    assert refused.value.needed.startswith("row of the sweep of learning rates is selected")
    assert "sweep.py" not in refused.value.command
    assert refused.value.command.endswith("--rows gigpo_lr_5e_4,gigpo_lr_1e_3,gigpo_lr_2e_3")


def test_the_rate_of_another_benchmark_is_not_marked_in_the_sweep(tmp_path):
    rate = ("trainer.optimizer.learning_rate=5.0e-4",)
    runs = [write_study_run(tmp_path, "gigpo", 100, rising(0.7, 0), overrides=rate)]
    record = {"experiment": "learning_rates", "title": "Rates", "scale": "study"}
    record["rows"] = [{"name": "gigpo_lr_5e_4", "label": "GiGPO, 5e-4", "runs": runs}]
    write_json(tmp_path / "experiments" / "learning_rates-study.json", record)
    write_study(tmp_path, {"webshop_study": ("scpo", "gigpo")}, CURVES, env="webshop", overrides=rate)
    (row,) = fig_study_rates.build(collect(tmp_path).at_scale("study")).numbers.blocks[0].rows
    assert row[:3] == ("GiGPO", "1", "–")


def test_the_sweep_of_rates_names_variants_of_a_method_by_their_rows(tmp_path):
    words = ("trainer.group_size=4", "trainer.optimizer.learning_rate=5.0e-4")
    runs = [write_study_run(tmp_path, "gigpo", 100, rising(0.7, 0), overrides=words)]
    listed = [{"name": "gigpo_4_lr_5e_4", "label": "GiGPO, 4 siblings, 5e-4", "runs": runs}]
    record = {"experiment": "learning_rates", "title": "Rates", "scale": "study", "rows": listed}
    write_json(tmp_path / "experiments" / "learning_rates-study.json", record)
    made = fig_study_rates.build(collect(tmp_path).at_scale("study")).numbers
    (row,) = made.blocks[0].rows
    assert row[:3] == ("GiGPO, 4 siblings", "1", "–")
    unmarked = "Not marked, since no other experiment has a row of theirs at these rates: GiGPO, 4 siblings."
    assert unmarked in made.caption


def test_a_best_rate_at_the_edge_of_the_sweep_is_named():
    sweep = fig_study_rates.Sweep(
        "gigpo", "GiGPO", {5e-4: [0.3, 0.4], 1e-3: [0.5, 0.4]}, frozenset(), frozenset(), None
    )
    assert sweep.at_the_edge
    inside = replace(sweep, areas={**sweep.areas, 2e-3: [0.4, 0.4]})
    assert not inside.at_the_edge


def test_without_the_sweep_the_rates_name_their_command(data):
    with pytest.raises(MissingRunsError, match="experiment=learning_rates scale=study"):
        fig_study_rates.build(data)


def test_nothing_to_pair_names_the_command(tmp_path):
    write_study(tmp_path, {"main_table": ("grpo",)}, CURVES, primary={})
    with pytest.raises(MissingRunsError, match="experiment=main_table scale=study"):
        fig_study_effects.build(collect(tmp_path).at_scale("study"))


def test_figures_of_the_pages_width_refuse_a_column_in_which_their_labels_would_cover_each_other(data):
    with drawn_as(Look(width=COLUMN_WIDTH)), pytest.raises(ConfigError, match=r"it is 3\.25 inches wide"):
        fig_study_effects.build(data)


def write_rates(runs, seeds=(0, 1, 2), of_second=(0, 1)):
    """SCPO and GiGPO at their own rates, and GiGPO at another one in a second experiment."""
    write_study(runs, {"first": ("scpo", "gigpo")}, CURVES, seeds=seeds, primary={})
    faster = {"gigpo": lambda seed: rising(0.8, 0.01 * seed)}
    rate = ("trainer.optimizer.learning_rate=0.03",)
    write_study(runs, {"second": ("gigpo",)}, faster, seeds=of_second, primary={}, overrides=rate)


def test_two_settings_of_one_method_are_two_rows_with_their_settings_in_their_names(tmp_path):
    write_rates(tmp_path)
    made = fig_study_effects.build(collect(tmp_path).at_scale("study"))
    rows = {row[0]: row for row in made.numbers.blocks[0].rows}
    assert set(rows) == {"SCPO", "GiGPO, learning_rate=0.002", "GiGPO, learning_rate=0.03"}
    assert [row[4].text for row in rows.values()] == ["4e−3", "2e−3", "3e−2"]
    first = made.figure.axes[0]
    assert "minus GiGPO,\nlearning_rate=0.002" in first.get_xlabel()
    assert "GiGPO is the row “GiGPO, learning_rate=0.002”." in made.numbers.caption
    # The reference is one setting, and not compared with itself.
    assert rows["GiGPO, learning_rate=0.002"][5].text == "–"
    diamonds = [line for line in first.get_lines() if line.get_marker() == "D"]
    assert len(diamonds) == 1


def test_two_pairs_have_no_interval_in_the_table_either(tmp_path):
    write_rates(tmp_path)
    made = fig_study_effects.build(collect(tmp_path).at_scale("study"))
    second = next(row for row in made.numbers.blocks[0].rows if "0.03" in row[0])
    assert second[1] == "2/2"
    assert second[5].text != "–"
    assert second[5].interval is None


def test_a_named_comparison_with_one_pair_is_not_called_unnamed(tmp_path):
    ids = write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES)
    for run in ids["grpo"][1:]:
        shutil.rmtree(tmp_path / run)
    made = fig_study_effects.build(collect(tmp_path).at_scale("study"))
    verdicts = {row[0]: row[2] for row in made.numbers.blocks[0].rows}
    assert verdicts["GRPO"] == FEW
    assert "Cross: a comparison that was named before the runs" in made.numbers.caption
    assert STYLES[FEW][0] in [text.get_text() for text in made.figure.legends[0].get_texts()]


def test_a_mark_names_the_numbers_that_some_seeds_lack(tmp_path):
    write_study_run(tmp_path, "scpo", 0, CURVES["scpo"](0), credit={"credit/steps": 0.5})
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES, credit=CREDIT)
    made = fig_study_effects.build(collect(tmp_path).at_scale("study"))
    assert [row[0] for row in made.numbers.blocks[0].rows] == ["SCPO†", "GiGPO"]
    lacking = "† over 2 of 3 finished seeds: shorten the plan, credited, shorten the plan, uncredited."
    assert lacking in made.numbers.caption
    assert made.figure.axes[0].get_yticklabels()[0].get_text() == "SCPO†, 3/3"
    # The picture alone explains its mark, below the line that every picture has.
    plain, explained = names.STUDY_TITLE, " ".join(made.figure.get_suptitle().split())
    assert explained == f"{plain} {lacking}"


def test_a_row_has_one_colour_in_all_panels_under_a_style_with_colours(tmp_path):
    write_study(
        tmp_path, {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological", "grpo")}, CURVES
    )
    palette = cycler(color=["#111111", "#222222", "#333333", "#444444", "#555555"])
    with drawn_as(Look(style=(("axes.prop_cycle", palette),))):
        made = fig_study_curves.build(collect(tmp_path).at_scale("study"))
    colors = {}
    for axis in made.figure.axes[1::2]:
        for label in axis.get_yticklabels():
            colors.setdefault(label.get_text().partition(", at")[0], set()).add(label.get_color())
    assert len(made.figure.axes) == 4
    assert len(colors) == 4
    assert all(len(own) == 1 for own in colors.values())


def demo_and_a_second_sweep(folder):
    """The rows of ``make demo``, and the same methods once more on other games."""
    rows = ("gigpo", "scpo")
    fewer = [
        f"env.{panel}.games=60" for panel in ("train_panel", *(f"validation_panels.valid_{k}seen" for k in ("", "un")))
    ]
    write_study(folder, {"demo": ("grpo", *rows)}, CURVES, primary={}, overrides=fewer, credit=CREDIT)
    write_study(folder, {"one": rows}, CURVES, primary={}, seeds=(0, 1), credit=CREDIT)
    return collect(folder).at_scale("study")


def test_settings_that_all_drawn_rows_have_are_named_once_above_the_panels(tmp_path):
    made = fig_study_effects.build(demo_and_a_second_sweep(tmp_path))
    labels = [label.get_text() for label in made.figure.axes[0].get_yticklabels()]
    assert labels == ["SCPO, 3/3", "GiGPO, 3/3", "GRPO, 3/3"]
    above = " ".join(made.figure.get_suptitle().split())
    assert "train_panel.games=60, valid_seen.games=60, valid_unseen.games=60" in above
    assert made.files()


@pytest.mark.parametrize("word", ["W" * 300, "MMMM " * 80])
def test_a_row_with_a_long_name_is_drawn_at_the_usual_size_and_whole_in_the_table(tmp_path, word):
    write_study(tmp_path, {"demo": ("gigpo", "scpo_lexical", "scpo")}, CURVES, primary={})
    record = tmp_path / "experiments" / "demo-study.json"
    write_json(record, json.loads(record.read_text().replace("SCPO_LEXICAL", word)))
    made = fig_study_effects.build(collect(tmp_path).at_scale("study"))
    (label,) = (text for text in map(Text.get_text, made.figure.axes[0].get_yticklabels()) if "…" in text)
    assert label.startswith("SCPO")
    assert label.endswith(" …, 3/3")
    assert word.strip() in made.numbers.md()
    assert made.files()


def test_effects_name_the_benchmark_that_is_drawn_and_the_others_that_this_choice_could_draw(tmp_path):
    write_study(tmp_path, {"main_table": tuple(CURVES)}, CURVES)
    alone = fig_study_effects.build(collect(tmp_path).at_scale("study")).numbers.caption
    assert "Drawn is" not in alone
    write_study(tmp_path, {"webshop_study": ("scpo", "gigpo")}, CURVES, env="webshop")
    data = collect(tmp_path)
    assert "Drawn is ALFWorld; --env webshop draws WebShop." in effects(data)
    for choice in (Selection(envs=("webshop",)), Selection(envs=("alfworld",)), Selection(experiments=("main_table",))):
        assert "Drawn is" not in effects(data, choice)


def effects(data, choice=None):
    """Caption of fig_study_effects."""
    return fig_study_effects.build((choice or Selection()).of(data).at_scale("study")).numbers.caption


def test_rows_with_another_setting_are_named_where_they_are_not_drawn(tmp_path):
    write_rates(tmp_path)
    fewer = tuple(f"env.validation_panels.valid_{k}seen.games=60" for k in ("", "un"))
    write_study(tmp_path, {"third": ("scpo", "gigpo")}, CURVES, primary={}, overrides=fewer)
    data = collect(tmp_path)
    chosen = Selection(experiments=("first", "third"))
    for choice in (chosen, Selection()):
        left = effects(data, choice).partition("Not drawn, ")[2]
        assert "SCPO, valid_seen.games=60" in left
        assert "GiGPO, " in left
        assert "--experiment" not in left
    made = fig_study_effects.build(chosen.of(data).at_scale("study")).numbers
    assert len(made.blocks[0].rows) == 2
    assert "Not drawn" not in effects(data, Selection(experiments=("first",)))


def test_effects_name_learning_rates_only_where_they_differ(tmp_path):
    write_study(tmp_path, {"webshop_study": ("scpo", "gigpo")}, CURVES, env="webshop")
    shop = effects(collect(tmp_path))
    assert "learning rate" not in shop
    write_study(tmp_path, {"main_table": tuple(CURVES)}, CURVES)
    assert "The rows train at different learning rates (in this figure's table)" in effects(collect(tmp_path))


def test_effects_name_the_training_steps_of_precision_and_what_is_credited_without_a_shaper(tmp_path):
    write_study(tmp_path, EXPERIMENTS, CURVES)
    assert "Far right" not in effects(collect(tmp_path))
    write_study(
        tmp_path, {"beyond": ("crbc", "gigpo")}, CURVES | {"crbc": CURVES["scpo"]}, credit={"crbc": CREDIT["scpo"]}
    )
    caption = effects(collect(tmp_path))
    assert "on samples at 40 training steps from 1 to 40, mean over those of them that have such steps" in caption
    assert "with a positive step term of the advantage in rows without a shaper" in caption


def test_on_common_seeds_effects_and_the_table_of_comparisons_may_differ_as_the_caption_explains(data):
    assert "tab_study_effects" not in effects(data)
    common = effects(data, Selection(common_seeds=True))
    assert "Seeds: those that all drawn rows have finished; tab_study_effects takes those that its own" in common


def test_steps_to_a_level_that_no_seed_reaches_have_no_number_in_the_table_of_curves(tmp_path):
    """They had the last step, ± 0.0, as if all seeds had reached it there."""
    curves = {"scpo": lambda seed: rising(0.9), "gigpo": lambda seed: rising(0.1)}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    table = fig_study_curves.build(collect(tmp_path).at_scale("study")).numbers
    lines = {line["Row"]: line for line in csv.DictReader(io.StringIO(table.csv()))}
    scpo, gigpo = (next(line for row, line in lines.items() if row.startswith(name)) for name in ("SCPO", "GiGPO"))
    assert (scpo["Reach 50 %"], gigpo["Reach 50 %"]) == ("3/3", "0/3")
    assert scpo["Steps to 50 % mean"]
    assert gigpo["Steps to 50 % mean"] == ""
    assert "counts with its last step (restricted mean)" in table.caption


def test_curves_name_the_seeds_that_other_experiments_have_of_their_rows(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)
    assert "further seeds" not in fig_study_curves.build(collect(tmp_path).at_scale("study")).numbers.caption
    write_study(tmp_path, {"more_seeds": ("scpo",)}, CURVES, seeds=(50, 51), primary={})
    caption = fig_study_curves.build(collect(tmp_path).at_scale("study")).numbers.caption
    assert "mean over a row's finished seeds of the panel's experiment" in caption
    assert "shown on seeds 0 to 2 (more_seeds: SCPO on seeds 50, 51)" in caption


def test_curves_name_the_rows_that_have_no_pair_with_the_reference_of_their_panels(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)
    assert "Without a difference" not in fig_study_curves.build(collect(tmp_path).at_scale("study")).numbers.caption
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES)
    record = tmp_path / "experiments" / "main_table-study.json"
    entries = json.loads(record.read_text())
    late = [write_study_run(tmp_path, "grpo", seed, CURVES["grpo"](seed)) for seed in (7, 8)]
    entries["rows"][2]["runs"] = late
    write_json(record, entries)
    made = fig_study_curves.build(collect(tmp_path).at_scale("study"))
    assert "Without a difference, because they have no pairs with the reference: GRPO." in made.numbers.caption
    assert "minus those of the reference, which the axis names" in made.numbers.caption


def test_effects_name_only_the_references_that_have_run(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "grpo")}, CURVES, primary={})
    caption = effects(collect(tmp_path))
    assert "of trained rows minus that of SCPO, paired by seed" in caption
    assert "sorted by" not in caption
    assert "GiGPO" not in caption
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES, primary={})
    caption = effects(collect(tmp_path))
    assert "minus that of GiGPO and of SCPO, paired by seed" in caption
    assert "sorted by the difference to GiGPO." in caption
