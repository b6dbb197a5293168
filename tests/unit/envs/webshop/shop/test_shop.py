import random
import re

import pytest

from scpo.envs.webshop import WebShop
from scpo.envs.webshop.catalogue.generated_catalogue import generated_catalogue
from scpo.envs.webshop.shop.shop import parse_action
from scpo.errors import ConfigError
from tests.support.webshop_data import options, record, small_catalogue, small_shop

MALFORMED = [
    "", "click", "search", "search[]", "search[", "click]", "[x]", "click[buy now", "click[buy now]]", "click[search]",
    "click[[b000000001]]", "Click[back to search]", "buy now", "click[no such thing]", "click[漢字 ★ é]", "x" * 10_000,
    "click[" + "a" * 10_000 + "]", "[" * 10_000, "]" + "[" * 10_000, "think\nclick[back to search]", "\x00[\x00]",
]  # fmt: skip


def play(shop, *actions):
    for action in actions:
        answer = shop.step(action)
    return answer


def test_a_purchase_from_search_to_reward():
    shop = small_shop()
    size = shop.goal.options["size"]
    observation, reward, done = play(shop, "search[red leather]", "click[b000000001]", "click[red]", f"click[{size}]")
    assert (reward, done) == (0.0, False)
    assert observation.endswith(
        "Back to Search [SEP] < Prev [SEP] size [SEP] small [SEP] large [SEP] color [SEP] red [SEP] Red Leather Shoe "
        "[SEP] Price: $25.0 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    observation, reward, done = shop.step("click[Buy Now]")
    assert (reward, done, shop.score) == (1.0, True, 1.0)
    assert observation.startswith("Thank you for shopping with us! [SEP] Your code:")
    assert observation.endswith("Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] Reward Details [SEP] None")


def test_pages_lead_where_the_original_leads():
    shop = small_shop()
    play(shop, "search[shoe]", "click[b000000001]", "click[red]", "click[features]")
    assert shop.observation.endswith("< Prev [SEP] Soft sole [SEP] Light")
    shop.step("click[< prev]")
    assert shop.page.options == {"color": "red"}  # a sub-page keeps what was chosen
    shop.step("click[< prev]")
    assert (shop.page.kind, shop.page.options) == ("results", {})
    shop.step("click[next >]")
    assert "Page 2 (Total results: 2) [SEP] < Prev [SEP] Next >" in shop.observation
    assert shop.available_actions()["clickables"] == ["back to search", "< prev", "next >"]
    play(shop, "click[< prev]", "search[toaster]")  # a search works on every page
    assert shop.available_actions()["clickables"] == ["back to search", "next >", "b000000003"]
    play(shop, "click[b000000003]", "click[description]")
    assert shop.observation.endswith("Back to Search [SEP] < Prev")  # an empty description says nothing
    shop.step("click[back to search]")
    assert shop.available_actions() == {"has_search_bar": True, "clickables": ["search"]}


@pytest.mark.parametrize("action", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("path", [(), ("search[shoe]",), ("search[shoe]", "click[b000000001]", "click[red]")], ids=len)
def test_a_malformed_action_never_raises_and_changes_nothing(action, path):
    shop = small_shop()
    for step in path:
        shop.step(step)
    before = (shop.page, shop.observation, shop.available_actions())
    assert shop.step(action) == (before[1], 0.0, False)
    assert (shop.page, shop.observation, shop.available_actions()) == before


@pytest.mark.parametrize("query", ["x" * 10_000, "_" * 10_000, "漢字", "<c>", "<a>", "\x00", "] ["])
def test_any_search_shows_a_page_of_results(query):
    observation, _, _ = small_shop().step(f"search[{query}]")
    assert "Page 1 (Total results: 0)" in observation


def test_option_values_with_brackets_can_be_clicked():
    mined = {"B1": {"attributes": ["x"], "instruction": "Find", "instruction_attributes": ["x"]}}
    records = [record("B1", customization_options=options(size=["Large [2 pack]", "[s]"], pack=["[s]"]))]
    shop = WebShop(small_catalogue(records, mined), 0, "all_tokens")
    shop.reset(0)
    play(shop, "search[shoe]", "click[b1]")
    # As in the original the last opening bracket begins the argument, so such a value is out of reach ...
    page = shop.page
    play(shop, "click[large [2 pack]]")
    assert shop.page == page
    # ... and a value that two options share belongs to the last of them.
    assert "[s]" in shop.available_actions()["clickables"]


def test_a_value_shared_by_two_options_belongs_to_the_last():
    records = [record("B1", customization_options=options(size=["One"], pack=["One"]))]
    mined = {"B1": {"attributes": ["x"], "instruction": "Find", "instruction_attributes": ["x"]}}
    shop = WebShop(small_catalogue(records, mined), 0, "all_tokens")
    shop.reset(0)
    play(shop, "search[shoe]", "click[b1]", "click[one]")
    assert shop.page.options == {"pack": "one"}


def test_the_done_page_has_the_options_as_json_that_is_safe_in_html():
    records = [record("B1", customization_options=options(size=["men's <5>"]))]
    mined = {"B1": {"attributes": ["x"], "instruction": "Find", "instruction_attributes": ["x"]}}
    shop = WebShop(small_catalogue(records, mined), 0, "all_tokens")
    shop.reset(0)
    observation, _, _ = play(shop, "search[shoe]", "click[b1]", "click[men's <5>]", "click[buy now]")
    assert '{"size": "men\\u0027s \\u003c5\\u003e"}' in observation


def test_nothing_happens_after_the_end():
    shop = small_shop()
    last, _, _ = play(shop, "search[shoe]", "click[b000000001]", "click[buy now]")
    assert shop.step("click[back to search]") == (last, 0.0, True)
    assert shop.available_actions() == {"has_search_bar": False, "clickables": []}


def test_random_products_are_the_same_in_the_same_episode():
    shop, other = small_shop(), small_shop()
    assert shop.step("search[<r>]") == other.step("search[<r>]")


def test_a_shop_that_was_not_reset_raises():
    with pytest.raises(ConfigError, match=r"call reset\(goal_index\) first"):
        WebShop(small_catalogue(), 0, "all_tokens").step("search[x]")


def test_actions_are_parsed_as_the_originals_expression_does():
    rng = random.Random(0)
    for _ in range(20_000):
        action = "".join(rng.choice("ab[]\n") for _ in range(rng.randint(0, 9)))
        match = re.match(r"(.+)\[(.+)\]", action)
        assert parse_action(action) == (match.groups() if match else ("", ""))


def random_action(shop, rng):
    actions = shop.available_actions()
    kind = rng.random()
    if kind < 0.6 and actions["clickables"]:
        return f"click[{rng.choice(actions['clickables'])}]"
    if kind < 0.9:
        return f"search[{' '.join(rng.choices(rng.choice(shop.catalogue.products).document.split(), k=3))}]"
    return rng.choice(
        [*MALFORMED[:15], "search[<r>]", "search[<a> solid wood]", "search[" + "é★[" * rng.randint(1, 50) + "]"]
    )


def assert_rewards_at_random(steps):
    shop, rng = WebShop(generated_catalogue(0, 200), 0, "stop_list"), random.Random(0)
    shop.reset(0)
    for step in range(steps):
        _, reward, done = shop.step(random_action(shop, rng))
        assert 0.0 <= reward <= 1.0
        if done:
            shop.reset(step % len(shop.goals))


def test_two_thousand_random_actions_never_raise():
    assert_rewards_at_random(2_000)


@pytest.mark.slow
def test_a_hundred_thousand_random_actions_never_raise():
    assert_rewards_at_random(100_000)
