import pytest

import scpo
from scpo import library
from scpo.errors import ConfigError
from scpo.library import load_environment
from scpo.schema import composed
from scpo.shaping.matcher import MATCHERS


def test_methods_have_the_values_of_their_files():
    method = scpo.load_method("scpo", theta=0.5, omega=0.25, clip_high=0.3)
    assert (method.shaper.theta, method.estimator.omega, method.clip_high) == (0.5, 0.25, 0.3)
    assert method.estimator.name == "gigpo"
    assert scpo.load_method("scpo").shaper.theta == 0.6  # nothing of the call before is left
    assert scpo.load_method("gigpo").shaper is None


def test_a_matcher_that_a_notebook_registers_after_the_first_method_is_accepted(monkeypatch):
    scpo.load_method("scpo")
    monkeypatch.setitem(MATCHERS, "mine", MATCHERS["kmp"])
    assert scpo.load_method("scpo", matcher="mine").shaper.matcher == "mine"
    with pytest.raises(ConfigError, match=r"matcher 'mien' is unknown; allowed: .*mine"):
        scpo.load_method("scpo", matcher="mien")


def test_a_host_brings_its_own_settings():
    assert scpo.load_method("scpo", host="hgpo", context=3).estimator.context == 3


def test_a_benchmark_has_its_own_alpha():
    alphas = [scpo.load_method("scpo", env=env).shaper.alpha for env in ("alfworld", "webshop")]
    assert len(set(alphas)) == 2


def test_scorers_are_made_by_name():
    assert scpo.load_scorer("exact").score([("a", "a"), ("a", "b")]).tolist() == [1, 0]


def test_a_scorer_of_an_unregistered_kind_is_answered_with_the_allowed_ones(tmp_path, monkeypatch):
    (tmp_path / "scorer").mkdir()
    (tmp_path / "scorer/dice.yaml").write_text("{kind: dice, name: dice}")
    for module in (library, composed):
        monkeypatch.setattr(module, "configuration_folders", lambda: (tmp_path,))
    composed._composed.cache_clear()
    with pytest.raises(ConfigError) as caught:
        scpo.load_scorer("dice")
    composed._composed.cache_clear()
    answer = str(caught.value)
    assert answer.startswith("scorer 'dice': kind is 'dice'; allowed: exact, lexical, bi_encoder, cross_encoder, or a ")
    assert "`python -m scpo.new` writes one" in answer


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scpo.load_method("scop"), r"no method is called 'scop'; did you mean scpo\?; allowed: "),
        (lambda: scpo.load_method("react"), "prompts a model and assigns no credit"),
        (lambda: scpo.load_method("scpo", thta=0.5), r"no setting 'thta'; did you mean theta\?; it has "),
        (
            lambda: scpo.load_method("crbc", states="exakt"),
            "method 'crbc': estimator.crbc; states='exakt' is no identity of states; did you mean exact",
        ),
        (lambda: scpo.load_method("scpo", theta=2), "shaper.theta is 2; Input should be less"),
        (lambda: scpo.load_method("scpo", name="x"), "no setting 'name'"),
        (lambda: scpo.load_method("scpo", host="grpo"), "host='grpo' is not a host.*allowed: gigpo, hgpo"),
        (lambda: scpo.load_method("grpo", host="hgpo"), r"no shaper and so no host; load_method\('scpo'"),
        (lambda: scpo.load_scorer("exat"), "no scorer is called 'exat'; did you mean exact"),
    ],
)
def test_a_wrong_argument_is_answered_with_what_to_pass(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None), "batch is a NoneType; pass scpo.StepBatch.from_episodes"),
        (("batch", None, "grpo"), r"config is 'grpo'; pass scpo.load_method\('grpo'\)"),
        (("batch", "exact", scpo.load_method("scpo")), r"scorer is 'exact', .* pass scpo.load_scorer\('exact'\)"),
        (("batch", None, scpo.load_method("scpo")), r"needs a scorer: got None, pass scpo.load_scorer"),
    ],
)
def test_assign_says_what_to_pass(arguments, message):
    batch = scpo.StepBatch.from_episodes([scpo.Episode(0, [scpo.Step("a", "b", "c", r)]) for r in (0.0, 1.0)])
    with pytest.raises(ConfigError, match=message):
        scpo.assign(*[batch if one == "batch" else one for one in arguments])


def test_a_name_that_scpo_does_not_offer_is_answered_with_those_it_does():
    with pytest.raises(AttributeError, match=r"it offers .*load_scorer"):
        scpo.load_scorers  # noqa: B018


def test_an_environment_by_name_with_a_value_of_ones_own():
    assert load_environment("alfworld", cache_dir=None, horizon=7).config.horizon == 7
    with pytest.raises(ConfigError, match="alfworld has no setting 'horizn'; did you mean horizon"):
        load_environment("alfworld", cache_dir=None, horizn=7)
