import pytest

from scpo.envs.alfworld.data_check import OFFICIAL_GAMES, check_data
from sweeps.compose.configuration import compose_run
from tests.support.doctor_findings import assert_finds


@pytest.fixture(scope="module")
def official():
    return compose_run(["env.games=official"]).env


def test_generated_games_need_nothing():
    (found,) = check_data(compose_run([]).env, None)
    assert found.level == "ok"


def test_official_games_without_a_folder(official, tmp_path):
    assert_finds(check_data(official, None), "error", "ALFWORLD_DATA is not set", "alfworld-download")
    assert_finds(check_data(official, str(tmp_path)), "error", "no official games at", "alfworld-download")


def test_official_games_that_are_incomplete(official, tmp_path):
    for split in OFFICIAL_GAMES:
        game = tmp_path / "json_2.1.1" / split / "heat-Egg" / "trial"
        game.mkdir(parents=True)
        (game / "game.tw-pddl").touch()
    found = check_data(official, str(tmp_path))
    assert_finds(found, "warning", "1 train, 1 valid_seen, 1 valid_unseen; the release has 3553 train")


def test_an_empty_split_of_official_games(official, tmp_path):
    (tmp_path / "json_2.1.1").mkdir()
    assert_finds(check_data(official, str(tmp_path)), "error", "0 train, 0 valid_seen")
