import csv
import io

import pytest

from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables import tab_hparams, tab_shaper
from scpo.shaping.shaper import ShaperConfig
from tests.support.run_records import write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, write_study, write_study_run


def values(made):
    lines = list(csv.reader(io.StringIO(made.csv())))
    return {row[1]: row[2:] for row in lines[1:]}


def test_hyper_parameters_are_those_that_ran(tmp_path):
    write_ablation(tmp_path, seeds=(0, 1), group_size=4)
    table = values(tab_hparams.build(collect(tmp_path).at_scale("mini")))
    assert table["Group size"] == ["8", "4"]
    assert table["Random seeds"] == ["0, 1, 2", "0, 1"]
    assert table["Training iterations"] == ["150", "40"]
    assert "held out, seen rooms: 140" in table["Validation episodes"][1]


def test_a_row_that_only_prompts_has_no_hyper_parameters_of_training(tmp_path):
    """Its recorded learning rate and seed, which no update used, were listed with the others."""
    curves = {"scpo": lambda seed: rising(0.9)}
    write_study(tmp_path, {"ablation": ("scpo",)}, curves)
    rate = "trainer.optimizer.learning_rate=0.03"
    plain = write_study_run(tmp_path, "plain", 7, rising(0.1), overrides=(rate,))
    scpo = [write_study_run(tmp_path, "scpo", seed, rising(0.9)) for seed in (0, 1, 2)]
    write_experiment(tmp_path, {"plain": [plain], "scpo": scpo}, name="main_table", scale="study")
    data = collect(tmp_path).at_scale("study")
    made = tab_hparams.build(data)
    table = values(made)
    assert table["Learning rate"] == ["1e-6", "0.004"]
    assert table["Random seeds"] == ["0, 1, 2", "0, 1, 2"]
    assert table["Experiments"][1] == "ablation, main_table"
    assert "of the experiments in its last line" in made.caption
    with pytest.raises(MissingRunsError, match="finished runs that train"):
        tab_hparams.build(Selection(rows=("plain",)).of(data))


def test_what_states_are_compared_by_is_shown_where_states_are_compared(tmp_path):
    by_state = ("method=gigpo", "method.estimator.state_key=state")
    runs = {
        "grpo": [write_run(tmp_path, "grpo", overrides=("method=grpo",))],
        "gigpo": [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))],
        "by_state": [write_run(tmp_path, "by_state", overrides=by_state)],
        "proxmo": [write_run(tmp_path, "proxmo", overrides=("method=proxmo",))],
    }
    write_experiment(tmp_path, runs, name="main_table")
    table = values(tab_hparams.build(collect(tmp_path).at_scale("mini")))
    assert table["State key"] == ["–", "anchor, state, its own"]


def test_what_rows_differ_in_is_listed_with_the_default_first(tmp_path):
    write_ablation(tmp_path, rows=("no_monotonicity", "scpo", "chronological"), seeds=(0,))
    table = values(tab_shaper.build(collect(tmp_path).at_scale("mini")))
    assert table["Monotonic"][1] == "yes, no"
    assert table["Processing order π"][1] == "reordered (batches balanced), temporal"
    assert table["Match threshold θ"] == ["0.6", "0.6"]


def test_every_setting_of_the_shaper_has_a_line():
    """after_full_match, reference_order, states and added_to had none: rows that differ in them looked equal."""
    read = set()

    class Recording(dict):
        """A configuration that notes which of the shaper's settings are read."""

        def get(self, key, default=None):
            read.add(key)
            return super().get(key, default)

    config = Recording(method=Recording(shaper=Recording(reference_buffer="last_success", states="same_text")))
    for entry in tab_shaper.ENTRIES:
        if callable(entry.read):
            entry.read(config)
    lines = {entry.read for entry in tab_shaper.ENTRIES if isinstance(entry.read, str)}
    assert set(ShaperConfig.model_fields) - read - lines == set()


def test_settings_that_are_off_by_default_are_shown_in_words(tmp_path):
    moved = ("method.shaper.states=anchor", "method.shaper.added_to=advantages", "method.shaper.dense=true")
    runs = {
        "scpo": [write_run(tmp_path, steps=20)],
        "moved": [write_run(tmp_path, "moved", steps=20, overrides=moved)],
    }
    write_experiment(tmp_path, runs, name="main_table")
    table = values(tab_shaper.build(collect(tmp_path).at_scale("mini")))
    assert table["Matches by"] == ["similarity of step texts", "similarity of step texts, states=anchor"]
    assert table["Credit added to"] == ["step returns", "step returns, advantages"]
    assert table["All pairs scored"] == ["yes", "no, yes"]


def test_every_value_of_the_papers_setting_is_found_in_a_config_of_its_scale(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, scale="paper", steps=150)]}, scale="paper")
    data = collect(tmp_path).at_scale("paper")
    for module in (tab_hparams, tab_shaper):
        assert [label for label, (_, value) in values(module.build(data)).items() if value == "–"] == []


def test_settings_get_columns_of_their_own(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]})
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=80)]}, name="longer")
    made = tab_hparams.build(collect(tmp_path).at_scale("mini"))
    assert len(made.words) == 4
    assert len(set(made.words)) == 4


def test_runs_without_a_shaper_make_no_shaper_table(tmp_path):
    write_experiment(
        tmp_path, {"gigpo": [write_run(tmp_path, "gigpo", overrides=("method=gigpo",))]}, name="main_table"
    )
    with pytest.raises(MissingRunsError):
        tab_shaper.build(collect(tmp_path).at_scale("mini"))


def test_the_scorers_batch_is_given_in_its_own_unit(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, scale="paper", steps=150)]}, scale="paper")
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="small")
    data = collect(tmp_path)
    batches = [values(tab_shaper.build(data.at_scale(scale)))["Scorer's batch"] for scale in ("paper", "mini")]
    assert batches == [["64 pairs", "512 tokens"], ["64 pairs", "1 text"]]


def test_every_row_of_the_papers_tables_is_there(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, scale="paper", steps=150)]}, scale="paper")
    data = collect(tmp_path).at_scale("paper")
    training, shaper = (values(module.build(data)) for module in (tab_hparams, tab_shaper))
    assert training["Optimizer"] == ["AdamW", "AdamW (weight decay 0.01, 0 steps of warm-up)"]
    assert shaper["Apply scope"] == ["failed siblings", "failed siblings"]
    assert shaper["Precision"] == ["fp16", "fp16 (GPU), fp32 (CPU)"]
