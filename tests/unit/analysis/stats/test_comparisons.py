"""Named comparisons of the study: each once, corrected over all, of pairs that may be compared."""

import json
import math

import pytest

from analysis.selection import Selection
from analysis.sources.archive_writing import write_archive
from analysis.sources.collect import collect
from analysis.stats.comparisons import (
    HIGHER,
    LOWER,
    NOT_RUN,
    OPEN,
    Effect,
    compare,
    corrected,
    named_comparisons,
    superseded,
)
from analysis.stats.comparisons import tested as family_in_words
from analysis.stats.measures import AREA, BETTER, FASTER
from analysis.stats.named import named_by
from analysis.stats.seed_statistics import holm, p_value
from analysis.stats.study_rows import selected, study_rows
from analysis.tables import tab_study_effects
from scpo.intervals import summarise
from tests.support.run_records import write_json
from tests.support.study_runs import rising, set_processors, write_study, write_study_run

NOISE = (0.0, 0.01, -0.01)
MAIN = {"main_table": ("scpo", "gigpo", "grpo")}
CURVES = {
    "scpo": lambda seed: rising(0.9, 0.002 * NOISE[seed % 3]),
    "scpo_gigpo": lambda seed: rising(0.9, 0.002 * NOISE[seed % 3]),
    "gigpo": lambda seed: rising(0.9, NOISE[seed % 3]),
    "grpo": lambda seed: rising(0.7, NOISE[seed % 3]),
    "chronological": lambda seed: rising(0.95, NOISE[(seed + 1) % 3]),
}


def study(tmp_path, experiments=MAIN, **settings):
    write_study(tmp_path, experiments, CURVES, **settings)
    return collect(tmp_path).at_scale("study")


def by_name(data):
    return {comparison.name: comparison for comparison in named_comparisons(data)}


def test_two_editions_of_an_experiment_are_two_comparisons_even_on_other_seeds(tmp_path):
    write_study(tmp_path / "second", MAIN, CURVES, seeds=(20, 21, 22))
    write_study(tmp_path / "first", MAIN, CURVES, overrides=("trainer.optimizer.learning_rate=1e-4",))
    data = collect([tmp_path / "second", tmp_path / "first"]).at_scale("study")
    counts = {name: comparison.pairs.count for name, comparison in by_name(data).items()}
    assert counts == {
        "SCPO − GiGPO": "3/3",
        "GiGPO − GRPO": "3/3",
        "SCPO, learning_rate=0.0001 − GiGPO, learning_rate=0.0001": "3/3",
        "GiGPO, learning_rate=0.0001 − GRPO, learning_rate=0.0001": "3/3",
    }


def two_sources(tmp_path, archived, *, named=(3, 4, 5), refused=(0, 1, 2), overrides=()):
    """One source that names SCPO − GiGPO in time, and one that refused it; ``archived`` is an archive."""
    write_study(tmp_path / "named", MAIN, CURVES, seeds=named)
    primary = {"main_table": (("gigpo", "grpo"),)}
    write_study(tmp_path / "refused", MAIN, CURVES, seeds=refused, primary=primary, overrides=overrides)
    path = tmp_path / "refused" / "experiments" / "main_table-study.json"
    write_json(path, json.loads(path.read_text()) | {"named_late": [["gigpo", "scpo"]]})
    if archived:
        data = collect(tmp_path / archived)
        write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
    return [tmp_path / ("archive" if name == archived else name) for name in ("named", "refused")]


@pytest.mark.parametrize("archived", [None, "named", "refused"])
def test_a_comparison_that_another_source_refused_with_runs_of_its_own_is_not_tested(tmp_path, archived):
    sources = two_sources(tmp_path, archived)
    for order in (sources, sources[::-1]):
        data = collect(order).at_scale("study")
        # One experiment again, whose records name the same.
        assert {name: one.pairs.count for name, one in by_name(data).items()} == {"GiGPO − GRPO": "6/6"}
        caption = tab_study_effects.build(data).caption
        assert "Named only after their results, and so not tested: SCPO − GIGPO (main_table)." in caption


@pytest.mark.parametrize(("archived", "tested"), [("named", True), (None, False), ("refused", False)])
def test_a_refusal_of_runs_that_an_archive_has_changes_nothing_there(tmp_path, archived, tested):
    """As when the refusing folder is added to the archive (``study --add``)."""
    sources = two_sources(tmp_path, archived, named=(0, 1, 2, 3))
    for order in (sources, sources[::-1]):
        assert ("SCPO − GiGPO" in by_name(collect(order).at_scale("study"))) is tested


