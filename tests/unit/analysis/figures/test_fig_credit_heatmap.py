import numpy as np
import pytest
from matplotlib.patches import Rectangle

from analysis.figures.fig_credit_heatmap import build
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import LABELS, write_ablation, write_experiment, write_probe, write_run


def panels(figure):
    return [axis for axis in figure.axes if axis.get_title()]


def one_run(runs_dir, probes=(0, 20, 40), **settings):
    run = write_run(runs_dir, probes=probes, **settings)
    write_experiment(runs_dir, {"scpo": [run]})
    return runs_dir / run["id"]


def test_early_middle_and_late_probe_of_one_run(tmp_path):
    one_run(tmp_path, probes=(0, 10, 20, 30, 40))
    data = collect(tmp_path).at_scale("mini")
    figure = build(data).figure
    assert [axis.get_title().split(":")[0] for axis in panels(figure)] == [
        f"training step {step}" for step in (0, 20, 40)
    ]
    assert "SCPO, seed 0" in figure.get_suptitle()
    assert {path for _, path in data.used} == {f"diagnostics/probe_step_{step:05d}.npz" for step in (0, 20, 40)}


def test_an_exact_scorer_is_named_and_has_two_shades(tmp_path):
    one_run(tmp_path, probes=(20,), overrides=("scorer=exact",))
    made = build(collect(tmp_path).at_scale("mini"))
    named = "scorer=exact (equal texts only), matcher=kmp"
    (panel,) = panels(made.figure)
    assert panel.images[0].get_cmap().N == 2
    (bar,) = (axis for axis in made.figure.axes if axis.get_ylabel() == "similarity")
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0\n(different)", "1\n(equal)"]
    assert not bar.texts  # no threshold
    assert named in " ".join(made.figure.get_suptitle().split())
    assert named in made.numbers.csv()
    assert "1 for equal texts and 0 otherwise" in made.numbers.caption
    assert "by construction" in made.numbers.caption


def test_a_graded_scorer_is_named_with_its_threshold(tmp_path):
    one_run(tmp_path)
    made = build(collect(tmp_path).at_scale("mini"))
    named = "scorer=minilm, matcher=kmp, θ=0.6"
    assert named in " ".join(made.figure.get_suptitle().split())
    assert named in made.numbers.csv()
    assert "construction" not in made.numbers.caption
    assert panels(made.figure)[0].images[0].get_cmap().N > 2


def test_every_credited_cell_is_boxed(tmp_path):
    folder = one_run(tmp_path, probes=(20,))
    (axis,) = panels(build(collect(tmp_path).at_scale("mini")).figure)
    with np.load(folder / "diagnostics" / "probe_step_00020.npz") as file:
        matched = file["matched_l"]
    boxes = {box.get_xy() for box in axis.patches if isinstance(box, Rectangle)}
    assert boxes == {(step - 0.5, matched[step] - 0.5) for step in np.flatnonzero(matched >= 0)}


def test_the_walk_goes_through_every_processed_step(tmp_path):
    folder = one_run(tmp_path, probes=(20,))
    (axis,) = panels(build(collect(tmp_path).at_scale("mini")).figure)
    with np.load(folder / "diagnostics" / "probe_step_00020.npz") as file:
        walk = {(step, j) for step, j in zip(file["order_l"], file["walk_l"], strict=True) if j >= 0}
    dots = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines if line.get_marker() == "o"}
    assert dots == walk


def test_a_walk_that_ended_early_is_drawn(tmp_path):
    folder = one_run(tmp_path, probes=(20,))
    path = folder / "diagnostics" / "probe_step_00020.npz"
    with np.load(path) as file:
        arrays = dict(file)
    last = len(arrays["similarity_ml"]) - 1
    walk = np.append(arrays["walk_l"][:2], last).astype(np.int32)
    np.savez(path, **arrays | {"walk_l": walk, "matched_l": np.full_like(arrays["matched_l"], -1)})
    (axis,) = panels(build(collect(tmp_path).at_scale("mini")).figure)
    assert sum(line.get_marker() == "o" for line in axis.lines) <= 3


def test_a_probe_without_a_pair_is_named_and_takes_no_space(tmp_path):
    folder = one_run(tmp_path, probes=(20,))
    write_probe(folder, 0, found=False)
    made = build(collect(tmp_path).at_scale("mini"))
    (panel,) = panels(made.figure)
    assert panel.images
    remark = made.figure.get_suptitle().replace("\n", " ")
    assert remark.endswith("no group with a success and a failure at step 0")
    assert [row[0] for row in made.numbers.blocks[0].rows] == ["0", "20"]


def test_the_run_with_most_pairs_is_drawn(tmp_path):
    runs = [write_run(tmp_path, seed=seed, probes=(40,)) for seed in (0, 1)]
    write_probe(tmp_path / runs[0]["id"], 0, found=False)
    write_probe(tmp_path / runs[1]["id"], 0)
    write_experiment(tmp_path, {"scpo": runs})
    assert "SCPO, seed 1, task: heat and place" in build(collect(tmp_path).at_scale("mini")).figure.get_suptitle()


def test_the_run_of_a_variant_is_named_by_its_row(tmp_path):
    write_experiment(tmp_path, {"no_monotonicity": [write_run(tmp_path, "no_monotonicity", 3, probes=(40,))]})
    made = build(collect(tmp_path).at_scale("mini"))
    name = f"SCPO, {LABELS['no_monotonicity']}, seed 3"
    assert name in " ".join(made.figure.get_suptitle().split())
    assert name in made.numbers.caption


def test_the_benchmark_is_that_of_the_drawn_run(tmp_path):
    runs = [write_run(tmp_path), write_run(tmp_path, probes=(40,), overrides=("env=webshop",))]
    write_experiment(tmp_path, {"scpo": runs})
    data = collect(tmp_path).at_scale("mini")
    assert [part.env for part in data.sections] == ["alfworld", "webshop"]
    assert build(data).figure.get_suptitle().startswith("mini scale, WebShop, ")


@pytest.mark.parametrize("found", [None, False])
def test_no_pair_at_all_names_the_command(tmp_path, found):
    folder = one_run(tmp_path, probes=())
    if found is False:
        write_probe(folder, 20, found=False)
    with pytest.raises(MissingRunsError, match=r"python train\.py method=scpo"):
        build(collect(tmp_path).at_scale("mini"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04torn", b"not a zip"])
def test_a_torn_probe_file_is_named(tmp_path, content):
    folder = one_run(tmp_path, probes=(20,))
    (folder / "diagnostics" / "probe_step_00020.npz").write_bytes(content)
    data = collect(tmp_path)
    with pytest.raises(MissingRunsError):
        build(data.at_scale("mini"))
    assert [problem.path for problem in data.sample_problems] == [f"{folder.name}/probe_step_00020.npz"]


def test_probes_of_another_scale_are_not_drawn(tmp_path):
    write_ablation(tmp_path, scale="paper", seeds=(0,), probes=(20,))
    with pytest.raises(MissingRunsError):
        build(collect(tmp_path).at_scale("mini"))
