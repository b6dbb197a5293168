"""What a method is called, and who may ask for what of it."""

import pytest

from scpo.errors import ConfigError
from scpo.schema.env import WebshopConfig
from scpo.schema.experiment import ExperimentRow
from scpo.schema.method import METHOD_LABELS, method_label
from sweeps.compose.configuration import compose_run
from sweeps.compose.overrides import options


def test_every_shipped_method_has_a_label_of_its_own():
    assert set(options("method")) == set(METHOD_LABELS)
    assert len(set(METHOD_LABELS.values())) == len(METHOD_LABELS)


def test_a_method_of_the_users_own_goes_by_its_name():
    assert (method_label("gigpo"), method_label("mine")) == ("GiGPO", "mine")


def test_a_row_that_is_called_as_a_method_has_its_label():
    assert ExperimentRow.model_validate({"name": "rloo", "overrides": ()}).label == "RLOO"
    assert ExperimentRow.model_validate({"name": "rloo", "label": "ours", "overrides": ()}).label == "ours"
    with pytest.raises(ValueError, match="label"):
        ExperimentRow.model_validate({"name": "theta_04", "overrides": ()})


def test_states_are_compared_only_where_the_environment_gives_them(monkeypatch):
    by_state = ["method=gigpo", "method.estimator.state_key=state"]
    assert compose_run([*by_state, "env=webshop"]).trained.reads_states
    assert not compose_run(["method=gigpo"]).trained.reads_states
    monkeypatch.setattr(WebshopConfig, "gives_states", False)
    with pytest.raises(
        ConfigError, match=r"state_key=state compares steps by their states, which env=webshop does not give: use"
    ):
        compose_run([*by_state, "env=webshop"])
    assert compose_run(["method=gigpo", "env=webshop"]).trained.estimator.state_key == "anchor"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method.estimator.states=entitys"], "is no identity of states; did you mean entities"),
        (["method.estimator.states=exact", "method.estimator.states_threshold=0.5"], "is not read by states=exact"),
        (["method.estimator.states=tfidf", "method.estimator.anchors=similar"], "use anchors=exact with states=tfidf"),
        (["method.estimator.states=oracle"], "scale=study only, got scale=mini; use states=history"),
        (["scale=study", "method.estimator.states=oracle"], "is states=exact where nothing is reworded"),
        (["scale=paper", "trainer=verl_agent", "method.estimator.states=facts"], "trainer=verl_agent does not give"),
    ],
)
def test_an_identity_that_the_run_cannot_serve_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        compose_run(["method=gigpo", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method.shaper.states=entities", "scorer=lexical"], "use scorer=exact"),
        (["method.shaper.states=scorer"], "is what the matcher does by itself"),
        (["method.shaper.states_threshold=0.5"], "only read with states"),
        (["method.shaper.states=entities", "method.shaper.reference_buffer=last_success"], "must be off"),
    ],
)
def test_the_matchers_identity_needs_the_exact_scorer_and_one_batch(words, message):
    with pytest.raises(ConfigError, match=message):
        compose_run(["method=scpo", *words])


def test_a_method_needs_a_scorer_for_its_shaper_or_for_its_states():
    words = ["method=gigpo", "method.estimator.states=scorer"]
    assert compose_run(words).trained.needs_scorer
    assert compose_run(["method=scpo"]).trained.needs_scorer
    assert not compose_run(["method=gigpo", "method.estimator.states=entities"]).trained.needs_scorer


def test_verl_agent_shows_states_on_alfworld_only():
    by_state = ["scale=paper", "trainer=verl_agent", "method=hgpo", "method.estimator.state_key=state"]
    assert compose_run(by_state).trained.reads_states
    with pytest.raises(ConfigError, match="trainer=verl_agent can read on env=alfworld only, got env=webshop"):
        compose_run([*by_state, "env=webshop"])


def test_a_method_that_only_prompts_has_nothing_to_train_with():
    assert compose_run(["method=gigpo"]).trained.estimator.name == "gigpo"
    with pytest.raises(ConfigError, match="method 'plain' only prompts: it is evaluated, not trained"):
        _ = compose_run(["method=plain"]).trained