def test_a_refusal_in_an_edition_with_other_settings_is_of_another_comparison(tmp_path):
    sources = two_sources(tmp_path, None, overrides=("trainer.optimizer.learning_rate=1e-4",))
    assert any(name.startswith("SCPO − GiGPO") for name in by_name(collect(sources).at_scale("study")))


def test_a_difference_its_interval_and_its_verdict_by_hand(tmp_path):
    host = by_name(study(tmp_path))["GiGPO − GRPO"]
    assert host.pairs.count == "3/3"
    assert host.effect.difference.mean == pytest.approx(0.2 / 2)  # straight lines to 0.9 and 0.7
    assert host.effect.verdict == HIGHER
    # 90 % after 40 steps passes 50 % at step 22.22; 70 % at 28.57
    assert host.faster.difference.mean == pytest.approx(22.22 - 28.57, abs=0.1)
    assert host.faster.verdict == LOWER
    assert host.faster.favours == 1  # fewer steps are better
    assert host.better.difference.mean == pytest.approx(0.2)


def test_a_variant_is_named_after_what_its_experiment_calls_by_the_method(tmp_path):
    curves = dict.fromkeys(("scpo", "scpo_lexical", "theta_0_4"), CURVES["scpo"])
    write_study(tmp_path, {"main_table": ("scpo", "scpo_lexical")}, curves, primary={})
    write_study(tmp_path, {"sweep_theta": ("scpo", "theta_0_4")}, curves, primary={}, overrides=("scorer=lexical",))
    rows = study_rows(collect(tmp_path).at_scale("study"))
    assert [row.title for row in rows] == ["SCPO", "SCPO_LEXICAL", "SCPO_LEXICAL, THETA_0_4"]


def test_the_correction_is_over_the_study_and_not_over_an_experiment(tmp_path):
    both = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    found = named_comparisons(study(tmp_path, both))
    alone = [p_value(comparison.effect.difference) for comparison in found]
    assert len(found) == 3
    assert [comparison.effect.corrected for comparison in found] == holm(alone)
    assert {comparison.effect.tests for comparison in found} == {3}


def test_a_comparison_that_two_experiments_name_counts_once_on_the_seeds_of_both(tmp_path):
    write_study(tmp_path, {"ablation": ("scpo", "gigpo")}, CURVES, seeds=(0, 1),
                primary={"ablation": (("gigpo", "scpo"),)})  # fmt: skip
    data = study(tmp_path, {"main_table": ("scpo", "gigpo")}, seeds=(1, 2, 3))
    (comparison,) = named_comparisons(data)
    assert comparison.name == "SCPO − GiGPO"  # the direction of the main table, which comes first
    assert comparison.experiments == ("main_table", "ablation")
    assert comparison.pairs.used == (0, 1, 2, 3)
    assert comparison.effect.tests == 1


def test_one_configuration_under_two_names_is_one_row_and_not_compared_with_itself(tmp_path):
    named = {"main_table": (("scpo", "gigpo"),), "hosts": (("scpo_gigpo", "gigpo"), ("scpo_gigpo", "scpo"))}
    experiments = {"main_table": ("scpo", "gigpo"), "hosts": ("scpo_gigpo", "scpo", "gigpo")}
    data = study(tmp_path, experiments, primary=named)
    assert [row.title for row in study_rows(data)] == ["SCPO", "GiGPO"]
    assert [comparison.name for comparison in named_comparisons(data)] == ["SCPO − GiGPO"]


def test_equal_configurations_are_one_row_also_on_different_seeds(tmp_path):
    write_study(tmp_path, {"hosts": ("scpo_gigpo",)}, CURVES, seeds=(7, 8), primary={})
    (row,) = study_rows(study(tmp_path, {"main_table": ("scpo",)}, primary={}))
    assert [run.seed for run in row.row.runs] == [0, 1, 2, 7, 8]


def test_a_row_is_called_by_its_method(tmp_path):
    data = study(tmp_path, {"ablation": ("scpo", "chronological")})
    assert [row.title for row in study_rows(data)] == ["SCPO", "SCPO, CHRONOLOGICAL"]


