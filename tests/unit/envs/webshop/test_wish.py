import pytest

from scpo.envs.webshop.wish import MOST_SEARCHES, Wish, asked_for, parse_wish, searches

JEANS = (
    "Find me slim fit, machine wash men's jeans with arch support with color: navy blue, and fit type: big, and tall, "
    "and price lower than 50.00 dollars"
)
HUMAN = "i'm looking for a pair of red x-large shorts for men, and price lower than 30.00 dollars"


def test_an_instruction_is_taken_apart_into_thing_options_and_price():
    assert parse_wish(JEANS) == Wish(
        words=("slim", "fit", "machine", "wash", "men's", "jeans", "arch", "support"),
        options={"color": "navy blue", "fit type": "big, and tall"},
        bound=50.0,
        phrases=("slim fit", "machine wash men's jeans", "arch support"),
    )


def test_what_an_instruction_has_not_is_missing_from_its_parts():
    plain = parse_wish("Find me desk with solid wood")
    assert (plain.words, plain.options, plain.bound) == (("desk", "solid", "wood"), {}, None)
    assert parse_wish(HUMAN).options == {}
    assert parse_wish(HUMAN).bound == 30.0
    assert parse_wish("").words == ()


def test_searches_are_made_of_the_instruction_s_words():
    assert searches(JEANS) == (
        "slim fit machine wash men's jeans arch support",
        "slim fit machine wash men's jeans arch support navy blue big and tall",
        "find me slim fit machine wash men's jeans with arch support with color navy blue and fit type big and tall "
        "and price lower than 50.00 dollars",
        "slim fit machine wash men's jeans",
        "slim fit",
        "machine wash men's jeans",
        "arch support",
    )


@pytest.mark.parametrize(
    "instruction", [JEANS, HUMAN, "desk", "a, b, c, d, e, f, g, h, i, j with k, l, m", "<r> [x] y"]
)
def test_searches_are_few_distinct_and_can_be_typed(instruction):
    found = searches(instruction)
    assert 0 < len(found) <= MOST_SEARCHES
    assert len(set(found)) == len(found)
    assert all(query and not set(query) & set("[]<>\n") for query in found)


@pytest.mark.parametrize(
    ("instruction", "name", "value", "asked"),
    [
        (JEANS, "color", "navy blue", True),
        (JEANS, "color", "blue", False),  # a part of the value that is asked for
        (JEANS, "size", "navy blue", False),  # of another option
        (JEANS, "fit type", "big, and tall", True),
        (HUMAN, "color", "red", True),
        (HUMAN, "size", "x-large", True),
        (HUMAN, "size", "large", False),
        ("Find me desk", "color", "red", False),
    ],
)
def test_a_value_is_asked_for_by_its_option_or_else_in_the_instruction_s_words(instruction, name, value, asked):
    assert asked_for(instruction, name, value) == asked
