import csv
import io
from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from analysis.figures.fig_sensitivity import build
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import log_only, write_experiment, write_run
from tests.support.study_runs import rising, write_study

SUCCESS = "val/train_games/success_rate"


def run_at(runs_dir, seed=0, curve=None, scorer="lexical", others=(), **shaper):
    """A run of SCPO with these shaper settings, other overrides, and this success by step."""
    overrides = tuple(f"method.shaper.{name}={value}" for name, value in shaper.items())
    run = write_run(runs_dir, "scpo", seed, overrides=(*overrides, f"scorer={scorer}", *others))
    log_only(runs_dir, run, SUCCESS, curve or {0: 0.1, 20: 0.9, 40: 0.8})
    return run


def numbers(made):
    return [tuple(row.values())[1:] for row in csv.DictReader(io.StringIO(made.numbers.csv()))]


@pytest.fixture
def swept(tmp_path):
    default = [run_at(tmp_path, 0), run_at(tmp_path, 1, {0: 0.1, 40: 0.6})]
    write_experiment(tmp_path, {"scpo": default, "theta_08": [run_at(tmp_path, theta=0.8)]}, name="sweep_theta")
    both = run_at(tmp_path, theta=0.5, soft_base=0.2)
    lambdas = {"scpo": default, "lambda_02": [run_at(tmp_path, soft_base=0.2)], "both": [both]}
    write_experiment(tmp_path, lambdas, name="sweep_lambda")
    return tmp_path


def test_each_panel_holds_runs_that_differ_in_its_knob_alone(swept):
    assert [row[:3] for row in numbers(build(collect(swept).at_scale("mini")))] == [
        ("match threshold θ", "0.6", "2/2"),
        ("match threshold θ", "0.8", "1/1"),
        ("soft base λ", "0.2", "1/1"),
        ("soft base λ", "0.4", "2/2"),
    ]


@pytest.mark.parametrize(
    "others",
    [
        ("scorer=exact",),
        ("trainer.optimizer.learning_rate=1e-3",),
        ("trainer.loss.clip_high=0.28",),
    ],
)
def test_a_row_that_changes_a_setting_outside_of_the_method_is_no_value_of_the_knob(tmp_path, others):
    rows = {"scpo": [run_at(tmp_path)], "theta_08": [run_at(tmp_path, theta=0.8)]}
    rows["theta_other"] = [run_at(tmp_path, theta=0.3, others=others)]
    write_experiment(tmp_path, rows, name="sweep_theta")
    drawn = numbers(build(collect(tmp_path).at_scale("mini")))
    assert [row[1] for row in drawn if row[0] == "match threshold θ"] == ["0.6", "0.8"]


def test_last_and_best_checkpoint_are_both_drawn(swept):
    default = numbers(build(collect(swept).at_scale("mini")))[0]
    assert default[3:] == ("70.0", "14.1", "75.0", "21.2")


def test_the_default_is_orange_with_an_error_bar(swept):
    figure = build(collect(swept).at_scale("mini")).figure
    bars = [bar for bar in figure.axes[0].containers if bar.has_yerr]
    assert len(bars) == 1  # the last of the default; the others have one seed
    assert all(bar.lines[0].get_color() == "#D55E00" for bar in bars)


def test_the_bias_of_the_best_checkpoint_is_stated(swept):
    caption = build(collect(swept).at_scale("mini")).numbers.caption
    assert "points too high" in caption or "reads too high" in caption


def test_the_bias_counts_checkpoints_of_trained_policies_and_names_its_rate(tmp_path):
    curves = {"scpo": lambda seed: rising(0.9), "theta_0_4": lambda seed: rising(0.8)}
    write_study(tmp_path, {"sweep_theta": tuple(curves)}, curves)
    caption = build(collect(tmp_path).at_scale("study")).numbers.caption
    assert "The best of 4 checkpoints of 140 episodes reads" in caption
    assert "rate of 90 %, which is the default's mean at the last checkpoint (simulated" in caption


def test_values_with_fewer_seeds_than_the_default_are_not_given_its_seeds(swept):
    """Caption and head read "seeds 0, 1", which only the default has."""
    made = build(collect(swept).at_scale("mini"))
    assert "scorer=lexical; seeds 0, 1 (default), seed 0 (the others)" in made.numbers.caption
    head = " ".join(text.get_text() for text in made.figure.texts).replace("\n", " ")
    assert "scorer=lexical, seeds 0, 1 (default), seed 0 (the others)" in head


def test_the_default_alone_names_both_commands(tmp_path):
    write_experiment(tmp_path, {"scpo": [run_at(tmp_path)]}, name="sweep_theta")
    with pytest.raises(MissingRunsError, match=r"sweep_theta\n.*sweep_lambda"):
        build(collect(tmp_path).at_scale("mini"))


def test_rows_that_hide_the_sweep_are_named_instead_of_its_command(swept):
    chosen = Selection(rows=("scpo",)).of(collect(swept)).at_scale("mini")
    with pytest.raises(MissingRunsError, match=r"among the rows scpo\b") as raised:
        build(chosen)
    assert "leave out --rows" in str(raised.value)
    assert "sweep.py" not in str(raised.value)


def test_values_a_tenth_apart_have_labels_with_space_between(tmp_path):
    default = run_at(tmp_path)
    thetas = {f"theta_{value}": [run_at(tmp_path, theta=value)] for value in (0.4, 0.5, 0.7, 0.8)}
    lambdas = {f"lambda_{value}": [run_at(tmp_path, soft_base=value)] for value in (0.0, 0.2, 0.3, 0.5, 0.6)}
    write_experiment(tmp_path, {"scpo": [default], **thetas}, name="sweep_theta")
    write_experiment(tmp_path, {"scpo": [default], **lambdas}, name="sweep_lambda")
    figure = build(collect(tmp_path).at_scale("mini")).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    for axis in figure.axes:
        labels = [label.get_window_extent(renderer) for label in axis.get_xticklabels()]
        assert min(right.x0 - left.x1 for left, right in pairwise(labels)) > 0.04 * figure.dpi  # 2.9 points


def test_a_scorer_that_is_not_the_main_tables_is_named_and_runs_that_are_not_drawn_leave_no_note(tmp_path):
    main = [run_at(tmp_path, scorer="exact"), run_at(tmp_path, seed=1, scorer="exact")]
    write_experiment(tmp_path, {"scpo": main}, name="main_table")
    swept = {"scpo": [run_at(tmp_path)], "theta_08": [run_at(tmp_path, theta=0.8)]}
    write_experiment(tmp_path, swept, name="sweep_theta")
    data = collect(tmp_path).at_scale("mini")
    made = build(data)
    assert "scorer=lexical (main table: exact); seed 0" in made.numbers.caption
    assert "scorer=lexical (main table: exact)" in made.numbers.csv()
    remark = " ".join(text.get_text() for text in made.figure.texts)
    assert "scorer=lexical (main table: exact), seed 0" in remark.replace("\n", " ")
    drawn = {run["id"] for runs in swept.values() for run in runs}
    assert {run for run, _ in data.used} == drawn
