"""Prompts, word for word."""

import re

from scpo.envs.alfworld.prompts import compact, memory, verl_agent
from scpo.envs.alfworld.transcript import Transcript

OPENING = (
    "-= Welcome to TextWorld, ALFRED! =-\n\n"
    "You are in the middle of a room. Looking quickly around you, you see a desk 2, a desk 1, and a safe 1.\n\n"
    "Your task is to: put a hot mug in safe."
)
START = ("go to desk 1", "go to desk 2", "go to safe 1", "help", "inventory", "look")
ENDING = """

Now it's your turn to take an action.
You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within <think> </think> tags.\x20
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <action> </action> tags.
"""  # noqa: E501


def after(*steps):
    transcript = Transcript(OPENING, START)
    for action, observation, admissible, executed in steps:
        transcript.record(action, observation, admissible, executed=executed)
    return transcript


GO = ("go to desk 2", "You arrive at desk 2. On the desk 2, you see a mug 1.", ("help", "take mug 1 from desk 2"), True)
TAKE = ("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2.", ("look", "move mug 1 to desk 2"), True)
FLY = ("fly", "Nothing happens.", ("look", "move mug 1 to desk 2"), False)


def test_the_first_verl_agent_prompt_has_no_history():
    expected = (
        "\nYou are an expert agent operating in the ALFRED Embodied Environment.\n"
        f"Your current observation is: {OPENING}\n"
        "Your admissible actions of the current situation are: "
        "['go to desk 1'\n 'go to desk 2'\n 'go to safe 1'\n 'inventory'\n 'look']." + ENDING
    )
    assert verl_agent(after(), 2) == expected


def test_a_later_verl_agent_prompt_shows_the_last_pairs():
    expected = (
        "\nYou are an expert agent operating in the ALFRED Embodied Environment. "
        "Your task is to: put a hot mug in safe.\n"
        "Prior to this step, you have already taken 3 step(s). Below are the most recent 2 observations and the "
        "corresponding actions you took: "
        "[Observation 2: 'You arrive at desk 2. On the desk 2, you see a mug 1.', "
        "Action 2: 'take mug 1 from desk 2']\n"
        "[Observation 3: 'You pick up the mug 1 from the desk 2.', Action 3: 'fly']\n"
        "You are now at step 4 and your current observation is: Nothing happens.\n"
        "Your admissible actions of the current situation are: ['look'\n 'move mug 1 to desk 2']." + ENDING
    )
    assert verl_agent(after(GO, TAKE, FLY), 2) == expected


def test_the_state_is_all_that_the_agent_saw_of_it():
    assert after(GO, TAKE).state_text == (
        "You pick up the mug 1 from the desk 2. | at: desk 2 | holding: mug 1 | moved:  | look, move mug 1 to desk 2"
    )
    heated = (
        ("heat mug 1 with microwave 1", "You heat the mug 1.", (), True),
        ("go to safe 1", "You arrive at safe 1.", ("look",), True),
        ("move mug 1 to safe 1", "You move the mug 1.", ("look", "help"), True),
    )
    assert after(GO, TAKE, *heated[:1]).state_text == (
        "You heat the mug 1. | at: desk 2 | holding: mug 1 hot | moved:  | "
    )
    assert after(GO, TAKE, *heated).state_text == (
        "You move the mug 1. | at: safe 1 | holding:  | moved: mug 1 hot from desk 2 to safe 1 | help, look"
    )


def test_a_thing_that_was_put_back_leaves_no_trace_in_the_state():
    back = ("move mug 1 to desk 2", "You move the mug 1.", ("look",), True)
    assert "moved:  |" in after(GO, TAKE, back).state_text
    assert "moved:  |" in after(GO, TAKE, back, TAKE).state_text
    assert after(GO, TAKE, FLY).state_text == "Nothing happens." + after(GO, TAKE).state_text.removeprefix(TAKE[1])


def test_the_order_of_commands_does_not_matter_to_the_state():
    one, other = Transcript(OPENING, START), Transcript(OPENING, START[::-1])
    assert one.state_text == other.state_text


def test_a_verl_agent_prompt_without_history_length_never_shows_history():
    assert "Prior to this step" not in verl_agent(after(GO, TAKE), 0)
    assert "most recent 1 observations" in verl_agent(after(GO), 2)


def test_the_compact_prompt_at_the_start():
    expected = "put hot mug in safe | desk 2 safe 1 | holding nothing | at start | can | start <action>"
    assert compact(after(), 2) == expected


def test_the_compact_prompt_later():
    expected = (
        "put hot mug in safe | desk 2 safe 1 | holding mug 1 | at desk 2 | can move mug 1 | "
        "arrive at desk 2 on desk 2 see mug 1 <action> take mug 1 from desk 2 </action> "
        "pick up mug 1 from desk 2 <action> fly </action> "
        "nothing happens <action>"
    )
    assert compact(after(GO, TAKE, FLY), 2) == expected


def test_the_compact_prompt_shows_what_was_done_to_the_thing_in_hand():
    def held(*commands):
        steps = [GO, TAKE, *((command, "Done.", (), True) for command in commands)]
        return re.search(r"holding ([^|]+) \|", compact(after(*steps), 0))[1]

    assert held("heat mug 1 with microwave 1") == "mug 1 hot"
    assert held("heat mug 1 with microwave 1", "cool mug 1 with fridge 1") == "mug 1 cool"
    assert held("clean mug 1 with sinkbasin 1", "heat mug 1 with microwave 1") == "mug 1 clean hot"
    assert held("heat mug 1 with microwave 1", "move mug 1 to desk 1") == "nothing"
    assert held("heat mug 1 with microwave 1", "move mug 1 to desk 1", "take mug 1 from desk 1") == "mug 1 hot"


def test_the_compact_prompt_names_a_second_receptacle_within_reach():
    both = ("arrive", "You arrive.", ("move mug 1 to desk 2", "move mug 1 to sinkbasin 1"), False)
    assert "| can move mug 1 move mug 1 to sinkbasin 1 |" in compact(after(GO, TAKE, both), 0)


def test_the_compact_prompt_caps_observations():
    long = "You see " + ", ".join(f"a mug {n}" for n in range(40))
    prompt = compact(after(("look", long, (), True), ("look", long, (), True)), 2)
    history, now = prompt.split("</action>")[-2:]
    assert len(history.split("<action>")[0].split()) == 10
    assert len(now.removesuffix("<action>").split()) == 30


def test_the_prompt_with_a_memory_at_the_start():
    commands = "> go to desk 1\n> go to desk 2\n> go to safe 1\n> inventory\n> look"
    assert memory(after(), 2) == f"task: put a hot mug in safe.\nholding:  | \nat: \nlast: \nstep: 0\n{commands}"


def test_the_prompt_with_a_memory_lists_what_was_seen_where_and_how_long_ago():
    heat = ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1.", ("help", "look"), True)
    expected = (
        "task: put a hot mug in safe.\nholding: mug 1 | hot\nat: desk 2\nlast: heat mug 1 with microwave 1\nstep: 3\n"
        "seen desk 2 | 2: \n> look"
    )
    assert memory(after(GO, TAKE, heat), 0) == expected


def test_the_prompt_with_a_memory_shows_when_nothing_happened():
    lines = memory(after(GO, TAKE, FLY), 2).split("\n")
    assert lines[3] == "last: fly | nothing"
    assert lines[5] == "seen desk 2 | 2: "
