import hashlib
import itertools
from string import ascii_lowercase

import numpy as np
import pytest

from scpo.errors import ConfigError
from scpo.policies.choice.alfworld_features import (
    MOST_WORDS,
    Command,
    Place,
    Reader,
    State,
    parse_command,
    read,
    task_words,
)
from scpo.policies.choice.imitation import RECIPE
from tests.support.choices import PROMPTS, prompt


def test_a_prompt_is_read_into_what_the_features_depend_on():
    found = read(
        prompt(
            "desk 2 | 1: mug 1, pen 2, mug 3, mug 4", "shelf 1 | 6: ", "fridge 1 | 0: closed", "safe 1 | 9: mug 5",
            held="mug 2", at="desk 2", last="take mug 2 from desk 2", step=7, commands=("go to desk 1", "look"),
        )
    )  # fmt: skip
    assert found.state == State(("hot", "mug", "desk"), "goal", "", placed=2, known=True)
    assert found.places == {
        "desk 2": Place("full", 2, 1),
        "shelf 1": Place("empty", 0, 2),
        "fridge 1": Place("closed", 0, 0),
        "safe 1": Place("full", 1, 3),
    }
    assert (found.location, found.last, found.step) == ("desk 2", "take mug 2 from desk 2", 7)
    assert found.commands == ("go to desk 1", "look")


@pytest.mark.parametrize(("held", "hold"), [("", "nothing"), ("mug 7", "goal"), ("pen 1", "other")])
def test_what_is_in_hand_counts_by_whether_the_task_names_it(held, hold):
    assert read(prompt(held=held)).state.hold == hold


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("go to desk 1", Command("go", "", "desk", "desk 1")),
        ("open fridge 2", Command("open", "", "fridge", "fridge 2")),
        ("take mug 2 from fridge 1", Command("take", "mug", "fridge", "fridge 1")),
        ("move mug 2 to desk 1", Command("move", "mug", "desk", "desk 1")),
        ("heat mug 2 with microwave 1", Command("heat", "mug", "microwave", "microwave 1")),
        ("use desklamp 1", Command("use", "desklamp", "", "")),
        ("look", Command("look", "", "", "")),
        ("shout, loudly", Command("shout,", "", "", "")),
    ],
)
def test_a_command_is_taken_apart(text, command):
    assert parse_command(text) == command


def test_stop_words_are_left_out_of_a_task():
    assert task_words("put two hot mugs in the coffeetable and look at it.") == ("two", "hot", "mugs", "coffeetable")


@pytest.mark.parametrize("text", ["put hot mug in safe | desk 2 <action>", prompt(commands=())])
def test_another_prompt_is_refused(text):
    with pytest.raises(ConfigError, match=r"reads only env\.prompt=memory"):
        read(text)


WIDTH = len(Reader.PAIR_FEATURES) + MOST_WORDS * len(Reader.PAIR_WORD_FEATURES)


def features(*texts, reader=None):
    """Features of every command, command by command."""
    reader = reader or Reader(512)
    feature_KF, place_C = reader.pair_features([reader.read(text) for text in texts])
    return feature_KF[place_C]


def test_each_command_of_a_prompt_has_its_features_and_zeros_for_words_that_its_task_has_not():
    found = features(prompt(task="put mug in desk."))
    assert found.shape == (4, WIDTH)
    known = len(Reader.PAIR_FEATURES) + 2 * len(Reader.PAIR_WORD_FEATURES)
    assert (found[:, :known] > 0).all()
    assert (found[:, known:] == 0).all()
    assert found.max() < 512


def differing(one, other, command):
    """Which features of a command differ between two prompts."""
    return {number for number, same in enumerate((features(one) == features(other))[command]) if not same}


def test_what_changes_in_the_prompt_changes_the_features_that_read_it_and_no_others():
    go_to_desk = 1
    changed = differing(prompt(), prompt(last="go to desk 1"), go_to_desk)
    assert changed == {number for number in range(12) if "again" in Reader.PAIR_FEATURES[number]}
    changed = differing(prompt("desk 1 | 0: pen 1"), prompt("desk 1 | 9: pen 1"), go_to_desk)
    assert changed == {number for number in range(12) if "age" in Reader.PAIR_FEATURES[number]}
    assert not differing(prompt(step=1), prompt(step=9), go_to_desk)  # the policy does not count steps


def test_a_thing_that_the_task_names_is_known_once_it_was_seen():
    changed = differing(prompt("shelf 2 | 1: pen 1"), prompt("shelf 2 | 1: mug 1"), 1)
    assert changed == {number for number in range(12) if "known" in Reader.PAIR_FEATURES[number]}


def test_words_of_a_task_have_the_same_features_wherever_they_stand():
    one, other = features(prompt(task="put mug in desk.")), features(prompt(task="on desk put mug."))
    first, second = (slice(12 + 3 * place, 15 + 3 * place) for place in (0, 1))
    np.testing.assert_array_equal(one[:, first], other[:, second])
    np.testing.assert_array_equal(one[:, second], other[:, first])


def test_equal_pairs_are_found_once():
    reader = Reader(512)
    cabinets = tuple(f"go to cabinet {n}" for n in range(1, 9))
    text = prompt("cabinet 3 | 0: closed", at="cabinet 5", commands=cabinets)
    feature_KF, place_C = reader.pair_features([reader.read(text)] * 2)
    assert len(feature_KF) == 3  # those that nothing is known of, the closed one, the one where the agent is
    assert len(place_C) == 16


def test_features_and_their_order_do_not_depend_on_what_was_read_before():
    used = Reader(512)
    features(*reversed(PROMPTS), reader=used)
    fresh = Reader(512)
    for one, other in zip(
        fresh.pair_features([fresh.read(text) for text in PROMPTS]),
        used.pair_features([used.read(text) for text in PROMPTS]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_the_features_of_a_prompt_are_the_same_among_many():
    reader = Reader(512)
    texts = [prompt(task=f"put {one}{two} in desk.") for one, two in itertools.product(ascii_lowercase, repeat=2)]
    texts += [text.replace("holding: ", "holding: pen 1") for text in texts]
    together = features(*texts, reader=reader)
    np.testing.assert_array_equal(together[:4], features(texts[0]))
    np.testing.assert_array_equal(together[-4:], features(texts[-1]))


def test_the_buckets_are_used_evenly():
    reader = Reader(1025)
    texts = [prompt(task=f"put {one}{two} in desk.") for one, two in itertools.product(ascii_lowercase, repeat=2)]
    counts = np.bincount(np.unique(features(*texts, reader=reader)), minlength=1025)[1:]
    assert counts.mean() > 0.95  # 676 tasks with four commands fill nearly every bucket


def test_features_are_those_that_kept_imitation_starts_were_made_with():
    digest = hashlib.sha256(features(*PROMPTS, reader=Reader(16384)).tobytes()).hexdigest()[:16]
    assert (digest, RECIPE) == ("82f389a7319699cd", 2), (
        "raise scpo.policies.choice.imitation.RECIPE: kept starts do not fit"
    )
