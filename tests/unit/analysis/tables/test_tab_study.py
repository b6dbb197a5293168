"""The study's tables: every measure of every row, and the comparisons that were named before the runs."""

import csv
import io
import json
import shutil
from dataclasses import replace

import pytest

from analysis.figures import fig_study_curves
from analysis.rendering.table import Table
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables import tab_study, tab_study_effects
from tests.support.run_records import write_ablation, write_json
from tests.support.sketches import build_all, sketch
from tests.support.study_runs import rising, write_study, write_study_run

EXPERIMENTS = {"ablation": ("scpo", "chronological"), "main_table": ("scpo", "gigpo", "grpo")}
CURVES = {
    "scpo": lambda seed: rising(0.9, 0.01 * (seed % 2)),
    "gigpo": lambda seed: rising(0.9, 0.01 * (seed % 3)),
    "grpo": lambda seed: rising(0.6, 0.01 * seed),
    "chronological": lambda seed: rising(0.9, 0.001 * seed),
}


def study(tmp_path, **settings):
    write_study(tmp_path, EXPERIMENTS, CURVES, **settings)
    return collect(tmp_path).at_scale("study")


def lines(made):
    return list(csv.DictReader(io.StringIO(made.csv())))


def test_areas_fixed_steps_and_steps_to_a_level_by_hand(tmp_path):
    made = lines(tab_study.build(study(tmp_path, seeds=(0, 1))))
    scpo = made[0]
    assert scpo["block"].startswith("Main_table")
    assert scpo["Row"] == "SCPO"
    # seed 0: 0 to 90 % on a straight line; seed 1 a point above it from step 10 on: 45 and 45 + 35/40 %
    assert (scpo["area under validation mean"], scpo["area under validation std"]) == ("45.4", "0.6")
    assert [scpo[f"held out at step {step} mean"] for step in (10, 20, 30)] == ["23.0", "45.5", "68.0"]
    assert scpo["held-out success at the last step mean"] == "90.5"
    assert scpo["held-out success at the last step std"] == "0.7"
    assert scpo["steps to 50 % mean"] == "22.0"  # 22.22 and 21.78
    assert scpo["minus SCPO mean"] == ""


def test_common_seeds_are_those_that_all_rows_of_a_block_have_finished(tmp_path):
    ids = write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)
    shutil.rmtree(tmp_path / ids["gigpo"][2])
    data = Selection(common_seeds=True).of(collect(tmp_path)).at_scale("study")
    assert [line["Seeds"] for line in lines(tab_study.build(data))] == ["2/2", "2/2"]


def test_blocks_of_one_experiment_from_two_sources_are_named_by_their_seeds(tmp_path):
    """Both had the same heading, and nothing named the seeds of either."""
    rows = {"main_table": ("scpo", "gigpo")}
    write_study(tmp_path / "first", rows, CURVES, seeds=(0, 1, 2))
    write_study(tmp_path / "second", rows, CURVES, seeds=(5, 6, 7), overrides=("trainer.optimizer.learning_rate=1e-4",))
    write_study(tmp_path / "third", rows, CURVES, seeds=(8, 9, 10))
    for sources in (("first", "second"), ("first", "third")):
        data = collect([tmp_path / source for source in sources]).at_scale("study")
        for made in (tab_study.build(data), fig_study_curves.build(data).numbers):
            assert len({line["block"] for line in lines(made)}) == len(data.experiments)


def test_blocks_of_two_sources_with_one_record_on_the_same_seeds_are_numbered(tmp_path):
    rate = ("trainer.optimizer.learning_rate=1e-4",)
    for source, words in (("first", ()), ("second", rate)):
        write_study(tmp_path / source, {"main_table": ("scpo", "gigpo")}, CURVES, overrides=words)
    data = collect([tmp_path / "first", tmp_path / "second"]).at_scale("study")
    for made in (tab_study.build(data), fig_study_curves.build(data).numbers):
        keys = [(line["block"], line["Row"]) for line in lines(made)]
        assert len(set(keys)) == len(keys) == 4


def test_blocks_of_several_calls_of_an_experiment_on_the_same_seeds_are_named_by_their_records(tmp_path):
    """Both had the same heading: a row's name in a block was no key of the table."""
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)
    record = json.loads((tmp_path / "experiments" / "main_table-study.json").read_text())
    record["experiment"] = "main_table_0a1b2c"
    scpo = record["rows"][0]
    scpo["runs"] = scpo["runs"][:2]
    write_json(tmp_path / "experiments" / "main_table_0a1b2c-study.json", record)
    data = collect(tmp_path).at_scale("study")
    for made in (tab_study.build(data), fig_study_curves.build(data).numbers):
        keys = [(line["block"], line["Row"]) for line in lines(made)]
        assert len(set(keys)) == len(keys) == 4
        assert any("record main_table_0a1b2c" in block for block, _ in keys)


