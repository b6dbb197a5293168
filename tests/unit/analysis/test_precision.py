"""The command on a part of the recorded rollouts, with the games that they were played in."""

import gzip
import json

import pytest

from analysis.__main__ import main
from analysis.precision import rules
from bench.recorded import ROLLOUTS
from tests.support.alfworld_games import official_data
from tests.support.data_folders import unpacked

pytest.importorskip("alfworld", reason="needs alfworld: make setup")


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """The batches of steps 37 and 38, 180 failed steps beside a success; the second file holds one of them again."""
    folder = tmp_path_factory.mktemp("rollouts")
    with gzip.open(ROLLOUTS / "gigpo_s0.json.gz") as file:
        batches = [batch for batch in json.load(file) if batch["step"] in (37, 38)]
    for name, some in (("a", batches), ("b", batches[:1])):
        with gzip.open(folder / f"{name}.json.gz", "wt") as file:
            json.dump(some, file)
    return [str(folder / "a.json.gz"), str(folder / "b.json.gz")]


def test_one_command_makes_the_table_from_a_file(part, tmp_path, capsys):
    games, out = str(unpacked(ROLLOUTS / "games.tar.xz")), tmp_path / "out"
    words = ["--games", games, "--cache", str(tmp_path / "cache"), "--scorer", "exact", "--out", str(out)]
    assert main(["precision", *part, *words]) == 0
    told = capsys.readouterr().out
    assert "b.json.gz, step 37: as in an earlier file, left out" in told
    table = (out / "tab_precision_recorded.md").read_text()
    assert "the 180 failed steps of the 3 groups" in table
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("|")}
    assert {rule.label for rule in rules(["exact"])} <= rows.keys()
    credited = {label: int(line.split("|")[2].replace(",", "")) for label, line in rows.items() if "[" in line}
    assert credited["forward, chronological, equal texts"] >= credited["Algorithm 2, chronological, equal texts"] > 0
    assert sorted(path.suffix for path in out.iterdir()) == [".csv", ".md", ".tex"]


def test_other_games_than_those_that_were_played_end_in_one_line(part, tmp_path, capsys):
    words = ["--games", official_data(), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path)]
    assert main(["precision", part[0], *words]) == 1
    assert "error: " in (told := capsys.readouterr().out)
    assert "game.tw-pddl" in told


def test_every_rule_is_a_row_of_its_own():
    chosen = list(rules())
    assert len({(rule.block, rule.label) for rule in chosen}) == len(chosen)
    assert {rule.what for rule in chosen} == {"credit", "raised", "step_term"}
    published = {"GiGPO, by observation", "GraphGPO, by state", "CRBC, by state"}
    assert {f"{label} (published)" for label in published} <= {rule.label for rule in chosen}
    unpenalised = {rule.label: rule.method.estimator for rule in chosen if "without the penalty" in rule.block}
    assert {estimator.invalid_penalty for estimator in unpenalised.values()} == {0}
    assert [label for label, one in unpenalised.items() if not getattr(one, "bridge", True)] == [
        "RewardFlow, by observation, nothing bridged"
    ]
