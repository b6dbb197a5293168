import hashlib

import numpy as np
import pytest

from scpo.errors import ConfigError
from scpo.policies.choice.imitation import RECIPE
from scpo.policies.choice.policy import ChoiceValue
from scpo.policies.choice.webshop_features import NONE, Fit, ShopAction, ShopReader, ShopState, read_shop
from tests.support.choices import choice_config, choice_policy
from tests.support.shop_prompts import ITEM, RESULTS, SEARCH, SHOP_PROMPTS, shop_prompt


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
        "click[b1]": ShopAction("open", Fit(0, 0), opened=True, rank=3),
        "click[b2]": ShopAction("open", Fit(1, 1), rank=2),
        "click[b3]": ShopAction("open", Fit(1, 0), rank=0),
        "click[b4]": ShopAction("open", Fit(1, 0), rank=1),
    }


def test_an_item_page_shows_which_options_are_asked_for_and_which_are_chosen():
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
    assert actions(text)["click[b1]"].fit.over == over


def test_what_has_another_form_is_read_too():
    assert actions(shop_prompt(page="item 1", actions=["fly"]))["fly"] == ShopAction("option")


def test_another_prompt_is_refused():
    with pytest.raises(ConfigError, match=r"model=choice reads only env\.prompt=memory, which begins with 'wish: '"):
        read_shop("task: put a mug in desk\n> look")
    with pytest.raises(ConfigError, match="model=choice reads only"):
        read_shop("wish: Find me desk")


def features(*texts):
    """Features of every action, action by action."""
    reader = ShopReader(512)
    feature_KF, place_C = reader.pair_features([reader.read(text) for text in texts])
    return feature_KF[place_C]


def differing(one, other, action):
    """The columns of the features of an action that differ between two prompts."""
    changed = (features(one) != features(other))[action]
    return [set(names) for names, different in zip(ShopReader.PAIR_FEATURES, changed, strict=True) if different]


def test_each_action_has_its_features():
    found = features(ITEM)
    assert found.shape == (5, len(ShopReader.PAIR_FEATURES))
    assert 0 < found.min() <= found.max() < 512


def test_what_changes_in_the_prompt_changes_the_features_that_read_it_and_no_others():
    buy = 0
    changed = differing(ITEM, ITEM.replace("chosen color: red", "chosen color: navy"), buy)
    assert changed
    assert all(names & {"left", "astray"} for names in changed)
    changed = differing(ITEM, ITEM.replace("seen b2 | $55.0 |  | jeans", "seen b2 | $55.0 |  | slim jeans"), buy)
    assert changed
    assert all("best lacks" in names for names in changed)
    assert not differing(ITEM, ITEM.replace("step: 5", "step: 9"), buy)  # the policy does not count steps


def test_no_feature_knows_a_product_or_a_word():
    """The same shop in other words has the same features: nothing can be learned by heart."""
    other = RESULTS
    for old, new in (("jeans", "lamp"), ("slim", "tall"), ("navy", "teal"), *((f"b{n}", f"c{n}") for n in range(10))):
        other = other.replace(old, new)
    np.testing.assert_array_equal(features(RESULTS), features(other))


def test_equal_pairs_are_found_once_and_in_an_order_of_their_contents():
    reader = ShopReader(512)
    once = reader.pair_features([reader.read(text) for text in SHOP_PROMPTS])[0]
    twice, place_C = reader.pair_features([reader.read(text) for text in (*reversed(SHOP_PROMPTS), ITEM)])
    np.testing.assert_array_equal(once, twice)
    assert len(place_C) == sum(text.count("\n> ") for text in SHOP_PROMPTS) + 5


def test_a_critic_reads_only_the_state():
    reader = ShopReader(512)
    fewer = ITEM.replace("\n> click[7]", "")
    found = reader.state_features([reader.read(text) for text in (ITEM, fewer, ITEM.replace("step: 5", "step: 9"))])
    assert found.shape == (3, len(ShopReader.STATE_FEATURES))
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_features_are_those_that_kept_imitation_starts_were_made_with():
    digest = hashlib.sha256(features(*SHOP_PROMPTS).tobytes()).hexdigest()[:16]
    assert (digest, RECIPE) == ("3a971802d9870571", 2), (
        "raise scpo.policies.choice.imitation.RECIPE: kept starts do not fit"
    )


def test_a_policy_chooses_among_the_listed_actions_and_a_critic_values_the_page():
    policy = choice_policy()
    for text, answer in zip(SHOP_PROMPTS, policy.generate(SHOP_PROMPTS, 1.0, np.full((3, 1), 0.5)), strict=True):
        assert f"\n> {answer.text.removesuffix(' </action>')}" in text
    ids = [text.encode() for text in SHOP_PROMPTS]
    value_NL, _ = ChoiceValue(choice_config())(ids, [(0,)] * 3)
    assert value_NL.shape == (3, 1)


def test_prompts_of_another_environment_in_the_same_batch_are_refused():
    from scpo.errors import ConfigError
    from tests.support.choices import PROMPTS

    with pytest.raises(ConfigError, match=r"model=choice reads only env\.prompt=memory"):
        choice_policy().generate([SHOP_PROMPTS[0], PROMPTS[0]], 1.0, np.full((2, 1), 0.5))
    with pytest.raises(
        ConfigError, match=r"begins with 'task: ' or 'wish: ' and .*; got a prompt that begins with 'You are"
    ):
        choice_policy().generate(["You are an expert"], 1.0, np.full((1, 1), 0.5))
