import pytest

from scpo.agents import make_agent
from scpo.agents.base import ReflectingAgent, Turn, thought, without_thoughts
from scpo.schema.agent import PlainAgent, ReactAgent, ReflexionAgent

TURNS = [
    Turn(f"PROMPT {n}", f"<think>idea {n}\nlonger</think><action>act {n}</action>", f"act {n}", f"saw {n}")
    for n in range(1, 5)
]


def reflexion(**changes):
    return make_agent(ReflexionAgent(**dict(name="reflexion", turns=2, trials=3, memory=2) | changes))


def test_plain_adds_nothing():
    agent = make_agent(PlainAgent(name="plain"))
    assert agent.prompt("PROMPT 5", TURNS, ()) == "PROMPT 5"
    assert not isinstance(agent, ReflectingAgent)


def test_react_shows_its_latest_thoughts_with_what_came_of_them_before_the_situation():
    text = make_agent(ReactAgent(name="react", turns=2)).prompt("PROMPT 5", TURNS, ())
    assert "Thought 3: idea 3 longer\nAction 3: act 3\nObservation 3: saw 3\nThought 4: " in text
    assert "idea 2" not in text
    assert text.endswith("The situation now:\nPROMPT 5")


def test_react_begins_with_the_situation():
    text = make_agent(ReactAgent(name="react", turns=2)).prompt("PROMPT 1", [], ())
    assert text.endswith("PROMPT 1")
    assert "so far" not in text


def test_a_turn_without_a_thought_is_shown_as_such():
    text = make_agent(ReactAgent(name="react", turns=1)).prompt("P", [Turn("P", "look", "look", "a\nroom")], ())
    assert "Thought 1: (none)\nAction 1: look\nObservation 1: a room" in text


def test_reflexion_reads_its_latest_notes_first():
    text = reflexion().prompt("PROMPT 5", TURNS, ["note one", "note two", "note three"])
    assert "note one" not in text
    assert text.index("- note two\n- note three") < text.index("Thought 3") < text.index("PROMPT 5")
    assert "before and failed" not in reflexion().prompt("PROMPT 5", TURNS, [])


def test_a_reflection_is_asked_about_the_whole_attempt():
    text = reflexion(turns=9).reflection_prompt(TURNS, ["note one"])
    assert "- note one" in text
    assert "PROMPT 1" in text
    assert "PROMPT 2" not in text
    assert text.index("Thought 1") < text.index("Observation 4: saw 4") < text.index("ended without success")


@pytest.mark.parametrize(
    ("response", "inside", "outside"),
    [
        ("<think> a\nb </think> <action>x</action>", "a b", "<action>x</action>"),
        ("no tags", "", "no tags"),
        ("<think>cut off by the limit", "cut off by the limit", ""),
        ("<THINK>a</THINK> then <think>b</think> plan", "a b", "then plan"),
    ],
)
def test_thoughts_are_separated_from_the_rest(response, inside, outside):
    assert (thought(response), without_thoughts(response)) == (inside, outside)
