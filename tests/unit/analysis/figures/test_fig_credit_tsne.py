import csv
import io

import numpy as np
import pytest

from analysis.figures import fig_credit_tsne, fig_motivation_tsne, step_planes
from analysis.figures.fig_credit_tsne import nearest, neighbourhood_table
from analysis.figures.step_planes import OF_A_KIND, drawn, embed
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from scpo.diagnostics.samples import StepTexts, read_step_texts
from scpo.errors import RecordError
from tests.support.run_records import config, write_ablation, write_step_texts

ANGLES = {"a": 0, "b": 60, "c": 90, "d": 180}  # degrees


@pytest.fixture
def flat(monkeypatch):
    """Texts as directions in the plane, so that distances can be worked by hand."""

    def embedded(texts):
        angles = np.radians([ANGLES[text] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    monkeypatch.setattr(step_planes, "embed", embedded)


STEPS = StepTexts(
    text_N=np.array(["a", "a", "b", "c", "d", "a", "b"]),
    group_N=np.array([0, 0, 0, 1, 1, 2, 2]),
    success_N=np.array([True, False, False, True, False, False, False]),
    credit_N=np.array([0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0]),
    batches=1,
)


def test_distances_within_the_group_by_hand(flat):
    found = nearest(STEPS, own_group=True)  # group 2 has no success
    assert found["distance"].tolist() == pytest.approx([0, 0.5, 1])
    assert found["exact"].tolist() == [True, False, False]
    assert found["credited"].tolist() == [True, False, True]


def test_distances_over_all_batches_leave_out_the_same_steps(flat):
    found = nearest(STEPS, own_group=False)
    assert found["distance"].tolist() == pytest.approx([0, 1 - np.cos(np.radians(30)), 1])


def test_the_table_gives_the_papers_numbers_beside_those_of_a_run_of_its_scale(flat):
    lines = list(
        csv.DictReader(io.StringIO(neighbourhood_table(STEPS, scale="paper", run="r", config=config("paper")).csv()))
    )
    published, measured = lines[:3], lines[3:6]
    assert [row["Median, non-exact mean"] for row in published] == ["0.44", "0.59", "1.34"]
    assert [row["Exact (%) mean"] for row in published] == ["74", "", ""]
    assert [row["Exact (%) mean"] for row in measured] == ["50", "0", ""]
    assert [row["Median, non-exact mean"] for row in measured] == ["1.00", "0.50", "0.50"]
    mini = neighbourhood_table(STEPS, scale="mini", run="r", config=config())
    assert len(list(csv.DictReader(io.StringIO(mini.csv())))) == 12


def test_the_table_names_scorer_and_scale_and_what_an_exact_scorer_shows_by_construction(flat):
    exact = neighbourhood_table(STEPS, scale="study", run="r", config=config("study"))
    lines = list(csv.DictReader(io.StringIO(exact.csv())))
    assert {line["block"] for line in lines} == {
        "Measured, study scale, r, scorer=exact (equal texts only), matcher=kmp"
    }
    assert "so by construction" in exact.caption
    assert "says nothing about language models" in exact.caption
    graded = neighbourhood_table(STEPS, scale="mini", run="r", config=config())
    assert "Credit is that of scorer=minilm, matcher=kmp, θ=0.6. " in graded.caption
    assert "construction" not in graded.caption
    moved = config("study", overrides=("method.shaper.allocation=random_match",))
    control = neighbourhood_table(STEPS, scale="study", run="r", config=moved).caption
    assert "allocation=random_match" in control
    assert "construction" not in control


def test_one_batch_is_one_in_the_caption_and_in_the_picture(flat, tmp_path):
    assert "7 steps of 1 batch of r" in neighbourhood_table(STEPS, scale="mini", run="r", config=config()).caption
    run = write_ablation(tmp_path, rows=("scpo",), seeds=(0,))["scpo"][0]
    data = collect(tmp_path).at_scale("mini")
    shown = step_planes.Shown(run, "mini", STEPS, np.arange(7), np.zeros((7, 2)))
    assert step_planes._remark(data, shown).endswith("\n7 steps of 1 batch")


def test_groups_of_different_batches_are_different_groups(tmp_path):
    run = write_ablation(tmp_path, rows=("scpo",), seeds=(0,))["scpo"][0]
    for step in (1, 2):
        write_step_texts(tmp_path / run, step, "go to", credited=True, groups=2)
    steps = read_step_texts(sorted((tmp_path / run / "diagnostics").glob("*.npz")))
    assert (len(steps.text_N), len(np.unique(steps.group_N)), steps.batches) == (120, 4, 2)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "step_texts_step_00001.npz").write_bytes(b"PK")
    with pytest.raises(RecordError, match="step_texts_step_00001"):
        read_step_texts([tmp_path / "step_texts_step_00001.npz"])


def test_large_kinds_are_sampled_small_ones_are_measured_whole_and_every_success_is_a_neighbour(flat):
    many = OF_A_KIND + 50
    kind_N = np.repeat(["success", "other", "credited"], [many, many, 3])
    steps = StepTexts(
        text_N=np.array(["b"] * (many - 1) + ["a"] + ["a"] * many + ["b", "b", "c"]),
        group_N=np.zeros(len(kind_N), int),
        success_N=kind_N == "success",
        credit_N=(kind_N == "credited").astype(float),
        batches=1,
    )
    shown = kind_N[drawn(steps)]
    assert [int((shown == kind).sum()) for kind in ("success", "other", "credited")] == [OF_A_KIND, OF_A_KIND, 3]
    found = nearest(steps, own_group=True)
    assert found["exact"][~found["credited"]].tolist() == [True] * OF_A_KIND  # by one success among 901
    assert found["exact"][found["credited"]].tolist() == [True, True, False]
    assert np.array_equal(drawn(steps), drawn(steps))


def test_the_real_encoder_draws_both_figures_with_every_step(tmp_path):
    pytest.importorskip("sentence_transformers", reason="needs sentence_transformers: make setup")
    ids = write_ablation(tmp_path, seeds=(0,))
    for step in (1, 2):
        write_step_texts(tmp_path / ids["scpo"][0], step, "go to", credited=True)
    data = collect(tmp_path).at_scale("mini")
    drawing = fig_credit_tsne.build(data)
    labels = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert labels == ["failure, no credit (40)", "success (40)", "failure, credited (40)", "dense in successes"]
    row = next(csv.DictReader(io.StringIO(drawing.numbers.csv())))
    assert (row["Failed steps"], row["Exact (%) mean"], row["Median mean"]) == ("credited", "100", "0.00")
    motivation = fig_motivation_tsne.build(data)
    for made in (drawing, motivation):
        assert "scorer=minilm, matcher=kmp, θ=0.6" in " ".join(made.figure.get_suptitle().split())
        assert "scorer=minilm, matcher=kmp, θ=0.6" in made.numbers.csv()
    assert len(motivation.figure.legends[0].get_texts()) == 3
    assert [row[0] for row in motivation.numbers.blocks[0].rows] == ["successful rollouts", "failed rollouts"]
    first, second = embed(("go to shelf 1", "open shelf 1"))
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-6)
    assert 0.3 < first @ second < 0.999


def test_no_texts_name_the_command(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    with pytest.raises(MissingRunsError, match="sampled step texts"):
        fig_motivation_tsne.build(collect(tmp_path).at_scale("mini"))
