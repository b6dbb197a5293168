import gzip
import json
import re

import numpy as np
import pytest

from bench.recorded import recorded
from scpo.advantages.anchors import anchor_groups
from scpo.credit.assign import assign
from scpo.diagnostics.sampled_groups import LONGEST_TEXT, read_groups, sampled_groups, save_groups
from scpo.errors import ConfigError, RecordError
from scpo.records import RunFolder
from tests.support.group_samples import rollouts, run_config, write_groups
from tests.support.step_batches import EqualityScorer, make_batch, method, random_batch, shaper_config, take

SCPO = method(shaper=shaper_config(order="chronological"))
# Sibling 1 follows the reference 0 for two steps and then goes astray; 2 fails at once; group 1 has no success.
BATCH = make_batch((0, 0, "a b c", 1), (0, 1, "a b x", 0), (0, 2, "y", 0), (1, 3, "a", 0))


def sample(batch, config=SCPO, seed=(0, 5), count=2):
    scorer = EqualityScorer()
    _, told = assign(batch, scorer, config, seed=seed)
    return sampled_groups(batch, told, scorer, config, seed=seed, count=count)


def test_a_group_is_recorded_with_both_sides_the_matrix_and_the_walk():
    record = sample(BATCH)
    assert (record["step"], record["groups_in_batch"], record["active_groups"]) == (5, 2, 1)
    (group,) = record["groups"]
    assert group["siblings"] == [
        {"trajectory": 0, "episode_return": 1.0, "success": True, "steps": 3},
        {"trajectory": 1, "episode_return": 0.0, "success": False, "steps": 3},
        {"trajectory": 2, "episode_return": 0.0, "success": False, "steps": 1},
    ]
    assert group["reference"] == {"trajectory": 0, "steps": [0, 1, 2]}
    followed, astray = group["matches"]
    assert followed["trajectory"] == 1
    assert followed["similarity"] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert followed["walk"] == [[0, 0], [1, 1], [2, -1]]
    assert followed["credited"] == [[0, 0, 1.0, 1.0], [1, 1, 1.0, 1.0]]
    assert (astray["trajectory"], astray["similarity"], astray["credited"]) == (2, [[0], [0], [0]], [])


def test_columns_hold_every_step_with_its_texts_returns_and_advantages():
    batch = take(BATCH, np.arange(8), valid_N=[True] * 6 + [False, True])
    advantage_N, told = assign(batch, EqualityScorer(), SCPO, seed=(0, 5))
    (group,) = sample(batch)["groups"]
    steps, texts = group["steps"], group["texts"]
    assert {len(column) for column in steps.values()} == {7}
    assert [texts[k] for k in steps["action"]] == ["a", "b", "c", "a", "b", "x", "y"]
    assert [texts[k] for k in steps["observation"]][-1] == "now y"
    assert [texts[k] for k in steps["state"]][:2] == ["start", "a"]
    assert len(texts) == len(set(texts))
    assert steps["kept"] == [True] * 6 + [False]
    assert np.allclose(steps["bonus"], [0, 0, 0, 0.5, 0.5, 0, -0.1])
    assert np.allclose(steps["step_return"], told.step_return_N[:7], rtol=1e-5)
    assert np.allclose(steps["advantage"], advantage_N[:7], rtol=1e-5)
    assert np.allclose(steps["unshaped_advantage"], told.unshaped_advantage_N[:7], rtol=1e-5)
    assert steps["advantage"] != steps["unshaped_advantage"]
    anchor_N = anchor_groups(batch)[:7]
    assert np.array_equal(
        np.equal.outer(steps["anchor_group"], steps["anchor_group"]), np.equal.outer(anchor_N, anchor_N)
    )


def test_groups_are_drawn_at_random_and_the_draw_is_a_function_of_the_seed():
    batch = make_batch(*(e for g in range(8) for e in ((g, 2 * g, "a", 1), (g, 2 * g + 1, "a", 0))))
    draws = [[group["group"] for group in sample(batch, seed=(0, step))["groups"]] for step in range(20)]
    assert all(len(draw) == 2 and draw == sorted(draw) for draw in draws)
    assert len({group for draw in draws for group in draw}) == 8
    assert draws == [[group["group"] for group in sample(batch, seed=(0, step))["groups"]] for step in range(20)]


@pytest.mark.parametrize("reference", ["longest", "shortest", "random"])
def test_the_reference_is_the_one_that_was_matched(reference):
    config = method(shaper=shaper_config(reference=reference))
    for seed in range(8):
        batch = random_batch(seed, copies=5)
        scorer = EqualityScorer()
        _, told = assign(batch, scorer, config, seed=(seed, 1))
        groups = sampled_groups(batch, told, scorer, config, seed=(seed, 1), count=9)["groups"]
        matches = [match for group in groups for match in group["matches"]]
        assert len(matches) == len(told.shaped.matches)
        for group in groups:
            for match in told.shaped.matches:
                if match.task.group == group["group"] and len(match.reference_row_m):
                    assert batch.trajectory_N[match.reference_row_m[0]] == group["reference"]["trajectory"]
            assert not any(group["steps"]["credit"][i] for i in np.flatnonzero(~np.array(group["steps"]["kept"])))


