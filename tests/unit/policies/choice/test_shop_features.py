import hashlib

import numpy as np
import pytest

from scpo.policies.choice.imitation import RECIPE
from scpo.policies.choice.policy import ChoiceValue
from scpo.policies.choice.shop_features import ShopReader
from tests.support.choices import choice_config, choice_policy
from tests.support.shop_prompts import ITEM, RESULTS, SHOP_PROMPTS


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


def test_a_critic_reads_the_state_alone():
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
