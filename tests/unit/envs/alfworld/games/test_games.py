"""Generated games are a pure function of three numbers and can be won; official games are read or refused clearly."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from statistics import mean

import pytest

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.engine import Engine
from scpo.envs.alfworld.games.games import SPLITS, GeneratedGames, OfficialGames, generate
from scpo.envs.alfworld.games.scenario import sample
from scpo.envs.alfworld.planning.translation import TranslationStore
from scpo.errors import GameError
from scpo.schema.env import FAMILIES
from scpo.schema.env import GeneratedGames as Sizes
from tests.support.alfworld_games import StockEngine, official_data

SIZES = Sizes(seed=0, train=20, valid_seen=7, valid_unseen=6)
# Of the first games of each split with alfworld 0.4.2. If it changes, every panel and every published number does.
PINNED = "8430ea813576244a4700a8db3dff7391168f6860a5dff2d31a29ff93632b7f79"


def fingerprint():
    hashes = [generate(split, 0, index).sha256 for split in SPLITS for index in range(6)]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def test_games_are_what_they_always_were():
    assert fingerprint() == PINNED


def test_games_are_the_same_in_another_process():
    script = "from tests.unit.envs.alfworld.games.test_games import fingerprint; print(fingerprint())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    printed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == PINNED


def test_split_seed_and_index_all_make_another_game():
    games = {generate(*key).problem.split("(:objects")[1] for key in [("train", 0, 0), ("valid_seen", 0, 0)]}
    games |= {generate(*key).problem.split("(:objects")[1] for key in [("train", 1, 0), ("train", 0, 6)]}
    assert len(games) == 4


def test_families_take_turns():
    source = GeneratedGames(SIZES)
    assert [source.read(f"train/generated-0/{i:06d}-{f}").family for i, f in enumerate(FAMILIES.values())]
    assert {family: len(ids) for family, ids in source.ids("train").items()} == dict(
        zip(FAMILIES.values(), (4, 4, 3, 3, 3, 3), strict=True)
    )
    assert source.ids("valid_seen")["pick_and_place_simple"] == [
        "valid_seen/generated-0/000000-pick_and_place_simple",
        "valid_seen/generated-0/000006-pick_and_place_simple",
    ]


@pytest.mark.parametrize("name", ["train/generated-0/000000-look_at_obj_in_light", "train/x/y", "", "../../etc/passwd"])
def test_an_id_of_no_generated_game_is_refused(name):
    with pytest.raises(GameError, match="is not a generated game"):
        GeneratedGames(SIZES).read(name)


@pytest.mark.parametrize("family", FAMILIES.values())
def test_scenarios_keep_to_their_rooms_and_hide_the_target_elsewhere(family):
    rooms = assets().constants.TEST_SCENE_NUMBERS
    for seed in range(10):
        scenario = sample(family, rooms, random.Random(seed))
        assert scenario.room in rooms
        targets = [thing for thing in scenario.things if thing.kind == scenario.target]
        assert len(targets) >= scenario.wanted
        assert all(scenario.receptacles[t.receptacle].kind != scenario.destination for t in targets)
        assert scenario.start not in {r.location for r in scenario.receptacles.values()}
        assert len({thing.id for thing in scenario.things}) == len(scenario.things)


def test_unseen_games_lie_in_rooms_that_training_never_shows():
    rooms = {split: places_of(split) for split in ("train", "valid_unseen")}
    assert not rooms["train"] & rooms["valid_unseen"]


def places_of(split):
    """Recorded cabinets and drawers (with their coordinates) of some games: they tell rooms apart."""
    problems = [generate(split, 0, index).problem for index in range(2, 60, 3)]
    return {match for problem in problems for match in re.findall(r"receptacleType (Cabinet_bar\w+) ", problem)}


def test_generated_games_are_like_the_official_ones():
    games = [generate("train", 0, index) for index in range(90)]
    starts = [game.problem.split("(:goal")[0] for game in games]
    assert 5.5 < mean(len(game.walkthrough) for game in games) < 6.7  # official: 6.0
    assert 19 < mean(start.count("(receptacleType ") for start in starts) < 25  # official: 23.9
    assert 34 < mean(start.count("(objectType ") for start in starts) < 46  # official: 42.4
    found = Counter(re.search(r"take \w+ \d+ from (\w+)", " ".join(game.walkthrough))[1] for game in games)
    assert len(found) >= 10, "things must lie in many kinds of places, or there is nothing to search"
    assert max(found.values()) < 45


def walk(game):
    engine = Engine(OneGame(game), TranslationStore(None))
    opened = engine.open(game.id)
    state = opened.start
    for command in game.walkthrough:
        assert command in state.operators, f"{game.id}: {command}"
        assert not state.won, f"{game.id}: won before {command}"
        state, _ = engine.step(opened, state, command)
    return state.won


class OneGame:
    def __init__(self, game):
        self.read = {game.id: game}.__getitem__


@pytest.mark.parametrize("split", SPLITS)
def test_walkthroughs_win(split):
    for index in range(12):
        assert walk(generate(split, 1, index)), index


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("split", SPLITS)
def test_walkthroughs_win_on_both_engines(split):
    for index in range(60):
        game = generate(split, 2, index)
        assert walk(game)
        stock = StockEngine(game)
        stock.reset()
        seen = [stock.step(command) for command in game.walkthrough]
        assert seen[-1].won
        assert seen[-1].done


def write_game(folder, name="pick_and_place_simple-Mug-None-Desk-301/trial_1", **changes):
    content = {"pddl_domain": "d", "pddl_problem": "p", "grammar": "g", "solvable": True, "walkthrough": ["look"]}
    file = folder / "json_2.1.1" / "valid_seen" / name / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**content, **changes}))
    return file


def test_official_games_are_listed_by_family_and_sorted(tmp_path):
    for name in ("trial_2", "trial_1"):
        write_game(tmp_path, f"look_at_obj_in_light-Mug-None-DeskLamp-301/{name}")
    write_game(tmp_path, "pick_and_place_with_movable_recep-Mug-Plate-Desk-301/trial_1")
    write_game(tmp_path, "pick_and_place_simple-AppleSliced-None-Desk-301/trial_1")
    write_game(tmp_path, "pick_and_place_simple-Mug-None-Desk-301/trial_1", solvable=False)
    source = OfficialGames(str(tmp_path))
    ids = source.ids("valid_seen")
    look = "valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-301"
    assert ids["look_at_obj_in_light"] == [f"{look}/trial_1", f"{look}/trial_2"]
    assert sum(map(len, ids.values())) == 3
    assert [source.playable(name) for names in ids.values() for name in names] == [False, True, True]
    assert tuple(ids) == tuple(FAMILIES.values())


def test_an_official_game_is_hashed_by_its_bytes(tmp_path):
    file = write_game(tmp_path)
    game = OfficialGames(str(tmp_path)).read("valid_seen/pick_and_place_simple-Mug-None-Desk-301/trial_1")
    assert game.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (game.family, game.walkthrough) == ("pick_and_place_simple", ("look",))


def test_no_folder_of_official_games(tmp_path):
    with pytest.raises(GameError, match="ALFWORLD_DATA is not set; run alfworld-download"):
        OfficialGames(None)
    with pytest.raises(GameError, match=r"nowhere/json_2\.1\.1.*does not exist; run alfworld-download"):
        OfficialGames(str(tmp_path / "nowhere"))


def test_a_folder_without_games(tmp_path):
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(GameError, match=r"train holds no file .*game\.tw-pddl; run alfworld-download"):
        OfficialGames(str(tmp_path)).ids("train")
    with pytest.raises(GameError, match="splits are train, valid_seen, valid_unseen"):
        OfficialGames(str(tmp_path)).ids("valid_unseen")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a list, not a game"),
        ('{"pddl_domain": "d"}', "has no usable pddl_problem, grammar"),
        ('{"pddl_domain": "d", "pddl_problem": "p", "grammar": "g", "walkthrough": [1]}', "has no usable walkthrough"),
    ],
)
def test_a_corrupt_official_game_is_refused_by_name(tmp_path, content, error):
    file = write_game(tmp_path)
    file.write_text(content)
    with pytest.raises(GameError, match=error) as raised:
        OfficialGames(str(tmp_path)).read("valid_seen/pick_and_place_simple-Mug-None-Desk-301/trial_1")
    assert str(file) in str(raised.value)


def test_a_missing_official_game_is_refused_by_name(tmp_path):
    write_game(tmp_path)
    with pytest.raises(GameError, match=r"cannot read game file .*trial_9"):
        OfficialGames(str(tmp_path)).read("valid_seen/pick_and_place_simple-Mug-None-Desk-301/trial_9")


def test_real_official_games_have_walkthroughs_that_win():
    source = OfficialGames(official_data())
    for ids in source.ids("valid_seen").values():
        assert source.playable(ids[0])
        assert walk(source.read(ids[0]))
