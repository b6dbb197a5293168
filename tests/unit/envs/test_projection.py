"""Responses become commands as verl-agent's projection makes them; the compact prompt has its own opening tag."""

import pytest

from scpo.envs.projection import project, project_compact, respond


@pytest.mark.parametrize(
    ("response", "command", "valid"),
    [
        ("<think>why</think><action>go to desk 1</action>", "go to desk 1", True),
        ("<think>why</think>\n<action>\n Go To Desk 1 \n</action> and more", "go to desk 1", True),
        ("<think>x</think><action>fly</action>", "fly", True),  # never asked whether the game admits it
        ("<think>x</think><action></action>", "", True),
        ("<think>x</think><ACTION>look</ACTION>", "look", True),
        ("<think>x</think><action>a</action><action>b</action>", "a", True),
        ("<think>x</think></action> <action>look", "", True),  # the last tag may come first: nothing between them
        ("<action>look</action>", "look", False),
        ("<THINK>x</THINK><action>look</action>", "look", False),  # the thinking tags are case-sensitive
        ("<think>x<action>look</action>", "look", False),
        ("<think>我</think><action>look</action>", "look", False),
        ("<think>x</think> So: Go To desk 1 and then open drawer 2", " desk 1 and then open drawer 2", False),
        ("<think>x</think><action>look", "<think>x</think><action>look", False),
        ("", "", False),
    ],
)
def test_the_verl_agent_projection(response, command, valid):
    assert project(response, require_think=True, tail=30) == (command, valid)


@pytest.mark.parametrize(
    ("response", "command", "valid"),
    [
        ("go to desk 1 </action>", "go to desk 1", True),
        (" go to desk 1</action>", "go to desk 1", True),
        ("<action> go to desk 1 </action>", "go to desk 1", True),
        ("desk desk </action>", "desk desk", True),
        ("</action>", "", True),
        ("go to desk 1 desk 1 desk 1 desk 1 desk 1", " 1 desk 1 desk 1 desk 1 desk 1", False),
        ("go to desk 1", "go to desk 1", False),
    ],
)
def test_the_compact_projection(response, command, valid):
    assert project_compact(response, tail=30) == (command, valid)


@pytest.mark.parametrize("action", ["go to desk 1", "search[red shoe]", "click[< prev]"])
def test_a_response_is_the_action_and_the_end_token(action):
    assert respond(action) == f"{action} </action>"
