import csv
import io
from itertools import pairwise

import numpy as np
import pytest

from analysis.figures.fig_profiles import Line, build
from analysis.rendering.table import NONE
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.sources.rows import Row
from tests.support.run_records import FAMILIES, log_lines, write_ablation, write_experiment, write_run

RATES = np.array([[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.2, 0.2, 0.4, 0.6, 0.8, 0.8]])


def line(rates=RATES):
    return Line(Row("scpo", "SCPO", ()), "", np.array(rates), {}, {})


def test_the_middle_half_by_hand():
    assert line().iqm.mean == pytest.approx(((0.2 + 0.4 + 0.6 + 0.8) / 4 + (0.2 + 0.4 + 0.6 + 0.8) / 4) / 2)


def test_the_point_lies_inside_its_interval_and_the_interval_inside_the_rates():
    uneven = line([[1.0] * 6, [0.2] * 6, [1.0] * 6])  # a mean pooled over all 18 would be 0.93
    low, high = uneven.interval
    assert low <= uneven.iqm.mean <= high == 1.0


def test_a_profile_falls_from_all_to_none():
    shares = [one.mean for one in line().profile()]
    assert (shares[0], shares[-1]) == (pytest.approx(11 / 12), 0)
    assert all(a >= b for a, b in pairwise(shares))


def test_steps_to_a_rate_say_how_many_seeds_reach_it(tmp_path):
    runs = []
    for seed, curve in ((0, {0: 0.1, 20: 0.5, 40: 0.9}), (1, {0: 0.1, 20: 0.3, 40: 0.6})):
        run = write_run(tmp_path, "scpo", seed)
        metrics = {f"val/train_games/{family}/success_rate": 0.5 for family in FAMILIES}
        lines = [{"step": s, "val/train_games/success_rate": v, **metrics} for s, v in curve.items()]
        log_lines(tmp_path / run["id"], lines)
        runs.append(run)
    write_experiment(tmp_path, {"scpo": runs})
    (row,) = csv.DictReader(io.StringIO(build(collect(tmp_path).at_scale("mini")).numbers.csv()))
    assert row["Seeds that reach 50 %, 80 %"] == "2/2, 1/2"
    assert (row["Steps to 50 % mean"], row["Steps to 80 % mean"]) == ("27", "38")


def test_steps_to_a_rate_that_no_seed_reaches_are_a_dash(tmp_path):
    run = write_run(tmp_path)
    metrics = {f"val/train_games/{family}/success_rate": 0.5 for family in FAMILIES}
    curve = {0: 0.1, 20: 0.5, 40: 0.7}
    log_lines(
        tmp_path / run["id"], [{"step": s, "val/train_games/success_rate": v, **metrics} for s, v in curve.items()]
    )
    write_experiment(tmp_path, {"scpo": [run]})
    (row,) = build(collect(tmp_path).at_scale("mini")).numbers.blocks[0].rows
    assert row[-1] == NONE


def test_every_finished_row_has_a_line_in_each_panel(tmp_path):
    write_ablation(tmp_path, rows=("scpo", "chronological"))
    left, middle, _ = build(collect(tmp_path).at_scale("mini")).figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["SCPO (default), 3/3", "chronological order, 3/3"]
    assert len(middle.lines) == 2


def test_nothing_finished_names_the_command(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, state="FAILED")]})
    with pytest.raises(MissingRunsError, match="main_table"):
        build(collect(tmp_path).at_scale("mini"))


def test_a_benchmark_without_families_that_the_user_chose_is_named_and_no_runs_are_asked_for(tmp_path):
    write_ablation(tmp_path, rows=("scpo",), seeds=(0,))
    shop = write_run(tmp_path, "gigpo", overrides=("method=gigpo", "env=webshop"))
    write_experiment(tmp_path, {"gigpo": [shop]}, name="shop")
    data = Selection(envs=("webshop",)).of(collect(tmp_path).at_scale("mini"))
    with pytest.raises(MissingRunsError) as raised:
        build(data)
    assert raised.value.needed.startswith("task families on WebShop, which --env or --experiment chooses")
    assert raised.value.command == "--env alfworld, or a choice with runs on it"


def test_the_caption_says_that_intervals_are_cut_off(tmp_path):
    write_ablation(tmp_path, rows=("scpo",), seeds=(0, 1))
    caption = build(collect(tmp_path).at_scale("mini")).numbers.caption
    assert "95 % Student interval, cut off at 0 and 100 %, as those of the profiles are;" in caption


def test_each_line_of_panels_is_named_where_there_are_several(tmp_path):
    for name, steps in (("main_table", 40), ("ablation", 20)):
        runs = {}
        for row in ("scpo", "chronological"):
            run = write_run(tmp_path, row, steps=steps)
            metrics = {f"val/train_games/{family}/success_rate": 0.5 for family in FAMILIES}
            log_lines(
                tmp_path / run["id"], [{"step": s, "val/train_games/success_rate": 0.5, **metrics} for s in (0, 40)]
            )
            runs[row] = [run]
        write_experiment(tmp_path, runs, name=name)
    chosen = Selection(rows=("scpo", "chronological")).of(collect(tmp_path)).at_scale("mini")
    figure = build(chosen).figure
    assert [part.get_suptitle() for part in figure.subfigs] == [
        "ALFWorld, tiny language model",
        "ALFWorld, tiny language model†",
    ]


def test_the_caption_names_what_an_interquartile_mean_is_of_and_which_levels_have_no_point(tmp_path):
    write_ablation(tmp_path, rows=("scpo",), seeds=(0, 1))
    caption = build(collect(tmp_path).at_scale("mini")).numbers.caption
    assert "the mean of the middle 4 of their 6 success rates" in caption
    assert "its axis and that of τ need not begin at 0." in caption
    assert "a level that no seed reaches has no point." in caption


def test_the_caption_names_the_seeds_where_another_experiment_has_more(tmp_path):
    ids = {}
    for seed in (0, 1, 2):
        run = write_run(tmp_path, "scpo", seed)
        metrics = {f"val/train_games/{family}/success_rate": 0.5 for family in FAMILIES}
        log_lines(tmp_path / run["id"], [{"step": s, "val/train_games/success_rate": 0.5, **metrics} for s in (0, 40)])
        ids[seed] = run
    write_experiment(tmp_path, {"scpo": [ids[0], ids[1]]}, name="ablation")
    assert "further seeds" not in build(collect(tmp_path).at_scale("mini")).numbers.caption
    write_experiment(tmp_path, {"scpo": list(ids.values())}, name="more_seeds")
    caption = build(collect(tmp_path).at_scale("mini")).numbers.caption
    assert "further seeds of rows that are shown on seeds 0, 1 (more_seeds: SCPO on seed 2)" in caption
