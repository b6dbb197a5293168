"""The section of the study's page about credit: numbers of rows, and the rank correlation with gains."""

from analysis.sources.collect import collect
from analysis.study.credit import credit_lines, episodes_line
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
    assert "the gain over GiGPO is +1.00 (p < 0.001; rows" in lines_of(tmp_path)


def test_rows_that_roll_out_more_episodes_than_their_configuration_are_named(tmp_path):
    curves = {"gigpo": lambda seed: rising(0.8), "grpo": lambda seed: rising(0.7)}
    credit = {"gigpo": {"train/episodes": 700.0}, "grpo": {"train/episodes": 128.0}}
    write_study(tmp_path, {"main_table": ("gigpo", "grpo")}, curves, credit=credit)
    remark = episodes_line(collect(tmp_path).at_scale("study"))
    assert "GiGPO, 700 rollouts a step instead of " in remark
    assert "GRPO" not in remark
