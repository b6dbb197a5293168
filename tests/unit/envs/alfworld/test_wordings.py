"""ALFWorld's observations and states in other words."""

import pytest

from scpo.envs.alfworld.sentences import AT, EMPTY, HOLDING, MOVED, NOWHERE, SENTENCES
from scpo.envs.alfworld.wordings import reworded, reworded_state
from scpo.envs.rewording import Rewording
from scpo.schema.env import MOST_PARAPHRASES
from scpo.states.words import names_in
from tests.unit.envs.test_rewording import config

OBSERVATIONS = [
    "You arrive at cabinet 1. The cabinet 1 is closed.",
    "You arrive at shelf 2. On the shelf 2, you see a mug 1, a pen 2, and a book 3.",
    "You open the fridge 1. The fridge 1 is open. In it, you see nothing.",
    "You close the fridge 1.",
    "You pick up the mug 1 from the shelf 2.",
    "You move the mug 1 to the shelf 2.",
    "You heat the mug 1 using the microwave 1.",
    "You turn on the desklamp 1.",
    "You are carrying: a mug 1.",
    "You are not carrying anything.",
    "You are facing the fridge 1. Next to it, you see nothing.",
    "This is a hot and clean mug 1.",
    "There's nothing special about mug 1.",
    "Nothing happens.",
]


def draw(step=0, sibling=0, **changes):
    return Rewording(config(**changes), "game", sibling).draw(step)


def test_every_sentence_has_its_own_form_and_as_many_paraphrases_as_can_be_drawn():
    for forms in (*(forms for _, forms in SENTENCES), AT, NOWHERE, HOLDING, EMPTY, MOVED):
        assert len(forms) == len(set(forms)) == MOST_PARAPHRASES + 1


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_a_paraphrase_names_the_same_things_in_other_words(observation):
    arms = ("paraphrase", "order")
    texts = {reworded(observation, draw(step, arms=arms)) for step in range(60)}
    assert observation not in texts
    assert len(texts) >= MOST_PARAPHRASES
    assert {names_in(text) for text in texts} == {names_in(observation)}


def test_sentences_are_drawn_each_for_itself():
    texts = {reworded(OBSERVATIONS[0], draw(step, arms=("paraphrase",))) for step in range(400)}
    assert len(texts) == MOST_PARAPHRASES**2


def test_only_the_order_of_listed_things_changes():
    texts = {reworded(OBSERVATIONS[1], draw(step, arms=("order",))) for step in range(60)}
    assert len(texts) == 6
    assert "You arrive at shelf 2. On the shelf 2, you see a pen 2, a book 3, and a mug 1." in texts


def test_pronouns_hide_what_the_last_action_named():
    texts = {reworded("You open the fridge 1.", draw(step, arms=("pronouns",)), "open fridge 1") for step in range(40)}
    assert texts == {"You open the fridge 1.", "You open it."}


def test_aliases_keep_the_number():
    texts = {reworded("You close the fridge 1.", draw(step, arms=("aliases",))) for step in range(60)}
    assert texts == {f"You close the {name} 1." for name in ("fridge", "refrigerator", "icebox")}


def test_an_unknown_sentence_stays_as_it_is():
    assert reworded("You win. The end.", draw(arms=("paraphrase",))) == "You win. The end."


def test_different_states_have_different_texts():
    states = [
        (observation, "shelf 2", held, moved)
        for observation in OBSERVATIONS
        for held in ("", "mug 1", "mug 1 hot", "mug 1 clean hot")
        for moved in ("", "pen 1 from desk 1 to shelf 2", "pen 1 cool from desk 1 to shelf 2")
    ]
    found = {}
    for state in states:
        for step in range(12):
            drawn = draw(step, arms=("paraphrase", "order"))
            told = reworded_state(reworded(state[0], drawn), *state[1:], drawn)
            assert found.setdefault(told, state) == state


def test_a_state_that_is_not_reworded_has_the_first_form_of_each_sentence():
    told = reworded_state("Nothing happens.", "", "mug 1 hot", "pen 1 from desk 1 to bed 1", None)
    assert told == (
        "Nothing happens. You have not gone anywhere yet. You are holding mug 1 (hot). "
        "pen 1 was brought from desk 1 to bed 1."
    ).replace("pen 1 was", "Pen 1 was")
