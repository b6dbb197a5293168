import pytest

from scpo.errors import ConfigError
from sweeps.compose.configuration import compose_run
from sweeps.compose.identity import run_id
from sweeps.search.plan import make_plan
from tests.support.searches import plan_in


def test_a_trials_runs_are_those_of_the_same_words_without_a_search():
    plan = make_plan("scpo_theta_lambda", ["trainer.steps=7"])
    words = ["method=scpo", "method.shaper.theta=0.75", "method.shaper.soft_base=0.2", "trainer.steps=7"]
    expected = [run_id(compose_run([*words, f"seed={seed}"])) for seed in (0, 1)]
    assert list(plan.runs({"theta": 0.75, "soft_base": 0.2})) == expected


def test_the_first_trial_is_the_configuration_as_it_is():
    plan = make_plan("scpo", [])
    assert list(plan.runs(plan.default())) == [run_id(compose_run([f"seed={seed}"])) for seed in (0, 1)]


def test_what_may_change_while_a_search_goes_on_keeps_its_study(tmp_path):
    first = plan_in(tmp_path)
    for word in ("search.trials=3", "search.parallel=1", "search.retries=0", "search.fresh_seeds=[7]"):
        assert plan_in(tmp_path, word).study_id == first.study_id
    for word in ("trainer.steps=9", "seeds=[0]", "search.panel=valid_seen", "search.space.theta.high=0.75"):
        assert plan_in(tmp_path, word).study_id != first.study_id


def test_scale_env_and_model_choose_their_values():
    plan = make_plan("scpo", ["scale=paper", "env=webshop", "search.panel=test"])
    assert (plan.seeds, plan.trials, plan.metric) == ((0, 1), 24, "val/test/success_rate")
    assert (plan.base.env.name, plan.base.model.name, plan.default()["alpha"]) == ("webshop", "1.5B", 1.0)


BAD = {
    "searched key": (["method.shaper.theta=0.5"], "the search varies method.shaper.theta itself"),
    "one seed": (["seed=0"], "a trial runs on several seeds"),
    "unknown panel": (["search.panel=tests"], "no validation panel 'tests'.*allowed: valid_seen"),
    "winner on its own seeds": (["seeds=[10]"], r"seeds \[10\] are in seeds and in search.fresh_seeds"),
    "unknown key": (["+search.trails=5"], "unknown key trails.*did you mean trials"),
    "empty range": (["search.space.theta.low=0.95"], "low must be below high"),
    "misspelt override": (["trainer.stepz=3"], "did you mean trainer.steps"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_wrong_search_is_refused_with_its_reason(words, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        make_plan("scpo", words)


def test_an_unknown_search_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean scpo"):
        make_plan("scop", [])
