import pytest

from scpo.errors import ConfigError
from scpo.policies.choice.reading import Command, Place, State, parse_command, read, task_words
from tests.support.choices import prompt


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


def test_words_that_say_nothing_are_left_out_of_a_task():
    assert task_words("put two hot mugs in the coffeetable and look at it.") == ("two", "hot", "mugs", "coffeetable")


@pytest.mark.parametrize("text", ["put hot mug in safe | desk 2 <action>", prompt(commands=())])
def test_another_prompt_is_refused(text):
    with pytest.raises(ConfigError, match=r"reads only env\.prompt=memory"):
        read(text)