def test_chosen_rows_of_several_experiments_are_one_block(tmp_path):
    data = Selection(rows=("scpo",)).of(study(tmp_path))
    (line,) = lines(tab_study.build(data))
    assert line["block"].startswith("Main_table")


def test_rows_are_in_the_order_in_which_they_were_named(tmp_path):
    data = Selection(rows=("grpo", "scpo", "gigpo")).of(study(tmp_path))
    (block,) = tab_study.build(data).blocks
    assert [row[0] for row in block.rows] == ["GRPO", "SCPO", "GiGPO"]


def test_a_block_without_a_common_seed_is_named(tmp_path):
    ids = write_study(tmp_path, {"main_table": ("scpo", "gigpo"), "ablation": ("scpo", "chronological")}, CURVES)
    for run in (*ids["scpo"][1:], *ids["gigpo"][1:], ids["chronological"][0]):
        shutil.rmtree(tmp_path / run)
    data = replace(collect(tmp_path).at_scale("study"), common_seeds=True)
    reason = "Left out, because no seed is finished in all rows: Ablation: study scale, ALFWorld"
    assert reason in tab_study.build(data).caption


def test_a_level_that_no_seed_reaches_has_no_mean(tmp_path):
    made = {line["Row"]: line for line in lines(tab_study.build(study(tmp_path)))}
    assert made["GRPO"]["steps to 80 % mean"] == ""
    assert made["GRPO"]["Reach 80 %"] == "0/3"
    assert made["GRPO"]["steps to 50 % mean"] != ""
    assert made["GRPO"]["Reach 50 %"] == "3/3"


def test_a_seed_that_never_reaches_a_level_counts_with_its_last_step(tmp_path):
    curves = CURVES | {"grpo": lambda seed: rising(0.6 if seed else 0.4)}
    write_study(tmp_path, EXPERIMENTS, curves)
    made = {line["Row"]: line for line in lines(tab_study.build(collect(tmp_path).at_scale("study")))}
    assert made["GRPO"]["Reach 50 %"] == "2/3"
    assert made["GRPO"]["steps to 50 % mean"] == "35.6"  # 40, 33.33, 33.33


def test_a_column_of_success_at_a_step_is_for_benchmarks_that_are_validated_at_other_steps_too(tmp_path):
    write_study(tmp_path, EXPERIMENTS, CURVES, seeds=(0, 1))
    every_five = {row: lambda seed: {step: 0.02 * step for step in range(0, 41, 5)} for row in ("scpo", "gigpo")}
    write_study(tmp_path, {"webshop_study": ("scpo", "gigpo")}, every_five, seeds=(0, 1), env="webshop")
    made = tab_study.build(collect(tmp_path).at_scale("study"))
    assert [name for name in made.numbers if "at step" in name] == [f"held out at step {step}" for step in (10, 20, 30)]
    shop = next(line for line in lines(made) if line["block"].startswith("Webshop_study"))
    assert shop["held out at step 30 mean"] == "60.0"


def test_differences_are_next_to_each_row_with_their_interval(tmp_path):
    made = {line["Row"]: line for line in lines(tab_study.build(study(tmp_path)))}
    assert made["GRPO"]["minus GiGPO mean"] == "-15.0"
    assert made["GiGPO"]["minus GiGPO mean"] == ""


def test_seeds_that_are_not_finished_are_counted(tmp_path):
    write_study_run(tmp_path, "grpo", 1, rising(0.1), state="FAILED")
    made = {line["Row"]: line for line in lines(tab_study.build(study(tmp_path)))}
    assert made["GRPO"]["Seeds"] == "2/3"


def test_named_comparisons_with_their_corrected_tests_and_both_other_questions(tmp_path):
    made = lines(tab_study_effects.build(study(tmp_path)))
    names = ["SCPO − GiGPO (rates 4e-3, 2e-3)", "GiGPO − GRPO", "SCPO − SCPO, CHRONOLOGICAL"]
    assert [line["Comparison"] for line in made] == names
    host = made[1]
    assert (host["Verdict"], host["Difference (points) mean"]) == ("higher", "+15.0")
    # all pairs differ by the same 30 points at the last step, which three seeds of coarse rates may: no test
    assert (host["Faster"], host["Better"], host["p (Holm), better"]) == ("yes", "open", "")
    assert host["Steps to 50 % mean"].startswith("-")
    assert host["Smallest found mean"] == ""
    order = made[2]
    assert (order["Verdict"], order["Faster"], order["Better"]) == ("open", "open", "open")
    assert float(order["Smallest found mean"]) > 0


