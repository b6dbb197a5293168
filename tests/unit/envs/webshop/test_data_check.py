from scpo.envs.webshop.catalogue.catalogue import SMALL
from scpo.envs.webshop.data_check import check_data
from sweeps.compose.configuration import compose_run
from tests.support.doctor_findings import assert_finds


def shop(*overrides):
    return compose_run(["env=webshop", "env.nouns=stop_list", *overrides]).env


def test_a_generated_catalogue_needs_nothing():
    (found,) = check_data(shop(), None)
    assert found.level == "ok"


def test_a_missing_model_for_nouns_is_left_to_the_doctors_check_of_it():
    """The doctor had two findings of it."""
    assert [finding.check for finding in check_data(compose_run(["env=webshop"]).env, None)] == ["catalogue"]


def test_an_order_without_a_hold_out_is_warned_of_at_once():
    found = check_data(shop("env.order=verl_agent"), None)
    assert_finds(found, "warning", "holds no goals out", "env.order=fixed")


def test_an_official_catalogue_without_its_files(tmp_path):
    (tmp_path / SMALL[0]).write_text("[]")
    found = check_data(shop("env.catalogue=official"), str(tmp_path))
    assert_finds(found, "error", f"{tmp_path} lacks", "python -m scpo.envs.webshop")


def test_human_goals_without_their_file(tmp_path):
    for name in SMALL:
        (tmp_path / name).write_text("[]")
    found = check_data(shop("env.catalogue=official", "env.goals=human"), str(tmp_path))
    assert_finds(found, "error", "items_human_ins.json")
