"""The same choice of experiments and seeds gives the same seeds in every table and figure."""

import pytest

from analysis.build import build_from, builders
from analysis.figures import fig_study_effects
from analysis.rendering.table import Table
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.stats.comparisons import named_comparisons
from analysis.stats.study_rows import study_rows
from analysis.tables import tab_beyond, tab_study_effects
from scpo.records.files import write_json
from tests.support.study_runs import rising, write_study, write_study_run

MAIN, MORE = (0, 1, 2), (5, 6, 7, 8)
CURVES = {name: (lambda seed: rising(0.8, 0.01 * (seed % 3))) for name in ("scpo", "gigpo", "grpo", "chronological")}

# Tables whose lines are not rows, those of samples, and those of rows or metrics that these runs do not have.
WITHOUT_SEEDS = ("tab_hparams", "tab_shaper")
OF_SAMPLES = ("tab_cost", "fig_credit_heatmap", "fig_credit_tsne", "fig_motivation_tsne", "fig_pipeline")
OF_OTHER_RUNS = (
    "tab_ablation",
    "tab_precision",
    "fig_credit_trend",
    "fig_meaning",
    "fig_profiles",
    "fig_sensitivity",
    "fig_study_rates",
)
OWN = (("main_table",), ("more_seeds",))
NAMES = sorted(set(builders()) - {*WITHOUT_SEEDS, *OF_SAMPLES, *OF_OTHER_RUNS})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_study(folder, {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}, CURVES)
    primary = {"more_seeds": (("scpo", "gigpo"),)}
    write_study(folder, {"more_seeds": ("scpo", "gigpo")}, CURVES, seeds=MORE, primary=primary)
    # Of more_seeds' own runs, but one row lacks a seed.
    uneven = {"experiment": "uneven", "title": "Uneven", "scale": "study", "overrides": [], "rows": []}
    for row, seeds in (("scpo", MORE), ("gigpo", MORE[:3])):
        runs = [write_study_run(folder, row, seed, CURVES[row](seed)) for seed in seeds]
        uneven["rows"].append({"name": row, "label": row.upper(), "runs": runs})
    uneven["primary"] = {"measure": "validation_area", "comparisons": [["scpo", "gigpo"]]}
    write_json(folder / "experiments" / "uneven-study.json", uneven)
    return collect(folder)


def seeds_of(made):
    """The cells of the seeds' column, as numbers of seeds."""
    table = made if isinstance(made, Table) else made.numbers
    column = next(index for index, name in enumerate(table.words) if name in ("Seeds", "Pairs"))
    cells = [row[column] for block in table.blocks for row in block.rows]
    return {cell.split("/")[0].rstrip("†‡") for cell in cells if cell.strip("–n/a ")}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(experiments=("more_seeds",)), {"4"}),
        (Selection(experiments=("main_table",)), {"3"}),
        (Selection(experiments=("uneven",), common_seeds=True), {"3"}),
    ],
)
# A claim is judged by its own experiment only, which these need not be.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "tab_claims"])
def test_every_table_and_figure_has_the_seeds_of_the_chosen_experiments(data, name, selection, expected):
    chosen = selection.of(data).at_scale("study")
    assert seeds_of(builders()[name](chosen)) == expected


def test_claims_have_the_seeds_of_their_own_experiments(data):
    made = [builders()["tab_claims"](Selection(experiments=names).of(data).at_scale("study")) for names in OWN]
    assert [seeds_of(table) for table in made] == [{"3"}, set()]


def test_an_effect_of_chosen_experiments_is_over_their_pairs_alone(data):
    chosen = Selection(experiments=("more_seeds",)).of(data).at_scale("study")
    (comparison,) = [one for one in named_comparisons(chosen) if one.experiments[0] == "main_table" and one.finished]
    assert comparison.name == "SCPO − GiGPO"
    assert comparison.pairs.used == MORE


def test_captions_count_the_comparisons_that_chosen_seeds_leave_to_be_tested(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES, seeds=MAIN)
    primary = {"ablation": (("scpo", "chronological"),)}
    write_study(tmp_path, {"ablation": ("scpo", "chronological")}, CURVES, seeds=MORE, primary=primary)
    every = collect(tmp_path)
    chosen = Selection(experiments=("ablation",)).of(every)
    for build in (fig_study_effects.build, tab_study_effects.build):
        made = [build(data.at_scale("study")) for data in (every, chosen)]
        usual, some = [(table if isinstance(table, Table) else table.numbers).caption for table in made]
        assert "over the 3 comparisons of the study" in usual
        assert "over the 3 comparisons of the study (1 of them, with fewer than two pairs" in some
        assert "of the rows of ablation only those of ablation" in some


