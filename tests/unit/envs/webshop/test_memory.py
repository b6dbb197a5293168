from scpo.envs.webshop.memory import choices, memory
from scpo.envs.webshop.shop.pages import SEARCH
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript
from scpo.envs.webshop.wish import searches
from tests.support.webshop_data import SHOES, of_every_recording, small_catalogue, small_shop


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


def test_a_page_of_results_tells_price_and_words_of_the_wish_of_each_product_and_nothing_of_its_own_page():
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


def test_an_item_page_tells_options_and_what_is_chosen():
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
