import hashlib

import pytest

from scpo.envs.projection import project
from scpo.envs.webshop.compact_actions import compact_action, expand
from scpo.envs.webshop.episode import projected
from scpo.envs.webshop.prompts import choices, compact, compact_response, memory, verl_agent, wish
from scpo.envs.webshop.shop.pages import SEARCH, Page
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript, page_text
from scpo.envs.webshop.wish import searches
from tests.support.webshop_data import SHOES, of_every_recording, small_catalogue, small_shop

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


def test_a_prompt_that_is_too_long_loses_its_history():
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


def test_the_wish_keeps_content_words():
    assert wish("i am looking for a 6.5 oz mug, and price lower than 40.00 dollars") == "6 oz mug | under 40"


def test_the_page_text_of_the_done_page_ends_before_the_score():
    shop = small_shop()
    for action in ("search[shoe]", "click[b000000001]", "click[buy now]"):
        shop.step(action)
    text = page_text(shop.observation, shop.goal.instruction)
    assert text.endswith("Goal [SEP] None")
    assert "B000000001" in text


def played(*actions, shop=None):
    """The transcript after these actions."""
    shop = shop or small_shop()
    course = Transcript.of(shop)
    for action in actions:
        shop.step(action)
        course.record(action, shop)
    return course


def lines(course, head):
    return [line for line in memory(course).split("\n") if line.startswith(head)]


def test_the_search_page_lists_searches_and_no_click_that_does_nothing():
    course = played()
    assert choices(course) == [f"search[{query}]" for query in searches(course.task)]
    assert memory(course).split("\n")[:5] == [
        f"wish: {course.task}", "page: search 1", "product: ", "last: ", "step: 0",
    ]  # fmt: skip


def test_other_pages_list_what_can_be_clicked_and_no_search():
    course = played("search[shoe]")
    assert choices(course) == [f"click[{name}]" for name in course.actions["clickables"]]


def test_a_page_of_results_shows_price_and_matched_words_of_each_product_only():
    course = played("search[red leather shoe]")
    (red,) = lines(course, "seen b000000001")
    # The wish is "Find me men's sandals with rubber sole": the title, "Red Leather Shoe", has none of its words.
    assert red == "seen b000000001 | $25.0 |  | "
    assert lines(course, "searched") == ["searched red leather shoe"]
    assert not lines(course, "option")


def test_pages_that_were_read_add_their_words():
    records = [{**SHOES[0], "small_description": ["rubber parts"], "full_description": "A sole of it."}, *SHOES[1:]]
    shop = WebShop(small_catalogue(records), 0, "all_tokens")
    shop.reset(next(i for i, goal in enumerate(shop.goals) if goal.asin == "B000000001"))
    course = played("search[red]", "click[b000000001]", shop=shop)
    assert lines(course, "seen b000000001")[0].endswith(" | item | ")
    for action, ending in (
        ("features", "item features | rubber"),
        ("description", "item features description | rubber sole"),
    ):
        for click in (f"click[{action}]", "click[< prev]"):
            shop.step(click)
            course.record(click, shop)
        assert lines(course, "seen b000000001")[0].endswith(f" | {ending}")


def test_an_item_page_shows_options_and_the_chosen_ones():
    course = played("search[red]", "click[b000000001]", "click[large]")
    assert lines(course, "option") == ["option size: small", "option size: large", "option color: red"]
    assert lines(course, "chosen") == ["chosen size: large"]
    assert lines(course, "product") == ["product: b000000001"]
    assert lines(course, "last") == ["last: click[large]"]


def test_the_memory_outlasts_going_back():
    course = played("search[red]", "click[b000000001]", "click[back to search]")
    assert lines(course, "seen b000000001") == ["seen b000000001 | $25.0 | item | "]
    assert lines(course, "searched") == ["searched red"]


@of_every_recording
def test_every_choice_of_the_recorded_episodes_does_something(recording):
    """Whatever was recorded on the way: what the prompt lists is one line, and the shop takes it."""
    shop = recording.shop()
    for episode in recording.episodes[:25]:
        shop.reset(episode["goal_idx"])
        course = Transcript.of(shop)
        for step in episode["steps"]:
            listed = choices(course)
            assert len(set(listed)) == len(listed)
            assert memory(course).split("\n")[-len(listed) :] == [f"> {action}" for action in listed] or not listed
            clickable = [f"click[{name}]" for name in course.actions["clickables"] if name != SEARCH]
            assert [action for action in listed if action.startswith("click")] == clickable
            if step["done"]:
                break
            shop.step(step["action"])
            course.record(step["action"], shop)