def test_the_caption_names_the_family_of_the_correction(tmp_path):
    caption = tab_study_effects.build(study(tmp_path)).caption
    assert "Holm's correction over the 3 comparisons of the study" in caption
    assert "three families of tests: each is corrected by itself" in caption


def test_comparisons_by_different_measures_name_theirs(tmp_path):
    study(tmp_path)
    record = tmp_path / "experiments" / "ablation-study.json"
    words = json.loads(record.read_text())
    words["primary"]["measure"] = "last_success"
    write_json(record, words)
    table = tab_study_effects.build(collect(tmp_path).at_scale("study"))
    assert "by area under validation or held-out success at the last step" in table.caption
    area, last = "by area under validation", "by held-out success at the last step"
    assert [line["notes"] for line in lines(table)] == [area, area, last]
    assert list(table.footnotes.values()) == [area, last]


def test_two_pairs_promise_no_smallest_difference_for_their_verdict_is_always_open(tmp_path):
    table = tab_study_effects.build(study(tmp_path, seeds=(0, 1)))
    assert {(line["Verdict"], line["Smallest found mean"]) for line in lines(table)} == {("open", "")}
    assert "With fewer than 3 pairs the verdict is open whatever the test finds" in table.caption
    assert "fewer than 3 pairs" not in tab_study_effects.build(study(tmp_path / "three")).caption


def test_rows_that_never_reach_half_are_not_compared_by_when_they_do(tmp_path):
    curves = {row: lambda seed: rising(0.3, 0.01 * seed) for row in CURVES}
    write_study(tmp_path, {"main_table": ("gigpo", "grpo")}, curves)
    table = tab_study_effects.build(collect(tmp_path).at_scale("study"))
    (line,) = lines(table)
    assert (line["Faster"], line["Steps to 50 % mean"], line["p (Holm), faster"]) == ("–", "", "")
    assert "No run of the pairs with a dash at “Steps to 50 %” reaches it" in table.caption
    assert line["Better"] == "open"


def captions(folder, out):
    """Caption of each output by name, as its files have it."""
    made = (output.made for output in build_all(folder, out).outputs)
    numbers = [part if isinstance(part, Table) else part.numbers for part in made]
    return {table.label: table.full_caption for table in numbers}


def test_every_caption_names_the_settings_that_were_given_for_a_whole_experiment(tmp_path, monkeypatch):
    """Runs of 4 steps instead of 40 were called study scale, and nothing else."""
    sketch(monkeypatch)
    study(tmp_path / "runs")
    usual = captions(tmp_path / "runs", tmp_path / "out")
    record = tmp_path / "runs" / "experiments" / "main_table-study.json"
    words = {"overrides": ["scale=study", "trainer.steps=4"]}
    write_json(record, json.loads(record.read_text()) | words)
    given = captions(tmp_path / "runs", tmp_path / "out")
    note = "Note: given on the command line: trainer.steps=4 for all runs of main_table."
    assert usual.keys() == given.keys()
    assert len(given) > 6
    for label, caption in given.items():
        assert note in caption, label
        assert "given on the command line" not in usual[label], label


def test_one_seed_compares_nothing(tmp_path):
    with pytest.raises(MissingRunsError, match="two finished seeds"):
        tab_study_effects.build(study(tmp_path, seeds=(0,)))


def test_the_studys_outputs_are_only_of_its_scale_and_called_by_their_names(tmp_path, monkeypatch):
    builds = {"tab_study": tab_study.build, "tab_study_effects": tab_study_effects.build}
    monkeypatch.setattr("analysis.build.builders", lambda: builds)
    write_ablation(tmp_path / "runs", seeds=(0, 1))
    write_study(tmp_path / "runs", EXPERIMENTS, CURVES)
    report = build_all(tmp_path / "runs", tmp_path / "out")
    assert [output.name for output in report.outputs] == ["tab_study", "tab_study_effects"]
    assert not report.failures


def test_both_tables_compile_as_latex_rows_of_equal_width(tmp_path):
    for made in (tab_study.build(study(tmp_path)), tab_study_effects.build(study(tmp_path))):
        counts = {line.count("&") for line in made.tex().splitlines() if "&" in line}
        assert len(counts) == 1


