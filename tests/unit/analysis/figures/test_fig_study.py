"""The study's figures: which rows are drawn, against what, and what the caption's table holds."""

import pytest

from analysis.figures import fig_study_curves, fig_study_effects
from analysis.sources.collect import collect
from analysis.sources.rows import MissingRunsError
from tests.support.study_runs import rising, write_study

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
CREDIT = {"scpo": {"credit/steps": 1.5, "credit/precision": 0.1, "credit/precision_uncredited": 0.2}}


@pytest.fixture
def data(tmp_path):
    write_study(tmp_path, EXPERIMENTS, CURVES, credit=CREDIT)
    return collect(tmp_path).at_scale("study")


def test_methods_come_first_and_what_is_not_drawn_is_said(data):
    made = fig_study_curves.build(data)
    assert [block.title for block in made.numbers.blocks] == ["Main_table", "Ablation"]
    assert "not drawn, in the tables: Scorers" in made.numbers.caption
    titles = [axis.get_title() for axis in made.figure.axes]
    assert titles.count("minus GiGPO, paired (points)") == 1
    assert titles.count("minus SCPO, paired (points)") == 1
    assert all("3/3" in text.get_text() for axis in made.figure.axes for text in _legend(axis))


def _legend(axis):
    return axis.get_legend().get_texts() if axis.get_legend() else []


def test_curves_are_the_mean_over_the_seeds(data):
    left = fig_study_curves.build(data).figure.axes[0]
    scpo = next(line for line in left.get_lines() if line.get_label().startswith("SCPO"))
    assert list(scpo.get_xdata()) == [0, 10, 20, 30, 40]
    assert scpo.get_ydata()[-1] == pytest.approx((90 + 91 + 90) / 3)


def test_effects_are_sorted_by_the_difference_to_gigpo(data):
    made = fig_study_effects.build(data)
    rows = [row[0] for row in made.numbers.blocks[0].rows]
    assert rows == ["SCPO", "CHRONOLOGICAL", "GiGPO", "SCPO_LEXICAL", "GRPO"]
    labels = [label.get_text() for label in made.figure.axes[0].get_yticklabels()]
    assert labels == [f"{row}, 3/3" for row in rows]


def test_credit_stands_beside_the_rows_that_gave_any(data):
    rows = {row[0]: row for row in fig_study_effects.build(data).numbers.blocks[0].rows}
    assert rows["SCPO"][4].text == "1.50 ± 0.00"
    assert rows["SCPO"][5].text == "10.0 ± 0.0"
    assert rows["GRPO"][4].text == "–"


def test_nothing_to_pair_names_the_command(tmp_path):
    write_study(tmp_path, {"main_table": ("grpo",)}, CURVES, primary={})
    with pytest.raises(MissingRunsError, match="experiment=main_table scale=study"):
        fig_study_effects.build(collect(tmp_path).at_scale("study"))
