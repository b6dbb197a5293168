import hashlib

import pytest

from scpo.envs.projection import project
from scpo.envs.webshop.compact import compact, compact_response, wish
from scpo.envs.webshop.compact_actions import compact_action, expand
from scpo.envs.webshop.episode import projected
from scpo.envs.webshop.prompts import verl_agent
from scpo.envs.webshop.shop.pages import Page
from scpo.envs.webshop.transcript import Transcript, page_text
from tests.support.webshop_data import of_every_recording, small_shop

LISTING = ["back to search", "next >", "b000000001", "b000000002"]
ITEM = ["back to search", "< prev", "description", "features", "reviews", "buy now", "x-large", "10.5", "men | women"]


def transcript(history=0):
    actions = {"has_search_bar": True, "clickables": ["search"]}
    return Transcript(
        "buy a hat", "'Search'", actions, Page("search"), [("'Search'", f"click[{i}]") for i in range(history)]
    )


def test_the_first_prompt_has_no_history():
    text = verl_agent(transcript(), 2, 13000)
    assert text.startswith(
        "\nYou are an expert autonomous agent operating in the WebShop e‑commerce environment. \n"
        "Your task is to: buy a hat.\nYour current observation is: 'Search'.\n"
        "Your admissible actions of the current situation are: \n[\n'search[<your query>]',\n'click[search]',\n].\n"
    )
    assert verl_agent(transcript(3), 0, 13000) == text


def test_later_prompts_show_the_last_two_pairs():
    text = verl_agent(transcript(3), 2, 13000)
    assert "you have already taken 3 step(s). Below are the most recent 2 observations" in text
    assert (
        "[Observation 2: ''Search'', Action 2: 'click[1]']\n[Observation 3: ''Search'', Action 3: 'click[2]']" in text
    )
    assert "You are now at step 4 and your current observation is: 'Search'.\n" in text


def test_a_prompt_that_is_too_long_is_told_without_history():
    assert verl_agent(transcript(3), 2, 500) == verl_agent(transcript(), 2, 13000)


@of_every_recording
def test_the_prompts_of_the_recorded_episodes_are_verl_agents(recording):
    shop, digest = recording.shop(), hashlib.sha256()
    for episode in recording.episodes:
        shop.reset(episode["goal_idx"])
        course = Transcript.of(shop)
        digest.update(verl_agent(course, 2, 13000).encode())
        for step in episode["steps"]:
            if step["done"]:
                break
            shop.step(step["action"])
            course.record(step["action"], shop)
            digest.update(verl_agent(course, 2, 13000).encode())
    assert digest.hexdigest() == recording.prompts


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>a</think><action> Search[Red Shoes] </action>", ("search[red shoes]", True)),
        ("<action>click[a]</action>", ("click[a]", False)),  # no thinking
        ("<THINK>a</THINK><action>click[a]</action>", ("click[a]", False)),  # tags in upper case
        ("<think>漢</think><action>click[a]</action>", ("click[a]", False)),  # a Chinese character
        ("no tags at all, and a long text", ("all, and a long text", False)),  # its last 20 characters
        ("<think></think></action><action>", ("", True)),  # tags the wrong way round
        ("<think></think><action>a</action><action>b</action>", ("a", True)),  # the first one counts
    ],
)
def test_responses_are_projected_as_verl_agent_does(response, expected):
    assert project(response, require_think=True, tail=20) == expected


@pytest.mark.parametrize("action", [*(f"click[{name}]" for name in LISTING), "search[red shoes 10]"])
def test_compact_actions_round_trip_on_a_page_of_results(action):
    assert expand(compact_action(action, LISTING), LISTING) == action


@pytest.mark.parametrize("action", [f"click[{name}]" for name in ITEM])
def test_compact_actions_round_trip_on_a_product_page(action):
    assert expand(compact_action(action, ITEM), ITEM) == action


@pytest.mark.parametrize(
    ("response", "page", "expected"),
    [
        ("click 2 </action>", LISTING, ("click[b000000002]", True)),
        ("<action> click[buy now] </action>", ITEM, ("click[buy now]", True)),
        ("search red", LISTING, ("search red", False)),  # no closing tag
        ("dance </action>", LISTING, ("dance", True)),
        ("click 7 </action>", LISTING, ("click[7]", True)),  # no such place
    ],
)
def test_compact_responses_need_neither_thinking_nor_brackets(response, page, expected):
    assert projected("compact", response, page) == expected


def test_an_action_is_shown_in_its_compact_form():
    assert compact_response("click[b000000002]", LISTING) == "click 2 </action>"


def test_the_compact_prompt_shows_wish_history_and_page():
    shop = small_shop()
    course = Transcript.of(shop)
    shop.step("search[leather shoe]")
    course.record("search[leather shoe]", shop)
    bound = int(shop.goal.price_upper)
    size = shop.goal.options["size"]
    assert compact(course, 2) == (
        f"men s sandals rubber sole color : red size : {size} | under {bound} | "
        "<action> search leather shoe </action> | "
        "results 1 ; 1 red leather shoe : 25 ; 2 blue canvas shoe : 8 <action>"
    )
    shop.step("click[b000000001]")
    course.record("click[b000000001]", shop)
    assert compact(course, 0).endswith(
        "| item red leather shoe : 25 | size > small : large ; color > red ; | chosen nothing <action>"
    )


def test_the_state_is_the_page_and_how_the_customer_came_to_it():
    shop = small_shop()
    course = Transcript.of(shop)
    assert course.state_text == f"{course.observation} | query:  | product:  | chosen: "
    told = []
    for action in ("search[Leather shoe]", "click[b000000001]", "click[large]", "click[red]", "click[small]"):
        shop.step(action)
        course.record(action, shop)
        told.append(course.state_text.removeprefix(course.observation))
    assert told == [
        " | query: leather shoe | product:  | chosen: ",
        " | query: leather shoe | product: B000000001 | chosen: ",
        " | query: leather shoe | product: B000000001 | chosen: size: large",
        " | query: leather shoe | product: B000000001 | chosen: color: red, size: large",
        " | query: leather shoe | product: B000000001 | chosen: color: red, size: small",
    ]


def test_the_wish_keeps_what_says_something():
    assert wish("i am looking for a 6.5 oz mug, and price lower than 40.00 dollars") == "6 oz mug | under 40"


def test_the_page_text_of_the_done_page_ends_before_the_score():
    shop = small_shop()
    for action in ("search[shoe]", "click[b000000001]", "click[buy now]"):
        shop.step(action)
    text = page_text(shop.observation, shop.goal.instruction)
    assert text.endswith("Goal [SEP] None")
    assert "B000000001" in text