def test_a_single_run_is_no_reference_of_an_experiments_rows(tmp_path):
    write_study(tmp_path, {"controls": ("random_match",)}, {"random_match": lambda seed: rising(0.8)})
    for seed in (0, 1, 2):
        write_study_run(tmp_path, "gigpo", seed, rising(0.5), overrides=("trainer.optimizer.learning_rate=0.1",))
    made = {line["Row"]: line for line in lines(tab_study.build(collect(tmp_path).at_scale("study")))}
    assert made["GiGPO"]["Seeds"] == "3/3"
    (own,) = (line for name, line in made.items() if name != "GiGPO")
    assert own["minus GiGPO mean"] == ""


def test_rows_of_one_method_are_named_by_their_settings_and_every_row_has_its_rate(tmp_path):
    write_study(tmp_path, {"first": ("scpo", "gigpo")}, CURVES, primary={})
    rate = ("trainer.optimizer.learning_rate=0.03",)
    write_study(tmp_path, {"second": ("scpo", "gigpo")}, CURVES, seeds=(0, 1), primary={}, overrides=rate)
    table = tab_study.build(collect(tmp_path).at_scale("study"))
    made = {line["Row"]: line for line in lines(table)}
    assert {row: line["learning rate"] for row, line in made.items()} == {
        "SCPO, learning_rate=0.004": "4e-3",
        "GiGPO, learning_rate=0.002": "2e-3",
        "SCPO, learning_rate=0.03": "3e-2",
        "GiGPO, learning_rate=0.03": "3e-2",
    }
    note = made["SCPO, learning_rate=0.03"]["notes"]
    assert note == "minus GiGPO: of “GiGPO, learning_rate=0.03”"
    assert "| SCPO, learning_rate=0.03§ |" in table.md()
    assert "† minus GiGPO: of “GiGPO, learning_rate=0.002”." in table.caption
    assert "§ minus GiGPO: of “GiGPO, learning_rate=0.03”." in table.caption


def test_the_main_tables_row_keeps_its_name(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, CURVES)
    rate = ("trainer.optimizer.learning_rate=0.03",)
    write_study(tmp_path, {"second": ("gigpo",)}, CURVES, primary={}, overrides=rate)
    made = lines(tab_study.build(collect(tmp_path).at_scale("study")))
    assert [line["Row"] for line in made] == ["SCPO", "GiGPO", "GiGPO, learning_rate=0.03"]


def test_only_the_row_that_deviates_from_the_main_tables_is_named_by_it(tmp_path):
    write_study(tmp_path, {"main_table": ("gigpo",)}, CURVES, primary={})
    rate = ("trainer.optimizer.learning_rate=0.03",)
    write_study(tmp_path, {"second": ("gigpo",)}, CURVES, primary={}, overrides=rate)
    write_study(tmp_path, {"third": ("gigpo",)}, CURVES, primary={}, overrides=("trainer.groups=2",))
    made = lines(tab_study.build(collect(tmp_path).at_scale("study")))
    assert [line["Row"] for line in made] == ["GiGPO", "GiGPO, learning_rate=0.03", "GiGPO, groups=2"]


def test_a_difference_over_fewer_pairs_than_seeds_is_marked(tmp_path):
    write_study_run(tmp_path, "gigpo", 2, CURVES["gigpo"](2), state="FAILED")
    table = tab_study.build(study(tmp_path))
    row = lines(table)[0]
    assert (row["Row"], row["notes"]) == ("SCPO", "over 2 of 3 finished seeds: minus GiGPO")
    assert "| SCPO† |" in table.md()
    assert "† over 2 of 3 finished seeds: minus GiGPO." in table.caption


def test_settings_that_a_block_shares_are_in_its_heading_and_not_in_its_rows(tmp_path):
    panels = ("train_panel", "validation_panels.valid_seen", "validation_panels.valid_unseen")
    fewer = [f"env.{panel}.games=60" for panel in panels]
    write_study(tmp_path, {"demo": ("grpo", "gigpo", "scpo")}, CURVES, primary={}, overrides=fewer)
    write_study(tmp_path, {"one": ("gigpo", "scpo")}, CURVES, primary={}, seeds=(0, 1))
    made = tab_study.build(collect(tmp_path).at_scale("study"))
    demo, one = made.blocks
    assert demo.title.endswith("policy, train_panel.games=60, valid_seen.games=60, valid_unseen.games=60")
    assert one.title.endswith("policy, train_panel.games=512, valid_seen.games=all, valid_unseen.games=all")
    assert [row[0] for row in (*demo.rows, *one.rows)] == ["GRPO", "GiGPO", "SCPO", "GiGPO", "SCPO"]
    assert not made.footnotes