def test_tuning_seeds_are_reported_nowhere(tmp_path):
    experiments = {"main_table": ("scpo", "gigpo"), "learning_rates": ("grpo",)}
    data = study(tmp_path, experiments)
    assert [row.title for row in study_rows(data)] == ["SCPO", "GiGPO"]


def test_pairs_that_cross_types_of_processor_are_left_out(tmp_path):
    study(tmp_path)
    set_processors(tmp_path, "gigpo", ("a processor", "another", "a processor"))
    comparison = by_name(collect(tmp_path).at_scale("study"))["SCPO − GiGPO"]
    assert comparison.pairs.used == (0, 2)
    assert comparison.pairs.crossed == (1,)
    assert comparison.effect.difference.n == 2
    assert comparison.pairs.remark == "seed 1 ran on two types of processor, left out"


def test_seeds_on_which_no_experiment_named_the_comparison_are_left_out_and_named(tmp_path):
    write_study(tmp_path, {"further": ("gigpo", "grpo")}, CURVES, seeds=(5, 6, 7))
    comparisons = by_name(study(tmp_path))
    assert comparisons["GiGPO − GRPO"].pairs.count == "3/3"
    remark = (
        "both rows have seeds 5–7, too, left out, for no experiment named the comparison on these before their runs"
    )
    assert comparisons["GiGPO − GRPO"].pairs.remark == remark
    assert comparisons["SCPO − GiGPO"].pairs.remark == ""
    made = tab_study_effects.build(collect(tmp_path).at_scale("study"))
    assert [cells[1] for cells in made.blocks[0].rows] == ["3/3", "3/3†"]
    assert f"† {remark}." in made.caption


def test_pairs_that_all_cross_are_used_and_named(tmp_path):
    study(tmp_path)
    set_processors(tmp_path, "gigpo", ("another",) * 3)
    comparison = by_name(collect(tmp_path).at_scale("study"))["SCPO − GiGPO"]
    assert comparison.pairs.used == (0, 1, 2)
    assert comparison.pairs.remark == ("seeds 0–2 ran on two types of processor, used, for there are no others")


def test_torchs_capability_is_part_of_the_type_where_both_recorded_it(tmp_path):
    study(tmp_path)
    set_processors(tmp_path, "gigpo", ("a processor",) * 3, {0: "AVX2", 1: "AVX512"})
    set_processors(tmp_path, "scpo", ("a processor",) * 3, {0: "AVX512", 1: "AVX512", 2: "AVX2"})
    comparison = by_name(collect(tmp_path).at_scale("study"))["SCPO − GiGPO"]
    assert comparison.pairs.crossed == (0,)
    assert comparison.pairs.used == (1, 2)


def test_runs_on_other_held_out_games_make_no_pair(tmp_path):
    study(tmp_path)
    (folder,) = tmp_path.glob("alfworld-choice-gigpo-s1-*")
    panels = json.loads((folder / "panels.json").read_text())
    panels.pop("checksum", None)
    panels["valid_seen"]["sha256"] = "0" * 64
    write_json(folder / "panels.json", panels)
    comparison = by_name(collect(tmp_path).at_scale("study"))["SCPO − GiGPO"]
    assert comparison.pairs.other_games == (1,)
    assert comparison.pairs.used == (0, 2)


def test_a_seed_that_is_not_finished_makes_no_pair_and_is_counted(tmp_path):
    write_study_run(tmp_path, "gigpo", 2, rising(0.1), state="RUNNING")
    comparison = by_name(study(tmp_path))["SCPO − GiGPO"]
    assert comparison.pairs.count == "2/3"


def test_one_pair_is_no_comparison(tmp_path):
    comparison = by_name(study(tmp_path, seeds=(0,)))["SCPO − GiGPO"]
    assert comparison.effect.verdict == NOT_RUN
    assert not comparison.finished
    assert math.isnan(comparison.effect.corrected)


def test_experiments_without_named_comparisons_have_none(tmp_path):
    assert named_comparisons(study(tmp_path, primary={})) == []


