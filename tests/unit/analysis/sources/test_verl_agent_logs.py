import pytest

from analysis.sources import verl_agent_logs

CONFIG = {
    "algorithm": {"adv_estimator": "gae"},
    "env": {"env_name": "Webshop", "seed": 2},
    "actor_rollout_ref": {"model": {"path": "/models/Qwen2.5-7B-Instruct"}},
    "trainer": {"total_epochs": 150, "total_training_steps": None},
}
ALFWORLD = CONFIG | {"env": {"env_name": "alfworld/AlfredTWEnv"}}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("episode/success_rate", "train/success_rate"),
        ("val/success_rate", "val/test/success_rate"),
        ("val/webshop_task_score (not success_rate)", "val/test/score"),
        ("episode/webshop_task_score (not success_rate)", "train/score"),
        ("timing_s/step", "timing_s/step"),
        ("actor/kl_loss", "actor/kl_loss"),
        ("perf/max_memory_allocated_gb", "perf/max_memory_allocated_gb"),
    ],
)
def test_webshop_names(theirs, ours):
    assert verl_agent_logs.translate({theirs: 0.5}, CONFIG) == {ours: 0.5}


def test_families_go_to_the_split_that_was_evaluated():
    line = {"val/pick_heat_then_place_in_recep_success_rate": 0.5}
    assert verl_agent_logs.translate(line, ALFWORLD) == {
        "val/valid_seen/pick_heat_then_place_in_recep/success_rate": 0.5
    }
    unseen = ALFWORLD | {"env": ALFWORLD["env"] | {"alfworld": {"eval_dataset": "eval_out_of_distribution"}}}
    assert verl_agent_logs.translate({"val/success_rate": 1}, unseen) == {"val/valid_unseen/success_rate": 1}


def test_the_score_that_averages_over_step_rows_is_left_out():
    assert verl_agent_logs.translate({"val/text/test_score": 9.0, "step": 1}, CONFIG) == {"step": 1}


def test_the_head_is_what_a_table_needs():
    head = verl_agent_logs.head_of(CONFIG)
    assert (head["method"]["name"], head["env"]["name"], head["model"]["name"]) == ("ppo", "webshop", "7B")
    assert (head["seed"], verl_agent_logs.steps_of(CONFIG)) == (2, 150)


def test_seeds_share_a_setting_and_budgets_do_not():
    other = CONFIG | {"env": CONFIG["env"] | {"seed": 3}}
    longer = CONFIG | {"trainer": {"total_epochs": 160}}
    assert verl_agent_logs.setting_of(CONFIG) == verl_agent_logs.setting_of(other) != verl_agent_logs.setting_of(longer)


def test_a_run_that_our_hooks_shaped_is_scpo():
    hooked = CONFIG | {"scpo": {"run_folder": "runs/webshop-7b-scpo-s2-0123abcd"}}
    assert verl_agent_logs.head_of(hooked)["method"] == {"name": "scpo"}
    plain = CONFIG | {"scpo": {"run_folder": "runs/webshop-7b-ppo-s2-0123abcd"}}
    assert verl_agent_logs.head_of(plain)["method"]["name"] == "ppo"


def test_a_configuration_of_another_kind_is_not_taken_for_one():
    assert not verl_agent_logs.is_verl_agent({"env": {"name": "alfworld"}, "actor_rollout_ref": {}})
    assert not verl_agent_logs.is_verl_agent({"lr": 1})
