"""The section of the study's page about credit: numbers of rows, and the rank correlation with gains."""

from analysis.sources.collect import collect
from analysis.study.credit import credit_lines, episodes_line, update_lines
from tests.support.study_runs import rising, write_study, write_study_run

PRECISION = {"credit/precision": 0.1, "credit/precision_uncredited": 0.2}


def lines_of(runs):
    return "\n".join(credit_lines(collect(runs).at_scale("study")))


def test_a_number_that_not_every_seed_has_says_how_many_do(tmp_path):
    curves = {"scpo": lambda seed: rising(0.9, 0.01 * seed), "gigpo": lambda seed: rising(0.8)}
    write_study_run(tmp_path, "scpo", 0, curves["scpo"](0), credit={"credit/steps": 0.0})
    credit = {"scpo": {"credit/steps": 1.5, **PRECISION}}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves, credit=credit)
    row = next(line for line in lines_of(tmp_path).splitlines() if line.startswith("| SCPO |"))
    assert row.startswith("| SCPO | 3/3 | 1.00 |")
    assert row.endswith("| 10.0 (2 of 3 seeds) | 20.0 (2 of 3 seeds) |")


def test_small_credit_has_two_significant_digits_and_other_credit_three_decimals(tmp_path):
    credit = {"scpo": {"credit/steps": 1.5, "credit/aux_mean": 0.0125}}
    credit["chronological"] = {"credit/steps": 0.0014, "credit/aux_mean": 0.00018}
    curves = {row: lambda seed: rising(0.8) for row in credit}
    write_study(tmp_path, {"ablation": tuple(credit)}, curves, credit=credit)
    rows = [line.split(" | ") for line in lines_of(tmp_path).splitlines() if line.startswith("| SCPO")]
    assert [cells[2:4] for cells in rows] == [["1.50", "0.013"], ["0.0014", "0.00018"]]


def test_equal_texts_are_so_by_construction_where_the_scorer_is_exact(tmp_path):
    credit = {"scpo": {"credit/steps": 1.5, "credit/exact": 1.0}}
    write_study(tmp_path, {"main_table": ("scpo",)}, {"scpo": lambda seed: rising(0.8)}, credit=credit)
    text = lines_of(tmp_path)
    assert "100 % of them equal the reference's is so by construction" in text
    assert "Matched steps are those that the matcher finds, also in controls" in text


def test_the_p_value_of_a_rank_correlation_is_never_zero(tmp_path):
    rows = ("scpo", "chronological", "random_match", "scpo_lexical", "crbc", "gagpo")
    curves = {"gigpo": lambda seed: rising(0.5, 0.01 * seed)}
    credit = {}
    for place, row in enumerate(rows):
        curves[row] = lambda seed, end=0.6 + 0.05 * place: rising(end, 0.01 * seed)
        credit[row] = {"credit/steps": 1.0, "credit/precision": 0.1 * place, "credit/precision_uncredited": 0.2}
    write_study(tmp_path, {"main_table": (*rows, "gigpo")}, curves, credit=credit)
    text = lines_of(tmp_path)
    assert "the gain over GiGPO is +1.00 (p < 0.001; rows" in text
    assert "Over the 6 rows on ALFWorld that have both precisions and a difference to GiGPO" in text


def test_rows_that_roll_out_more_episodes_than_their_configuration_are_named(tmp_path):
    curves = {"gigpo": lambda seed: rising(0.8), "grpo": lambda seed: rising(0.7)}
    credit = {"gigpo": {"train/episodes": 700.0}, "grpo": {"train/episodes": 128.0}}
    write_study(tmp_path, {"main_table": ("gigpo", "grpo")}, curves, credit=credit)
    remark = episodes_line(collect(tmp_path).at_scale("study"))
    assert "GiGPO, 700 rollouts a step instead of " in remark
    assert "GRPO" not in remark


def test_the_training_steps_at_which_precision_was_measured_are_named(tmp_path):
    curves = {"scpo": lambda seed: rising(0.8)}
    write_study(tmp_path / "without", {"main_table": ("scpo",)}, curves, credit={"scpo": {"credit/steps": 1.5}})
    assert "on samples of steps" not in lines_of(tmp_path / "without")
    write_study(
        tmp_path / "with", {"main_table": ("scpo",)}, curves, credit={"scpo": {"credit/steps": 1.5, **PRECISION}}
    )
    measured = "the last two columns are measured on samples of steps at 40 training steps from 1 to 40 only."
    assert measured in lines_of(tmp_path / "with")


def test_the_outcome_term_of_a_group_without_a_win_is_0_only_where_outcomes_are_compared(tmp_path):
    credit = {"gigpo": {"advantage/outcome_mean": 0.1}}
    write_study(tmp_path, {"main_table": ("gigpo",)}, {"gigpo": lambda seed: rising(0.8)}, credit=credit)
    text = "\n".join(update_lines(collect(tmp_path).at_scale("study")))
    assert "of a method that compares them within the group is 0; EMPG adds a term by entropy to it." in text