def test_rows_of_another_setting_are_found_across_sections(tmp_path):
    # ablation's rows with a tuned learning rate are in a section of their own, apart from GiGPO's
    write_study(tmp_path, {"main_table": ("gigpo", "grpo")}, CURVES)
    slow = ("trainer.optimizer.learning_rate=0.0005",)
    write_study(tmp_path, {"ablation": ("scpo", "chronological")}, CURVES, overrides=slow)
    data = collect(tmp_path).at_scale("study")
    assert len(data.sections) == 2
    rows = {row.title: row for row in study_rows(data)}
    pairs, effect = compare(data, rows["SCPO"], rows["GiGPO"], AREA)
    assert pairs.count == "3/3"
    assert effect.difference.n == 3


def effect(values, tests=1, corrected_p=None, measure=AREA):
    difference = summarise(values)
    p = p_value(difference)
    return Effect(measure, difference, p, p if corrected_p is None else corrected_p, tests)


def test_the_interval_alone_may_exclude_0_where_the_correction_does_not_resolve():
    # mean 2, deviation sqrt(2.5 / 3) = 0.913, error 0.456: interval 2 -+ 3.182 x 0.456 = [0.55, 3.45], t_3 = 4.38
    values = (1.0, 1.5, 2.5, 3.0)
    alone = effect(values)
    assert alone.difference.interval() == pytest.approx((0.55, 3.45), abs=5e-3)
    assert alone.p == pytest.approx(0.0220, abs=1e-4)
    assert (alone.verdict, alone.only_uncorrected) == (HIGHER, False)
    among_three = corrected([alone, effect((0.1, -0.1, 0.2, -0.1)), effect((0.3, -0.4, 0.1, 0.1))])[0]
    assert among_three.corrected == pytest.approx(3 * alone.p)
    assert (among_three.verdict, among_three.only_uncorrected) == (OPEN, True)
    assert among_three.tests == 3


def test_a_test_that_cannot_be_made_yet_counts_in_the_correction():
    """Else the p of a finished comparison would depend on which of the others are finished."""
    unpaired, without_spread, tested = corrected(
        [effect((1.0,)), effect((1.0, 1.0, 1.0)), effect((1.0, 1.5, 2.5, 3.0))]
    )
    assert math.isnan(unpaired.corrected)
    assert math.isnan(without_spread.corrected)
    assert tested.tests == 3
    assert tested.corrected == 3 * tested.p


def test_a_comparison_of_a_row_that_no_call_has_chosen_yet_counts_in_the_correction(tmp_path):
    """It counted in the table of the sweep, and not in ``tab_study_effects``."""
    named = {"mine": [["scpo", "gigpo"], ["chronological", "scpo"], ["gigpo", "grpo"]]}
    write_study(tmp_path, {"mine": ("scpo", "gigpo")}, CURVES, primary=named)
    path = tmp_path / "experiments" / "mine-study.json"
    record = json.loads(path.read_text())
    # Left out by rows=[...], and not able to run at this scale.
    record["rows"].append({"name": "chronological", "label": "In time", "runs": [], "chosen": False})
    record["rows"].append({"name": "grpo", "label": "GRPO", "runs": []})
    write_json(path, record)
    data = collect(tmp_path).at_scale("study")
    (comparison,) = named_comparisons(data)
    assert comparison.effect.tests == 2
    assert comparison.effect.corrected == pytest.approx(min(1, 2 * comparison.effect.p))
    assert family_in_words([comparison], "study").startswith("the 2 comparisons of the study (1 of them, ")
    logged = data.metrics.groupby("run")["metric"].unique()
    metrics = {run: {name: data.series(run, name) for name in logged[run]} for run in data.by_id}
    (of_sweep,) = named_by(data.experiments[0], data.by_id, metrics)
    assert (of_sweep.tests, of_sweep.p) == (2, pytest.approx(comparison.effect.corrected))

    # Rows of these names in another experiment may have other settings: a test of its own.
    later = {"other": [["scpo", "chronological"]]}
    write_study(tmp_path, {"other": ("scpo", "chronological")}, CURVES, primary=later)
    comparisons = named_comparisons(collect(tmp_path).at_scale("study"))
    assert [each.effect.tests for each in comparisons] == [3, 3]


