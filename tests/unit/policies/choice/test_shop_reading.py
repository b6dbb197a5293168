import pytest

from scpo.errors import ConfigError
from scpo.policies.choice.shop_reading import NONE, Fit, ShopAction, ShopState, read_shop
from tests.support.shop_prompts import ITEM, RESULTS, SEARCH, shop_prompt


def actions(text):
    found = read_shop(text)
    return dict(zip(found.commands, found.actions, strict=True))


def test_a_search_page_is_read_into_what_each_search_covers():
    found = read_shop(SEARCH)
    assert found.state == ShopState("search", 0, 1, NONE, 0, Fit(1, 0), 0, 0)
    assert found.actions == (
        ShopAction("search", covers=2),
        ShopAction("search", covers=2, extra=1),
        ShopAction("search", covers=2, extra=2),
        ShopAction("search", covers=1, tried=True, again=True),
        ShopAction("search", covers=0, extra=1),
    )


def test_products_are_ordered_by_what_they_lack_then_by_price_then_by_place_and_the_opened_ones_last():
    found = read_shop(RESULTS)
    assert found.state == ShopState("results", 2, 1, NONE, 0, Fit(1, 0), 0, 0)
    assert actions(RESULTS) == {
        "click[back to search]": ShopAction("back"),
        "click[next >]": ShopAction("next", again=True),
        "click[b1]": ShopAction("open", Fit(0, 0), opened=True, ahead=3),
        "click[b2]": ShopAction("open", Fit(1, 1), ahead=2),
        "click[b3]": ShopAction("open", Fit(1, 0), ahead=0),
        "click[b4]": ShopAction("open", Fit(1, 0), ahead=1),
    }


def test_an_item_page_tells_which_options_are_asked_for_and_which_are_chosen():
    found = read_shop(ITEM)
    assert found.state == ShopState("item", 0, 1, Fit(0, 0), 1, Fit(1, 2), left=2, astray=1)
    assert actions(ITEM) == {
        "click[buy now]": ShopAction("buy"),
        "click[navy]": ShopAction("option", wanted=True, chosen=3),
        "click[red]": ShopAction("option", chosen=1),
        "click[small]": ShopAction("option"),
        "click[7]": ShopAction("option", wanted=True),
    }


def test_the_option_that_is_asked_for_is_left_no_more_once_it_is_chosen():
    found = read_shop(ITEM.replace("chosen color: red", "chosen color: navy"))
    assert (found.state.left, found.state.astray) == (1, 0)
    assert actions(ITEM.replace("chosen color: red", "chosen color: navy"))["click[red]"].chosen == 2


@pytest.mark.parametrize(
    ("price", "over"), [("$49.99", 0), ("$50.0", 0), ("$50.01", 2), ("$30.0 to $60.0", 1), ("$60.0 to $70.0", 2)]
)
def test_a_price_is_held_against_the_wish_s_bound(price, over):
    text = shop_prompt(f"seen b1 | {price} |  | slim jeans", page="results 1", actions=["click[b1]"])
    assert actions(text)["click[b1]"].fit.price == over


def test_what_has_another_form_is_read_too():
    assert actions(shop_prompt(page="item 1", actions=["fly"]))["fly"] == ShopAction("option")


def test_another_prompt_is_refused():
    with pytest.raises(ConfigError, match=r"model=choice reads only env\.prompt=memory, which begins with 'wish: '"):
        read_shop("task: put a mug in desk\n> look")
    with pytest.raises(ConfigError, match="model=choice reads only"):
        read_shop("wish: Find me desk")
