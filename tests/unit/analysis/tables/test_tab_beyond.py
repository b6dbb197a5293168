import csv
import io

import pytest

from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables.tab_beyond import build
from tests.support.run_records import log_lines, write_ablation, write_experiment, write_run

PANEL = "val/train_games"


def logged(runs_dir, row, seed, curve, errored=(0, 0)):
    """A run with (success rate, pass@4) at two validations."""
    run = write_run(runs_dir, row, seed, overrides=(f"method={row}",), panels=("train_games",))
    lines = [
        {"step": step, f"{PANEL}/success_rate": mean, f"{PANEL}/pass_at_4": passed, f"{PANEL}/errored": broken}
        for (step, mean, passed), broken in zip(curve, errored, strict=True)
    ]
    lines[1:1] = [{"step": step, f"{PANEL}/errored": 0} for step in (10, 20, 30)]
    log_lines(runs_dir / run["id"], lines)
    return run


@pytest.fixture
def table(tmp_path):
    rows = {
        "gigpo": [logged(tmp_path, "gigpo", seed, [(0, 0.2, 0.5), (40, 0.3, 0.6)], (1, 2)) for seed in (0, 1)],
        "scpo": [logged(tmp_path, "scpo", 0, [(0, 0.2, 0.5), (40, 0.5, 0.9)]),
                 logged(tmp_path, "scpo", 1, [(0, 0.6, 0.5), (40, 0.4, 0.7)])],
    }  # fmt: skip
    write_experiment(tmp_path, rows, name="main_table")
    return build(collect(tmp_path).at_scale("mini"))


def test_avg_and_pass_at_k_of_a_panel_with_repeats(table):
    gigpo, scpo = csv.DictReader(io.StringIO(table.csv()))
    assert "k = 4" in gigpo["block"]
    assert [gigpo[f"{column} mean"] for column in ("avg@k, last", "pass@k, last")] == ["30.0", "60.0"]
    assert [scpo[f"{column} mean"] for column in ("avg@k, last", "avg@k, best", "pass@k, last")] == [
        *("45.0", "55.0", "80.0"),
    ]


def test_what_scpo_adds_is_paired_and_has_its_interval(table):
    gigpo, scpo = csv.DictReader(io.StringIO(table.csv()))
    shown = [gigpo[f"SCPO − method {part}"] for part in ("mean", "low", "high")]
    assert shown == ["+15.0", "-48.5", "+78.5"]  # 20 and 10 points: 15 ± 12.706 · 7.07 / √2
    assert scpo["SCPO − method mean"] == ""


def test_errored_episodes_stand_apart(table):
    gigpo, scpo = csv.DictReader(io.StringIO(table.csv()))
    assert (gigpo["Errored episodes mean"], scpo["Errored episodes mean"]) == ("3.0", "0.0")
    assert (gigpo["State key"], scpo["State key"]) == ("anchor", "anchor")


def test_a_prompting_method_has_no_best_checkpoint_as_in_the_main_table(tmp_path):
    curve = [(0, 0.2, 0.5), (40, 0.3, 0.6)]
    rows = {"plain": [logged(tmp_path, "plain", 0, curve)], "scpo": [logged(tmp_path, "scpo", 0, curve)]}
    write_experiment(tmp_path, rows, name="main_table")
    plain, scpo = csv.DictReader(io.StringIO(build(collect(tmp_path).at_scale("mini")).csv()))
    assert (plain["avg@k, last mean"], plain["avg@k, best mean"]) == ("30.0", "")
    assert (scpo["avg@k, last mean"], scpo["avg@k, best mean"]) == ("30.0", "30.0")


def test_columns_that_nobody_has_are_left_out(tmp_path):
    write_ablation(tmp_path)
    made = build(collect(tmp_path).at_scale("mini"))
    assert made.numbers == ("avg@k, last", "avg@k, best")
    assert {row[0] for block in made.blocks for row in block.rows} == {"SCPO"}


def test_nothing_finished_names_the_command(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, state="FAILED")]})
    with pytest.raises(MissingRunsError, match=r"python sweep\.py"):
        build(collect(tmp_path).at_scale("mini"))


def test_the_caption_explains_the_margin_where_it_is_a_column(table, tmp_path):
    assert "SCPO minus the method" in table.caption
    alone = tmp_path / "alone"
    write_experiment(alone, {"gigpo": [logged(alone, "gigpo", 0, [(0, 0.2, 0.5), (40, 0.3, 0.6)])]}, name="main_table")
    made = build(collect(alone).at_scale("mini"))
    assert "SCPO − method" not in made.numbers
    assert "SCPO minus the method" not in made.caption
