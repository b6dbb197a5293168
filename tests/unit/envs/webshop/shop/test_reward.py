import hashlib
import json
import logging
from dataclasses import replace

import pytest

from scpo.envs.webshop.catalogue.goals import Goal
from scpo.envs.webshop.shop import reward as rewards
from scpo.envs.webshop.shop.reward import all_tokens, matched_attributes, matched_options, reward, similar, type_factor
from scpo.errors import ConfigError
from tests.support.webshop_data import GENERATED, of_every_recording, small_catalogue


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Men's Running Shoes, 10.5 (Wide)", ["men", "'s", "running", "shoes", "10.5", "wide"]),
        ("500g Wi-Fi 3-Pack USB/HDMI Dr. Oil", ["500", "g", "wi", "fi", "3", "pack", "usb", "hdmi", "dr.", "oil"]),
        ('★ 24" TV & 4K—New!', ["24", "tv", "4k", "new"]),
        ("", []),
    ],
)
def test_all_tokens_are_those_of_spacys_blank_pipeline(title, expected):
    assert list(rewards.all_tokens(title)) == expected


def test_all_tokens_of_titles_are_those_that_spacy_gave():
    digest = hashlib.sha256()
    for record in json.loads((GENERATED.folder / "items_shuffle_1000.json").read_text(encoding="utf-8")):
        digest.update("\n".join([*rewards.all_tokens(record["name"]), ""]).encode())
    # Made with spacy.blank("en") of spaCy 3.8.18: the tokens with an alphanumeric character, in lower case.
    assert digest.hexdigest() == "dcdc361579475145ad1d84026cf17d836d902a352a3f945212a09c5209ce4d84"


@of_every_recording
def test_all_tokens_agree_with_spacy_on_every_title(recording):
    spacy = pytest.importorskip("spacy", reason="needs spaCy: pip install spacy")
    pipeline = spacy.blank("en")
    for product in recording.catalogue.products:
        theirs = [token.text.lower() for token in pipeline(product.title) if any(map(str.isalnum, token.text))]
        assert list(rewards.all_tokens(product.title)) == theirs


def test_the_stop_list_leaves_alphabetic_words_that_may_be_nouns():
    assert rewards.noun_rule("stop_list")("The Best 12 Oz Mug with a Lid for Men") == ("oz", "mug", "lid", "men")


def test_without_spacys_model_the_stop_list_is_used_and_the_log_warns(monkeypatch, caplog):
    monkeypatch.setattr(rewards, "SPACY_MODEL", "no_such_model")
    rewards._named.cache_clear()
    with caplog.at_level(logging.INFO):
        rule = rewards.noun_rule("spacy")
    rewards._named.cache_clear()
    assert rule("The red mug") == ("red", "mug")
    assert "stop list, since spaCy's no_such_model cannot be loaded" in caplog.text
    assert "WebShop nouns: rule stop_list" in caplog.text
    assert "rule spacy" not in caplog.text


def test_a_callable_is_taken_as_it_is_and_an_unknown_name_refused():
    assert rewards.noun_rule(str.split) is str.split
    with pytest.raises(ConfigError, match="nouns is spacy, stop_list, all_tokens or a callable"):
        rewards.noun_rule("verbs")


SHOE, CANVAS, TOASTER = small_catalogue().products
GOAL = Goal(
    asin=SHOE.asin, instruction="", attributes=("rubber sole", "soft"), options={"color": "red", "size": "large"},
    price_upper=30.0, title=SHOE.title, query=SHOE.query, category=SHOE.category,
    product_category=SHOE.product_category,
)  # fmt: skip


def test_everything_right_gives_one():
    assert reward(SHOE, {"color": "red", "size": "large"}, 25.0, GOAL, all_tokens) == 1.0


def test_each_miss_costs_its_share():
    # 2 attributes + 2 options + price = 5 parts
    assert reward(SHOE, {"color": "red"}, 25.0, GOAL, all_tokens) == pytest.approx(4 / 5)
    assert reward(SHOE, {}, 31.0, GOAL, all_tokens) == pytest.approx(2 / 5)
    wrong_size = reward(SHOE, {"color": "red", "size": "small"}, 30.0, GOAL, all_tokens)
    assert wrong_size == pytest.approx(4 / 5)  # the price is right at its bound


def test_a_product_of_another_kind_gives_nothing():
    assert type_factor(TOASTER, GOAL, all_tokens) == 0.0  # no shared noun
    assert reward(TOASTER, {"color": "red", "size": "large"}, 1.0, GOAL, all_tokens) == 0.0


@pytest.mark.parametrize(
    ("title", "query", "category", "expected"),
    [
        ("shoe a b c d e f g h i j k", "other", "Else", 0.1),  # 1 of 12 nouns shared: below 0.1
        ("shoe a b c d", "other", "Else", 0.5),  # 1 of 5: exactly 0.2 is no match
        ("shoe a b c", "other", "Else", 1.0),  # 1 of 4
        ("shoe a b c d", "men's sandals", "Else", 1.0),  # the query is the same
        ("shoe a b c d", "other", "Shoes › X › Clothing", 1.0),  # two parts of the category, in any order
        ("shoe a b c d", "other", "Shoes › X", 0.5),  # one part
    ],
)
def test_the_type_factor(title, query, category, expected):
    goal = replace(GOAL, title=title, query=query, product_category=category)
    assert type_factor(SHOE, goal, lambda text: text.lower().split()) == expected


def test_a_goal_title_without_nouns_counts_as_a_fifth_only_by_the_original_rule():
    # The set of shared nouns is empty, yet the original takes the score 0.2 where the goal's list is empty.
    assert (
        type_factor(SHOE, replace(GOAL, title="", query="other", product_category="Else"), lambda t: t.split()) == 0.5
    )


def test_attributes_match_fuzzily_or_inside_the_texts():
    assert matched_attributes(SHOE, ("rubber soles", "soft sole", "light", "suede")) == 3


def test_options_of_a_synthetic_goal_are_compared_as_pairs():
    assert matched_options(["large"], {"size": "large"}) == 1
    assert matched_options(["navy blue"], {"color": "navy blue"}) == 1  # blue is a word of the pair
    assert matched_options(["titanium"], {"color": "titanium"}) == 0  # holds "tan": the original's flaw, kept
    assert matched_options(["titanium"], ["titanium"]) == 1  # a human goal's value is normalised, too
    assert matched_options(["10.5"], ["10.5", "black1901"]) == 1


def test_similarity_is_rounded_and_ignores_marks_and_latin_1():
    assert similar("x-large", "X Large")
    assert similar("café", "caf")
    assert not similar("", "")