def test_pairs_without_spread_promise_no_smallest_difference(tmp_path):
    listed = []
    for row in ("scpo", "gigpo"):
        runs = [write_study_run(tmp_path, row, seed, rising(0.9)) for seed in (0, 1, 2)]
        listed.append({"name": row, "label": row.upper(), "runs": runs})
    primary = {"measure": "validation_area", "comparisons": [("scpo", "gigpo")]}
    record = {"experiment": "main_table", "title": "Main", "scale": "study", "rows": listed, "primary": primary}
    write_json(tmp_path / "experiments" / "main_table-study.json", record)
    (line,) = lines(tab_study_effects.build(collect(tmp_path).at_scale("study")))
    assert line["Verdict"] == "open"
    assert (line["Difference (points) mean"], line["Smallest found mean"]) == ("+0.0", "")


def write_relabelled(folder, experiment, rows, overrides=()):
    """An experiment with labels of its own: {row of OVERRIDES: (name, label)}."""
    listed = []
    for row, (name, label) in rows.items():
        runs = [write_study_run(folder, row, seed, CURVES[row](seed), overrides=overrides) for seed in (0, 1, 2)]
        listed.append({"name": name, "label": label, "runs": runs})
    primary = {"measure": "validation_area", "comparisons": [[name for name, _ in rows.values()][:2]]}
    record = {"experiment": experiment, "title": experiment, "scale": "study", "rows": listed, "primary": primary}
    write_json(folder / "experiments" / f"{experiment}-study.json", record)


def test_a_row_that_trains_nothing_has_no_learning_rate(tmp_path):
    curves = CURVES | {"plain": lambda seed: {0: 0.0, 40: 0.1}}
    write_study(tmp_path, {"main_table": ("plain", "scpo")}, curves, seeds=(0, 1))
    made = tab_study.build(collect(tmp_path).at_scale("study"))
    rates = {line["Row"]: line["learning rate"] for line in lines(made)}
    assert rates == {"Plain prompt": "", "SCPO": "4e-3"}
    assert "(a dash: nothing is trained)" in made.caption


def test_a_footnote_on_a_reference_is_only_at_a_number(tmp_path):
    """Rows without a seed of the reference had the footnote, and no difference."""
    few = ("trainer.group_size=2",)
    write_study(tmp_path, EXPERIMENTS, CURVES)
    write_study(tmp_path, {"pairs": ("gigpo", "grpo")}, CURVES, primary={}, overrides=few)
    write_study(tmp_path, {"later": ("chronological",)}, CURVES, primary={}, seeds=(7, 8), overrides=few)
    made = tab_study.build(collect(tmp_path).at_scale("study"))
    (line,) = [line for line in lines(made) if line["block"].startswith("Later")]
    assert line["minus GiGPO mean"] == ""
    assert not made.footnotes


def test_captions_define_the_area_under_training_and_the_smallest_difference(tmp_path):
    data = study(tmp_path)
    assert "Area under training: the same of the success of the training rollouts" in tab_study.build(data).caption
    effects = tab_study_effects.build(data).caption
    assert "with 80 % power in a test by itself, without the correction." in effects


def test_rows_of_a_chosen_experiment_have_its_labels(tmp_path):
    few = ("trainer.optimizer.learning_rate=0.03",)
    own = {"scpo": ("scpo", "SCPO"), "gigpo": ("gigpo", "GiGPO"), "grpo": ("plainer", "plainer groups")}
    write_study(tmp_path, EXPERIMENTS, CURVES)
    write_relabelled(tmp_path, "letters", {"scpo": ("c", "C"), "gigpo": ("a", "A")}, few)
    write_relabelled(tmp_path, "mymix", own, few)
    data = collect(tmp_path)
    assert {"SCPO, C", "GiGPO, A"} <= {line["Row"] for line in lines(tab_study.build(data.at_scale("study")))}
    chosen = Selection(experiments=("mymix",)).of(data).at_scale("study")
    assert [line["Row"] for line in lines(tab_study.build(chosen))] == ["SCPO", "GiGPO", "GRPO, plainer groups"]
    (line,) = lines(tab_study_effects.build(chosen))
    assert line["Comparison"] == "SCPO − GiGPO"
    both = Selection(experiments=("letters", "mymix")).of(data).at_scale("study")
    assert {"SCPO, C", "GiGPO, A"} <= {line["Row"] for line in lines(tab_study.build(both))}
