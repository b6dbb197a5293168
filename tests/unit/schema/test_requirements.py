"""Which method runs on which trainer, decided before anything starts."""

import pytest

from scpo.errors import ConfigError
from scpo.schema.agent import AGENT_LABELS
from scpo.schema.method import PROVIDES, misfit, required
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import options

METHODS = [name for name in options("method") if name not in AGENT_LABELS]
REFUSED = {"verl": {"dapo"}, "verl_agent": {"hcapo"}, "local": set()}


BUFFER = "method.shaper.reference_buffer=last_success"


def method(name, *words):
    return compose_run([f"method={name}", *words]).method


def test_what_a_method_requires_of_its_trainer():
    assert required(method("scpo")) == required(method("gigpo")) == frozenset()
    assert required(method("empg")) == {"entropy"}
    assert required(method("hcapo")) == {"hindsight_logprob"}
    assert required(method("ppo")) == {"value", "independent_sampling"}
    assert required(method("dapo")) == {"dynamic_sampling"}


@pytest.mark.parametrize("trainer", PROVIDES)
def test_each_method_runs_on_a_trainer_or_is_refused(trainer):
    assert {name for name in METHODS if misfit(method(name), trainer)} == REFUSED[trainer]


@pytest.mark.parametrize("value", ["0", "null"])
def test_a_refused_interval_of_precision_tells_how_to_switch_it_off(value):
    with pytest.raises(ConfigError, match=r"^trainer.precision_every: got .*above trainer.steps"):
        compose_run(["method=scpo", f"trainer.precision_every={value}"])
    assert compose_run(["method=scpo", "trainer.precision_every=1000000"]).trainer.precision_every == 1000000


def test_a_prompting_method_needs_nothing_of_a_trainer():
    assert required(compose_run(["method=plain"]).method) == frozenset()


@pytest.mark.parametrize("name", sorted(REFUSED["verl"]))
def test_a_refusal_names_what_is_missing_and_who_has_it(name):
    with pytest.raises(ConfigError, match=rf"method={name} needs .*, which trainer=verl does not provide; .*: local"):
        compose_run([f"method={name}", "trainer=verl"])


def test_a_sweep_is_refused_with_the_row_before_anything_is_submitted(tmp_path):
    words = ["trainer=verl", "seeds=[0]", "env=alfworld", "method.sampling={rule: dynamic, rounds: 2}"]
    with pytest.raises(ConfigError, match=r"row gigpo: method=gigpo needs dynamic_sampling, which trainer=verl"):
        expand("hosts", [*words, f"machine.runs_dir={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_trainers_speak_the_words_of_what_methods_require():
    words = frozenset().union(*(required(method(name)) for name in METHODS), required(method("scpo", BUFFER)))
    assert all(provided <= words for provided in PROVIDES.values())


@pytest.mark.parametrize("trainer", PROVIDES)
def test_a_reference_buffer_needs_a_trainer_that_knows_its_tasks(trainer):
    reason = misfit(method("scpo", BUFFER), trainer)
    if trainer in ("local", "verl"):
        assert reason is None
    else:
        assert reason.endswith(
            f"needs reference_buffer, which trainer={trainer} does not provide; trainers that do: local, verl"
        )


def test_an_age_limit_without_a_buffer_is_refused():
    with pytest.raises(ConfigError, match=r"reference_max_age=3 is only read with reference_buffer=last_success"):
        method("scpo", "method.shaper.reference_max_age=3")