def test_a_withdrawn_comparison_of_a_deleted_row_counts_once_in_both_tables(tmp_path):
    """As the note of the sweep has it; p would depend on results if their rows were deleted."""
    pairs = [["scpo", "gigpo"], ["chronological", "scpo"]]
    earlier = {"mine_0123abcd": ("scpo", "gigpo", "chronological")}
    write_study(tmp_path, {"mine": ("scpo", "gigpo")}, CURVES, primary={"mine": pairs})
    path = tmp_path / "experiments" / "mine-study.json"
    write_json(path, json.loads(path.read_text()) | {"withdrawn": pairs[1:]})
    for kept_aside in (False, True):
        if kept_aside:
            write_study(tmp_path, earlier, CURVES, primary={"mine_0123abcd": pairs})
        data = collect(tmp_path).at_scale("study")
        assert {comparison.effect.tests for comparison in named_comparisons(data)} == {2}
        logged = data.metrics.groupby("run")["metric"].unique()
        metrics = {run: {name: data.series(run, name) for name in logged[run]} for run in data.by_id}
        record = next(record for record in data.experiments if record.experiment == "mine")
        assert [of_sweep.tests for of_sweep in named_by(record, data.by_id, metrics)] == [2]


def test_comparisons_of_former_settings_count_in_both_tables_and_are_in_the_caption(tmp_path):
    pairs = [["scpo", "gigpo"]]
    write_study(tmp_path, {"mine": ("scpo", "gigpo")}, CURVES, primary={"mine": pairs})
    path = tmp_path / "experiments" / "mine-study.json"
    record = json.loads(path.read_text())
    place = {"rows": pairs[0], "measure": "validation_area", "env": "alfworld", "model": "choice"}
    former = [place | {"settings": ["first", "gigpo"]}, place | {"settings": ["second", "gigpo"]}]
    write_json(path, record | {"superseded": former})
    data = collect(tmp_path).at_scale("study")
    (comparison,) = named_comparisons(data)
    assert comparison.effect.tests == 3
    assert comparison.effect.corrected == pytest.approx(min(1, 3 * comparison.effect.p))
    assert superseded(data) == "SCPO − GIGPO (mine, 2)"
    text = tab_study_effects.build(data).caption
    assert (
        "Counted in the correction, of settings that a row had before they were changed: SCPO − GIGPO (mine, 2)."
        in text
    )
    logged = data.metrics.groupby("run")["metric"].unique()
    metrics = {run: {name: data.series(run, name) for name in logged[run]} for run in data.by_id}
    (of_sweep,) = named_by(data.experiments[0], data.by_id, metrics)
    assert (of_sweep.tests, of_sweep.p) == (3, pytest.approx(comparison.effect.corrected))

    # One that another record still has with its runs is counted there.
    for row in record["rows"]:
        for run in row["runs"]:
            run["settings"] = {"scpo": "first", "gigpo": "gigpo"}[row["name"]]
    write_json(path.with_name("earlier-study.json"), record | {"experiment": "earlier"})
    data = collect(tmp_path).at_scale("study")
    assert {each.effect.tests for each in named_comparisons(data)} == {2}
    assert superseded(data) == "SCPO − GIGPO (mine)"

    # Of an experiment that tests nothing any more, they count among the others' comparisons.
    write_json(path, record | {"superseded": former, "primary": None})
    path.with_name("earlier-study.json").unlink()
    write_study(tmp_path, {"other": ("gigpo", "grpo")}, CURVES, primary={"other": [["gigpo", "grpo"]]})
    data = collect(tmp_path).at_scale("study")
    assert [each.effect.tests for each in named_comparisons(data)] == [3]


@pytest.mark.parametrize(("measure", "favours"), [(AREA, 1), (BETTER, 1), (FASTER, -1)])
def test_which_row_a_difference_favours_depends_on_the_measure(measure, favours):
    assert effect((1.0, 1.1, 0.9, 1.0), measure=measure).favours == favours
    assert effect((1.0, 1.1, 0.9, 1.0), measure=measure).reversed().favours == -favours
    assert effect((1.0, -1.1, 0.9, -1.0), measure=measure).favours == 0


def test_a_selection_of_rows_hides_rows_and_leaves_the_correction_over_the_study(tmp_path):
    both = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    data = study(tmp_path, both)
    few = Selection(rows=("gigpo", "grpo")).of(data)
    assert [row.title for row in study_rows(few) if selected(few, row)] == ["GiGPO", "GRPO"]
    assert [comparison.effect.tests for comparison in named_comparisons(few)] == [3, 3, 3]
    ablation = Selection(experiments=("ablation",)).of(data)
    shown = [row.title for row in study_rows(ablation) if selected(ablation, row)]
    assert shown == ["SCPO", "SCPO, CHRONOLOGICAL"]
