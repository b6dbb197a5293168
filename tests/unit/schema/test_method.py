"""What a method is called, and who may ask for what of it."""

import pytest

from scpo.errors import ConfigError
from scpo.schema import METHOD_LABELS, ExperimentRow, method_label
from scpo.schema.env import WebshopConfig
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


def test_verl_agent_shows_states_on_alfworld_alone():
    by_state = ["scale=paper", "trainer=verl_agent", "method=hgpo", "method.estimator.state_key=state"]
    assert compose_run(by_state).trained.reads_states
    with pytest.raises(ConfigError, match="trainer=verl_agent can read on env=alfworld only, got env=webshop"):
        compose_run([*by_state, "env=webshop"])


def test_a_method_that_only_prompts_has_nothing_to_train_with():
    assert compose_run(["method=gigpo"]).trained.estimator.name == "gigpo"
    with pytest.raises(ConfigError, match="method 'plain' only prompts: it is evaluated, not trained"):
        _ = compose_run(["method=plain"]).trained
