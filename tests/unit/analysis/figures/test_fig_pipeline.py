import csv
import io

import pytest

from analysis.figures.fig_pipeline import build
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import write_ablation, write_groups


@pytest.fixture
def made(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0,))
    for runs in ids.values():
        write_groups(tmp_path / runs[0], 5)
    data = collect(tmp_path).at_scale("mini")
    return ids["scpo"][0], data, build(data)


def test_credited_pairs_are_told_in_words(made):
    _, _, drawing = made
    rows = list(csv.DictReader(io.StringIO(drawing.numbers.csv())))
    assert [row["Reference step"] for row in rows] == [f"go to shelf {i} → You arrive at shelf {i}." for i in (0, 1)]
    assert {row["Credit mean"] for row in rows} == {"1.00"}
    assert "training step 5" in drawing.numbers.caption


def test_what_the_credit_adds_is_alpha_times_the_credit_of_filtered_steps(made):
    _, _, drawing = made
    bonus, advantage = drawing.figure.axes[-2:] if drawing.figure.axes[-1].get_ylabel() else drawing.figure.axes[3:5]
    assert [bar.get_height() for bar in bonus.patches] == [0.5, 0.5, 0, 0]  # the fifth step did not pass the filter
    assert list(advantage.lines[1].get_ydata()) == [0.5, 0.5, -0.5, -0.5]


def test_the_default_row_is_shown_and_its_file_noted(made):
    run, data, _ = made
    assert data.used == {(run, "diagnostics/groups_step_00005.json.gz")}


def test_no_sampled_group_names_the_command(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    with pytest.raises(MissingRunsError, match="sampled a group"):
        build(collect(tmp_path).at_scale("mini"))


def test_the_scorer_is_named_in_the_picture_the_caption_and_the_table(made):
    _, _, drawing = made
    named = "scorer=minilm, matcher=kmp, θ=0.6"
    assert named in " ".join(drawing.figure.get_suptitle().split())
    assert named in drawing.numbers.caption
    assert named in drawing.numbers.csv()
    assert "construction" not in drawing.numbers.caption


def test_an_exact_scorer_has_two_shades_and_agreement_by_construction(tmp_path):
    ids = write_ablation(tmp_path, rows=("scpo",), seeds=(0,), overrides=("scorer=exact",))
    write_groups(tmp_path / ids["scpo"][0], 5)
    drawing = build(collect(tmp_path).at_scale("mini"))
    assert "scorer=exact (equal texts only)" in drawing.figure.get_suptitle()
    (similarity,) = (axis for axis in drawing.figure.axes if axis.get_title() == "(2) similarity")
    assert similarity.images[0].get_cmap().N == 2
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert "similarity 1" in legend
    assert "similarity ≥ threshold" not in legend
    assert "by construction" in drawing.numbers.caption
    assert "Mini scale" in drawing.numbers.caption
