"""Our grounding is Fast Downward's, and a translation on disk is used only if it is what it should be."""

import gzip
import json
import logging
import sys
from collections import Counter

import pytest
from pydantic import TypeAdapter

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.games import generate
from scpo.envs.alfworld.planning import translation
from scpo.envs.alfworld.planning.pddl import read_problem
from scpo.envs.alfworld.planning.translation import NameTable, TranslationStore, make_task, translate
from tests.support.alfworld_games import official_games


def reference_task(domain, problem):
    """Fast Downward's translation: variables, those true at the start, goal, operators, axioms; names for numbers."""
    assets()
    import fast_downward

    arguments = sys.argv
    try:
        _, sas = fast_downward.pddl2sas(domain, problem)
    finally:
        sys.argv = arguments
    lines = iter(sas.split("\n"))

    def numbers():
        return [int(word) for word in next(lines).split()]

    def skip_to(end):
        while next(lines) != end:
            pass

    skip_to("end_metric")
    names = []
    for _ in range(int(next(lines))):
        block = [next(lines) for _ in range(7)]
        names.append(block[4])
    skip_to("begin_state")
    start = {name for name in names if next(lines) == "0"}
    skip_to("begin_goal")

    def conditions():
        return {(names[v], value) for v, value in (numbers() for _ in range(int(next(lines))))}

    goal = conditions()
    next(lines)
    operators = Counter()
    for _ in range(int(next(lines))):
        next(lines)
        name, needed, effects = next(lines), conditions(), set()
        for _ in range(int(next(lines))):
            count, *rest = numbers()
            under = frozenset((names[rest[2 * i]], rest[2 * i + 1]) for i in range(count))
            variable, before, after = rest[2 * count :]
            needed |= {(names[variable], before)} if before >= 0 else set()
            effects.add((under, (names[variable], after)))
        operators[name, frozenset(needed), frozenset(effects)] += 1
        assert [next(lines), next(lines)] == ["1", "end_operator"]
    axioms = Counter()
    for _ in range(int(next(lines))):
        next(lines)
        body = frozenset(conditions())
        variable, _, after = numbers()
        axioms[body, (names[variable], after)] += 1
        next(lines)
    return set(names), start, goal, operators, axioms


def our_task(domain, problem):
    parsed = read_problem(domain, problem)
    task = make_task(parsed)
    names = [f"Atom {atom[0]}({', '.join(atom[1:])})" for atom in task.variables]

    def named(conditions):
        return frozenset((names[variable], value) for variable, value in conditions)

    operators = Counter(
        (
            " ".join(operator.name),
            named(operator.preconditions),
            frozenset((named(under), (names[v], value)) for under, (v, value) in operator.effects),
        )
        for operator in task.operators
    )
    axioms = Counter((named(axiom.preconditions), next(iter(named([axiom.effects[0][1]])))) for axiom in task.axioms)
    start = {name for name, atom in zip(names, task.variables, strict=True) if atom in parsed.facts}
    return set(names), start, set(named(task.goal)), operators, axioms


def assert_same_task(game):
    for ours, theirs in zip(
        our_task(game.domain, game.problem), reference_task(game.domain, game.problem), strict=True
    ):
        assert ours == theirs, game.id


def test_grounding_a_generated_game_gives_fast_downwards_task():
    for index in (1, 5):
        assert_same_task(generate("train", 5, index))


def test_grounding_an_official_game_gives_fast_downwards_task():
    for game in official_games("valid_seen", 1)[::3]:
        assert_same_task(game)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_grounding_many_games_gives_fast_downwards_tasks():
    for split in ("train", "valid_seen", "valid_unseen"):
        for game in [*official_games(split, 3, more=3), *(generate(split, 5, index) for index in range(18))]:
            assert_same_task(game)


def kept_file(folder):
    (file,) = folder.rglob("*.json.gz")
    return file


def test_a_translation_is_read_back_as_it_was_made(tmp_path):
    game = generate("train", 0, 1)
    made = TranslationStore(tmp_path).get(game.domain, game.problem)
    assert made == translate(game.domain, game.problem)
    before = kept_file(tmp_path).stat().st_mtime_ns
    assert TranslationStore(tmp_path).get(game.domain, game.problem) == made
    assert kept_file(tmp_path).stat().st_mtime_ns == before


def torn(content):
    return content[: len(content) // 2]


def of_another_game(content):
    header, body = gzip.decompress(content).split(b"\n", 1)
    return gzip.compress(json.dumps({**json.loads(header), "key": "0" * 64}).encode() + b"\n" + body)


def tampered(content):
    return gzip.compress(gzip.decompress(content).replace(b"atlocation", b"notthere"))


@pytest.mark.parametrize("damage", [torn, of_another_game, tampered, lambda _: b"", lambda _: b"pickle?"])
def test_a_damaged_or_foreign_file_is_made_again(tmp_path, caplog, damage):
    game = generate("train", 0, 1)
    made = TranslationStore(tmp_path).get(game.domain, game.problem)
    file = kept_file(tmp_path)
    good = file.read_bytes()
    file.write_bytes(damage(good))
    with caplog.at_level(logging.WARNING):
        assert TranslationStore(tmp_path).get(game.domain, game.problem) == made
    assert "is made again" in caplog.text
    assert file.read_bytes() == good


def test_a_flipped_bit_anywhere_in_a_file_is_found_whichever_decoder_finds_it(tmp_path, caplog):
    game = generate("train", 0, 1)
    made = TranslationStore(tmp_path).get(game.domain, game.problem)
    file = kept_file(tmp_path)
    good = file.read_bytes()
    for place in range(0, len(good), max(1, len(good) // 150)):
        damaged = bytearray(good)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        caplog.clear()
        kept = translation._read(file, file.name.partition(".")[0])
        assert kept == made or (kept is None and str(file) in caplog.text)


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    game = generate("train", 0, 1)
    with caplog.at_level(logging.WARNING):
        made = TranslationStore(blocked / "cache").get(game.domain, game.problem)
    assert made == translate(game.domain, game.problem)
    assert "translation not kept" in caplog.text


def test_rows_of_words_survive_json():
    rows = [("move", "a", "b"), ("look",), ("take", "b")]
    form = TypeAdapter(NameTable)
    assert list(form.validate_json(form.dump_json(NameTable.of(rows)))) == rows
    assert len(NameTable.of([])) == 0
