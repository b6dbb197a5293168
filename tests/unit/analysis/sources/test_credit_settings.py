from analysis.sources.collect import collect
from analysis.sources.credit_settings import (
    credit_of_rows,
    credit_settings,
    equal_by_construction,
    exact_scores,
)
from tests.support.run_records import config, write_ablation, write_experiment, write_run


def test_a_graded_scorer_has_a_threshold_and_an_exact_one_has_none():
    assert credit_settings(config()) == "scorer=minilm, matcher=kmp, θ=0.6"
    assert credit_settings(config("study")) == "scorer=exact (equal texts only), matcher=kmp"
    assert credit_settings(config(overrides=("method=gigpo",))) == ""
    assert credit_settings({"method": "of another code"}) == ""


def test_a_shaper_that_compares_states_names_their_identity():
    states = config("study", overrides=("method.shaper.states=entities",))
    assert credit_settings(states) == "scorer=exact, states=entities, matcher=kmp"
    assert exact_scores(states) == "1 for an equal action that leads to the same state and 0 otherwise"


def test_credit_that_is_moved_equals_the_reference_by_chance_alone():
    assert equal_by_construction(config("study"))
    assert not equal_by_construction(config())
    assert not equal_by_construction(config("study", overrides=("method.shaper.allocation=uniform_bonus",)))


def test_rows_are_named_where_their_settings_differ(tmp_path):
    own = write_run(tmp_path, seed=0)
    forward = write_run(tmp_path, seed=0, overrides=("method.shaper.matcher=forward",))
    gigpo = write_run(tmp_path, seed=0, overrides=("method=gigpo",))
    write_experiment(tmp_path, {"scpo": [own], "forward_matcher": [forward], "gigpo": [gigpo]})
    data = collect(tmp_path)
    (part,) = data.sections
    assert credit_of_rows(part.rows, data.by_id) == (
        "SCPO (default): scorer=minilm, matcher=kmp, θ=0.6; forward_matcher: scorer=minilm, matcher=forward, θ=0.6"
    )
    assert credit_of_rows([part.row("scpo"), part.row("gigpo")], data.by_id) == "scorer=minilm, matcher=kmp, θ=0.6"


def test_ablations_with_one_scorer_need_no_labels(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    data = collect(tmp_path)
    (part,) = data.sections
    assert credit_of_rows(part.rows, data.by_id) == "scorer=minilm, matcher=kmp, θ=0.6"