def test_rows_without_a_common_seed_are_named_instead_of_compared(tmp_path):
    primary = {"main_table": (("gigpo", "grpo"),), "more_seeds": (("scpo", "chronological"),)}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo", "grpo")}, CURVES, seeds=MAIN, primary=primary)
    write_study(tmp_path, {"more_seeds": ("scpo", "chronological")}, CURVES, seeds=MORE, primary=primary)
    data = Selection(common_seeds=True).of(collect(tmp_path)).at_scale("study")
    for build in (fig_study_effects.build, tab_study_effects.build):
        with pytest.raises(MissingRunsError, match=r"no seed is finished in all of .*; without chronological, 3 seeds"):
            build(data)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tab_claims"])
def test_a_row_of_rows_is_shown_or_named_as_not_shown(data, name, tmp_path):
    chosen = Selection(rows=("chronological", "gigpo")).of(data)
    report = build_from(chosen, tmp_path, only=[name])
    if name in ("tab_study_effects", "fig_study_curves"):
        # No experiment has both rows.
        assert [failure.name for failure in report.failures] == [name]
        return
    (output,) = report.outputs
    table = output.made if isinstance(output.made, Table) else output.made.numbers
    text = str(table.csv()) + table.full_caption
    assert "CHRONOLOGICAL" in text or "Variants of a method (1 row)" in text
    assert "GIGPO" in text or "GiGPO" in text


def test_chosen_variants_are_rows_of_the_table_by_panel(data):
    chosen = Selection(rows=("chronological", "gigpo")).of(data).at_scale("study")
    assert {row[0] for block in tab_beyond.build(chosen).blocks for row in block.rows} >= {"CHRONOLOGICAL"}


def test_a_run_that_no_experiment_planned_enters_no_mean_of_the_study(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES, seeds=MAIN)
    write_study_run(tmp_path, "scpo", 9, CURVES["scpo"](9))
    rows = {row.title: row for row in study_rows(collect(tmp_path).at_scale("study"))}
    assert {title: row.row.count for title, row in rows.items()} == {"SCPO": "3/3", "GiGPO": "3/3"}


@pytest.mark.parametrize("name", ["tab_study_effects", "fig_study_effects", "fig_study_curves", "tab_study"])
def test_finished_seeds_that_the_common_ones_leave_out_are_named(tmp_path, name):
    """A comparison over 3 of its 7 finished pairs read 3/3, and no sentence named the cut."""
    write_study(tmp_path / "runs", {"main_table": ("scpo", "gigpo", "grpo")}, CURVES, seeds=MAIN)
    write_study(tmp_path / "runs", {"more_seeds": ("scpo", "gigpo")}, CURVES, seeds=MORE)
    chosen = Selection(common_seeds=True).of(collect(tmp_path / "runs"))
    (output,) = build_from(chosen, tmp_path / "out", only=[name]).outputs
    caption = (output.made if isinstance(output.made, Table) else output.made.numbers).full_caption
    cut = "seeds 0 to 2 alone (--seeds common); left out: seeds 5 to 8 of"
    # The others show the rows of each experiment on its own seeds, of which none is left out.
    assert (cut in caption) == (name in ("tab_study_effects", "fig_study_effects"))


def test_the_table_by_panel_counts_the_variants_that_it_leaves_out(data):
    caption = tab_beyond.build(data.at_scale("study")).caption
    assert "Variants of a method (1 row) are in the tables and figures of their experiments." in caption


def test_named_comparisons_of_the_study_of_meaning_are_where_the_message_points(tmp_path):
    primary = {"meaning": (("scpo", "gigpo"),)}
    write_study(tmp_path, {"meaning": ("scpo", "gigpo")}, CURVES, primary=primary)
    with pytest.raises(MissingRunsError, match=r"study of meaning, which docs/meaning\.md and fig_meaning show"):
        tab_study_effects.build(collect(tmp_path).at_scale("study"))
