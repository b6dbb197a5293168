import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.records.files import read_yaml
from scpo.records.identity import digest, identity, is_id_of, run_id, settings_digest
from scpo.records.run_config import ensure
from sweeps.compose.configuration import compose_run


def test_the_id_reads_as_env_model_method_seed_hash():
    assert re.fullmatch(r"alfworld-tiny-gigpo-s3-[0-9a-f]{8}", run_id(compose_run(["method=gigpo", "seed=3"])))


def test_the_shapers_choices_show_in_the_id():
    config = compose_run(["method.shaper.monotonic=false", "method.shaper.theta=0.5", "model=qwen2_5_1_5b"])
    assert run_id(config).startswith("alfworld-1.5b-scpo-no_monotonicity-theta0.5-s0-")


def test_another_host_than_the_papers_shows_in_the_id():
    assert run_id(compose_run(["method.host=hgpo"])).startswith("alfworld-tiny-scpo-on_hgpo-s0-")
    assert run_id(compose_run(["method.host=gigpo"])) == run_id(compose_run([]))


def test_settings_of_other_hosts_are_no_part_of_the_identity():
    assert set(identity(compose_run(["method.host=g2po"]))["method"]["estimator"]) == {
        "name", "gamma", "invalid_penalty", "normalisation", "omega", "success_value", "statistics", "std_floor"
    }  # fmt: skip


def test_identities_of_states_are_part_of_it_where_they_are_not_equality():
    exact, named = (compose_run(["method=gigpo", f"method.estimator.states={name}"]) for name in ("exact", "entities"))
    assert not {"states", "states_threshold"} & set(identity(exact)["method"]["estimator"])
    assert identity(named)["method"]["estimator"]["states"] == "entities"
    assert run_id(exact) == run_id(compose_run(["method=gigpo"])) != run_id(named)
    assert not {"states", "states_threshold"} & set(identity(compose_run(["method=scpo"]))["method"]["shaper"])


def test_the_state_key_is_part_of_it_where_it_is_not_the_raw_observation():
    anchor, state = (compose_run(["method=gigpo", f"method.estimator.state_key={key}"]) for key in ("anchor", "state"))
    assert "state_key" not in identity(anchor)["method"]["estimator"]
    assert identity(state)["method"]["estimator"]["state_key"] == "state"
    assert run_id(anchor) == run_id(compose_run(["method=gigpo"])) != run_id(state)


def test_machine_settings_are_no_part_of_the_identity():
    here, there = compose_run([]), compose_run(["machine.threads=2", "wandb.mode=disabled", "launcher.slots=4"])
    assert run_id(here) == run_id(there)
    assert set(identity(here)) == {"scale", "seed", "method", "env", "model", "trainer", "scorer"}


def test_any_other_setting_is_part_of_it():
    ids = {run_id(compose_run(words)) for words in ([], ["trainer.rollout_batch=8"], ["seed=1"], ["model.init_seed=1"])}
    assert len(ids) == 4


def test_an_id_does_not_depend_on_how_the_configuration_was_written():
    assert run_id(compose_run(["env.win_reward=5"])) == run_id(compose_run(["env.win_reward=5.0"]))
    assert run_id(compose_run(["method=scpo", "seed=0"])) == run_id(compose_run([]))


def test_a_model_path_cannot_leave_the_runs_folder():
    config = compose_run(["model=qwen2_5_1_5b", "model.name='../../My Model;rm -rf'"])
    assert re.fullmatch(r"[a-z0-9._-]+", run_id(config))
    assert run_id(config).startswith("alfworld-my_model_rm_rf-")


def test_runs_that_differ_only_in_the_seed_share_their_settings():
    zero, one = compose_run([]), compose_run(["seed=1"])
    assert settings_digest(zero) == settings_digest(one) != settings_digest(compose_run(["trainer.steps=3"]))


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()))
def test_the_digest_ignores_the_order_of_keys(value):
    assert digest(value) == digest(dict(reversed(value.items())))


@pytest.mark.parametrize(
    "words", [(), ("scale=study", "method=empg"), ("scale=paper", "env=webshop"), ("method=plain",)]
)
def test_a_recorded_configuration_is_that_of_the_folders_name(tmp_path, words):
    folder = ensure(compose_run([*words, f"machine.runs_dir={tmp_path}"]))
    assert is_id_of(folder.run_id, read_yaml(folder.config))


@pytest.mark.parametrize(
    "other", ["{} (copy)", "copy of {}", "#{}", "{}\n", " {}", "x{}", "{}.bak", "../{}", "$({})", "old-{}", "ü{}"]
)
def test_a_copy_under_another_name_is_not_the_run(tmp_path, other):
    folder = ensure(compose_run([f"machine.runs_dir={tmp_path}"]))
    assert not is_id_of(other.format(folder.run_id), read_yaml(folder.config))