def test_siblings_without_a_surviving_step_are_there_without_a_match():
    batch = take(BATCH, np.arange(8), valid_N=[False] * 3 + [True] * 3 + [False, True])
    (group,) = sample(batch)["groups"]
    assert group["reference"] == {"trajectory": 0, "steps": []}
    assert [match["similarity"] for match in group["matches"]] == [[], []]
    assert [match["steps"] for match in group["matches"]] == [[0, 1, 2], []]


def test_a_text_without_end_is_cut_and_says_so():
    (group,) = sample(make_batch((0, 0, "a", 1), (0, 1, "b" * (LONGEST_TEXT + 7), 0)))["groups"]
    assert max(map(len, group["texts"])) < LONGEST_TEXT + 50
    assert any(text.endswith("… (7 more characters)") for text in group["texts"])


def saved(folder, step, config):
    """The file that is written at ``step``; None if there is none."""
    scorer = EqualityScorer()
    _, told = assign(BATCH, scorer, config.method, seed=(config.seed, step))
    save_groups(RunFolder(folder), step, BATCH, told, config=config, scorer=scorer)
    path = folder / "diagnostics" / f"groups_step_{step:05d}.json.gz"
    return path.read_bytes() if path.exists() else None


def test_the_file_is_the_same_bytes_every_time(tmp_path):
    first, second = (saved(tmp_path / name, 5, run_config(SCPO)) for name in ("a", "b"))
    assert first == second
    assert json.loads(gzip.decompress(first)) == sample(BATCH)


def test_every_few_steps_are_sampled_and_the_first_and_the_last(tmp_path):
    config = run_config(SCPO)
    config.trainer.sample_every, config.trainer.steps = 3, 7
    assert [step for step in range(1, 8) if saved(tmp_path, step, config)] == [1, 3, 6, 7]


def test_a_method_without_a_shaper_leaves_no_file(tmp_path):
    assert saved(tmp_path, 1, run_config(method(name="gigpo"))) is None


def test_what_was_not_shaped_cannot_be_sampled():
    with pytest.raises(ConfigError, match="'gigpo' did not shape this batch"):
        sample(BATCH, method(name="gigpo"))


def test_a_recorded_batch_of_real_games_stays_small():
    step, batch, _ = next(recorded())
    record = sample(batch, method(shaper=shaper_config()), seed=(0, step), count=2)
    assert record["groups"]
    assert len(gzip.compress(json.dumps(record).encode())) < 100_000


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b"[]"), gzip.compress(b'{"step": 1}')],
    ids=["empty", "no gzip", "cut", "list", "half a record"],
)
def test_what_is_no_record_is_refused_with_the_files_name(content, tmp_path):
    path = tmp_path / "groups_step_00001.json.gz"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"groups_step_00001\.json\.gz is not a record of groups"):
        read_groups(path)


def _set(value, *keys):
    """A change of a record: another value at a place."""

    def change(record):
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(None, "step"), "step: Input should be a valid integer"),
        (_set("\ud800", "groups", 0, "task"), "surrogates not allowed"),
        (_set(float("nan"), "groups", 0, "steps", "advantage", 0), "Out of range float values"),
        (_set(10**400, "groups", 0, "siblings", 0, "episode_return"), "episode_return: "),
        (_set([], "groups", 0, "steps", "credit"), "groups.0.steps: Value error, columns of"),
        (_set(99, "groups", 0, "steps", "state", 0), "groups.0: Value error, steps name text 99 of"),
        (_set([[0.5]], "groups", 0, "matches", 0, "similarity"), "similarity"),
        (_set([[99, 0, 1.0, 1.0]], "groups", 0, "matches", 0, "credited"), "credited names"),
        (lambda record: record["groups"][0].pop("reference"), "groups.0.reference: Field required"),
        (_set(1, "groups"), "groups: Input should be a valid list"),
    ],
)
def test_wrong_content_is_refused_with_the_place_where_it_is(tmp_path, change, message):
    write_groups(tmp_path, 3)
    (path,) = tmp_path.glob("diagnostics/groups_*")
    record = json.loads(gzip.decompress(path.read_bytes()))
    change(record)
    path.write_bytes(gzip.compress(json.dumps(record).encode()))
    with pytest.raises(RecordError, match=re.escape(message)):
        read_groups(path)


def test_similarities_are_rounded_to_what_the_page_prints(tmp_path):
    write_groups(tmp_path, 3, batch=rollouts())
    path = tmp_path / "diagnostics" / "groups_step_00003.json.gz"
    record = json.loads(gzip.decompress(path.read_bytes()))
    record["groups"][0]["matches"][0]["similarity"][0][0] = 0.123456
    path.write_bytes(gzip.compress(json.dumps(record).encode()))
    assert read_groups(path)["groups"][0]["matches"][0]["similarity"][0][0] == 0.1235
